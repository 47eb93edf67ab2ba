"""What one rank does: forward and backward as functions of its own tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch

from longca.kernels import sinks
from longca.parallel.ranges import Ranges

if TYPE_CHECKING:
    from longca.parallel.method import Plan


class Saved(NamedTuple):
    """What backward needs, as this program holds it: with split heads these are other tokens and heads than the rank's own.

    q, k, v, out are [L, H, D], lse is [H, L]; it covers the program's `rows` and `heads`. Where the kernel's backward is autograd's, its
    graph is that of `out`.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor | None  # None: the kernel gives none, and nothing had to be put together
    sinks: torch.Tensor | None = None  # of the program's heads; out and lse include them


Gradients = tuple[torch.Tensor, ...]  # dq, dk, dv, and with sinks dsinks of the program's heads


def with_sinks(gradients: Gradients, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
    """Returns dq, dk and dv, and behind them dsinks where there are sinks."""
    if saved.sinks is None or saved.lse is None:
        return gradients
    return *gradients, sinks.gradient(dout_LHD, saved.out, saved.lse, saved.sinks)


class Program(ABC):
    """Holds no numbers between calls, so one program serves all layers of a model."""

    rows: Ranges  # the tokens that `Saved.out` and `Saved.lse` are of
    heads: tuple[int, int]  # and the query heads

    @abstractmethod
    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        """Returns the rank's own rows of the result, and what backward needs. `sinks_H` are the sinks of all query heads."""

    def work(self, plan: Plan) -> int:
        """The visible pairs that this rank computes, in all of its heads."""
        return plan.pairs(self.rows, self.heads)

    @abstractmethod
    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        """Returns dq, dk, dv of the rank's own tokens and, with sinks, its part of dsinks of the program's heads."""

    def own_lse(self, saved: Saved) -> torch.Tensor | None:
        """The lse of the rank's own tokens, all query heads."""
        return saved.lse

    def saved(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, out_LHD: torch.Tensor, lse_HL: torch.Tensor,
        sinks_H: torch.Tensor | None,
    ) -> Saved:  # fmt: skip
        """Returns what forward saved, from this rank's own tokens, for a caller that has only these."""
        return Saved(q_LHD, k_LHD, v_LHD, out_LHD, lse_HL, self.own_sinks(sinks_H))

    def own_sinks(self, sinks_H: torch.Tensor | None) -> torch.Tensor | None:
        """The sinks of the program's heads."""
        return None if sinks_H is None else sinks_H[slice(*self.heads)]


def whole_heads(program: Program, dsinks_H: torch.Tensor, sinks_H: torch.Tensor) -> torch.Tensor:
    """Returns a rank's part of dsinks of all query heads; 0 in heads that it does not compute."""
    whole = torch.zeros_like(sinks_H)
    whole[slice(*program.heads)] = dsinks_H
    return whole
