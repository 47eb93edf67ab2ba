"""Merges partial results one by one into a single fp32 accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from longca.errors import Refused
from longca.kernels import sinks

if TYPE_CHECKING:
    from longca.parallel.primitives.local import LocalKernel


class Merger:
    """Merges the out and lse of several sets of keys. Rows without visible keys get out 0 and lse -inf."""

    def __init__(self, kernel: LocalKernel, q_LHD: torch.Tensor, v_LHD: torch.Tensor) -> None:
        self.kernel = kernel
        self.shape = (*q_LHD.shape[:2], v_LHD.shape[2])
        self.lse_type = torch.promote_types(kernel.dtype, torch.float32)
        self.out: torch.Tensor | None = None
        self.lse: torch.Tensor | None = None

    def add(self, rows: slice, out_LHD: torch.Tensor, lse_HL: torch.Tensor | None, seeing: Sequence[slice] = ()) -> None:
        """Merges the result of `rows` over further keys, of which only the rows `seeing` see any. A single part may have no lse."""
        if self.out is None:
            self._first(rows, out_LHD, lse_HL)
            return
        if self.lse is None or lse_HL is None:
            raise Refused(f"{self.kernel.label} gives no lse, and results over several sets of keys cannot be put together without it.")
        if self.out.dtype != self.kernel.accumulate:  # only now: a single part needs no fp32
            self.out = self.out.to(self.kernel.accumulate)
        for some in seeing or [rows]:
            part = slice(some.start - rows.start, some.stop - rows.start)
            self._merge(self.out[some], self.lse[:, some], out_LHD[part], lse_HL[:, part])

    def _merge(self, out: torch.Tensor, lse: torch.Tensor, out_LHD: torch.Tensor, lse_HL: torch.Tensor) -> None:
        # Both weights by themselves: 1 - weight would round a small one at the size of 1. NaN only where neither has seen anything yet.
        ahead_LH1 = (lse_HL - lse).T.unsqueeze(-1)
        new, old = (torch.sigmoid(x).nan_to_num_(0.0).to(out.dtype) for x in (ahead_LH1, -ahead_LH1))
        out.mul_(old).addcmul_(out_LHD, new)  # bf16 becomes fp32 inside the operation, which saves a copy
        lse.copy_(torch.logaddexp(lse, lse_HL))

    def _first(self, rows: slice, out_LHD: torch.Tensor, lse_HL: torch.Tensor | None) -> None:
        if len(out_LHD) == self.shape[0]:
            self.out, self.lse = out_LHD, None if lse_HL is None else lse_HL.to(self.lse_type)
            return
        self.out, lse = self._nothing(self.kernel.accumulate)
        self.out[rows] = out_LHD
        if lse_HL is not None:
            lse[:, rows] = lse_HL
            self.lse = lse

    def _nothing(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        length, heads, _ = self.shape
        lse_HL = self.kernel.comm.empty((heads, length), self.lse_type, "lse").fill_(float("-inf"))
        return self.kernel.empty(self.shape, dtype, "out").zero_(), lse_HL

    def result(self, sinks_H: torch.Tensor | None = None, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns out and lse, out in the kernel's type unless another one is given. Sinks are added here, once."""
        if self.out is None:
            self.out, self.lse = self._nothing(dtype or self.kernel.dtype)
        if sinks_H is not None:
            if self.lse is None:
                raise Refused(f"{self.kernel.label} gives no lse, without which attention sinks cannot be added.")
            self.out, self.lse = sinks.add(self.out, self.lse, sinks_H)
        return self.out.to(dtype or self.kernel.dtype), self.lse


class Total:
    """The sum of gradients that come in parts, each for a slice of the tokens."""

    def __init__(self, kernel: LocalKernel, shape_LHD: Sequence[int], so_far: torch.Tensor | None = None) -> None:
        self.kernel, self.shape, self.sum = kernel, shape_LHD, so_far

    @property
    def dtype(self) -> torch.dtype:
        """Returns the type of the sum so far: a single part keeps its own."""
        return self.kernel.dtype if self.sum is None else self.sum.dtype

    def add(self, where: slice, part_LHD: torch.Tensor, some: Sequence[slice] = ()) -> None:
        """Adds the part of the tokens `where`, which is 0 outside `some` of them."""
        if self.sum is None and len(part_LHD) == self.shape[0]:
            self.sum = part_LHD
            return
        for tokens in some or [where]:
            into = self.buffer()[tokens]
            into += part_LHD[tokens.start - where.start : tokens.stop - where.start] if some else part_LHD

    def buffer(self) -> torch.Tensor:
        """Returns the sum in the type of accumulation, 0 at first. The caller may send it, receive into it and add to it."""
        if self.sum is None:
            self.sum = self.kernel.empty(self.shape, self.kernel.accumulate, "total").zero_()
        elif self.sum.dtype != self.kernel.accumulate:
            self.sum = self.sum.to(self.kernel.accumulate)
        return self.sum

    def result(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Returns the sum, in the kernel's type unless another one is given."""
        if self.sum is None:
            self.sum = self.kernel.empty(self.shape, dtype, "total").zero_()
        return self.sum.to(dtype or self.kernel.dtype)
