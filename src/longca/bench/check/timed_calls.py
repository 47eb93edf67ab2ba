"""The check after the clock: what the timed calls returned must still be right, and the same in every call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from longca.bench.check import explain
from longca.bench.check.check import Verdict, compare, compare_rows
from longca.bench.check.reference import Reference
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs
from longca.results.record import Pass

FLUCTUATION = 0.05  # of the size of a group of tokens: the sums of two calls differ by less in all orders of adding
GROUP = 128  # tokens whose outputs are summed, to compare calls with each other


class TimedCalls(Protocol):
    """What was timed (one_device.calls)."""

    sums: list[list[torch.Tensor]]

    def last(self, pass_: Pass) -> dict[str, torch.Tensor]: ...

    def on_other(self, inputs: Inputs, backward: bool) -> dict[str, torch.Tensor]: ...


@dataclass(frozen=True)
class Repeated:
    """Whether calls on the same inputs gave the same bits; `problem` where they differ by more than the order of adding explains."""

    nondeterministic: bool
    problem: str = ""


def check_last(calls: TimedCalls, pass_: Pass, reference: Reference, case: Case) -> Verdict:
    """Compares the outputs of the last timed call. Its dout is not 0 in other rows, so of the gradients dq can be compared, row by row."""
    verdict, tensors = Verdict(), calls.last(pass_)
    if pass_ is Pass.FWD:
        compare(tensors, reference, "plain", case, verdict)
    else:
        sampled = reference.sampled
        places = np.searchsorted(sampled.rows, sampled.few)
        compare_rows("dq", tensors["dq"], sampled.few, places, reference, "plain", case, verdict)
    return verdict


def check_other(calls: TimedCalls, inputs: Inputs, reference: Reference, case: Case) -> Verdict:
    """Compares the outputs on the second data set, which is written to the memory of the timed inputs."""
    verdict = Verdict()
    compare(calls.on_other(inputs, case.backward), reference, "loud", case, verdict)
    return verdict


def compare_calls(calls: TimedCalls, pass_: Pass) -> Repeated:
    """Compares the sums of all timed calls with those of the first."""
    differ, last = False, calls.last(pass_)
    for place, name in enumerate(last):
        sums = [call[place] for call in calls.sums if len(call) > place and call[place].numel()]
        if len(sums) < 2:
            continue
        stack = torch.stack(sums)
        change = (stack - stack[0]).abs().amax(0)
        differ = differ or bool((change > 0).any()) or bool(change.isnan().any())
        allowed = FLUCTUATION * _size(last[name], len(stack[0]))
        worst = (change / allowed.clamp_min(1e-30)).nan_to_num_(nan=math.inf)
        if float(worst.max()) > 1:
            group, head = divmod(int(worst.argmax()), worst.shape[1])
            call = int((stack[:, group, head] - stack[0, group, head]).abs().nan_to_num_(nan=math.inf).argmax())
            where = f"{name} of tokens {explain.group_tokens(group, len(last[name]), GROUP)}, head {head}"
            return Repeated(True, f"its timed calls disagree: {where} differs in call {call + 1} of {len(stack)}")
    return Repeated(differ)


def _size(x: torch.Tensor, groups: int) -> torch.Tensor:
    """The root of the summed squares of each group of tokens, [groups, heads]."""
    return group_sums(x.float().square()).sqrt()[:groups]


def group_sums(x: torch.Tensor) -> torch.Tensor:
    """Sums over groups of tokens, [groups, heads], in fp32 or better; of lse [heads, tokens] and dsinks [heads] nothing is summed."""
    if x.dim() < 3:
        return torch.zeros(0, device=x.device)
    whole = len(x) // GROUP * GROUP
    precision = torch.promote_types(x.dtype, torch.float32)
    parts = [x[:whole].unflatten(0, (-1, GROUP)).sum((1, 3), dtype=precision)] if whole else []
    return torch.cat([*parts, x[whole:].sum((0, 2), dtype=precision)[None]])
