"""The check after the clock: what the timed calls returned must still be right, and the same in every call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from longca.bench.check import explain
from longca.bench.check.check import refuse_outputs
from longca.bench.check.expected import Expected
from longca.bench.check.own_memory import CHECK, memory_for
from longca.bench.check.pieces import in_pieces
from longca.bench.check.verdict import Verdict
from longca.results.problem import Pass
from longca.results.record import Check

if TYPE_CHECKING:
    from longca.bench.check.calls import Calls
    from longca.kernels.inputs import Inputs

FLUCTUATION = 0.05  # of the size of a group of tokens: the sums of two calls differ by less in all orders of adding
GROUP = 128  # tokens whose outputs are summed, to compare calls with each other
LAST_WRONG = "right at first, but wrong in the last timed call"
DRAWN_WRONG = "right in the rows that the check samples, but wrong in others"
OTHER_WRONG = "right at first, but wrong once its inputs hold other numbers in the same memory"


@dataclass(frozen=True)
class AfterClock:
    """Why calls are wrong, with the errors of their tensors; empty where they are right. Then, whether calls on the same inputs gave
    different bits."""

    reason: str = ""
    errors: Check = field(default_factory=dict)
    nondeterministic: bool = False


def check_timed(calls: Calls, pass_: Pass, expected: Expected) -> AfterClock:
    """Compares the outputs of the last timed call with the reference, and those of all timed calls with each other."""
    verdict, step = Verdict(), "forward" if pass_ is Pass.FWD else "backward"
    refuse_outputs(step, calls.outputs, expected.case, verdict, expected.lse_shape, expected.needs_lse)
    if strange := calls.kinds - {torch.Tensor, type(None)}:
        verdict.problems.append(f"timed calls return values of the type {strange.pop().__name__}, not plain torch.Tensors")
    if not verdict.problems:
        tensors = calls.last(pass_)
        expected.compare_timed(tensors, verdict)
    if not verdict.ok:
        return AfterClock(f"{LAST_WRONG}: {verdict.reason}", verdict.tensor_errors)
    differ, problem = compare_calls(calls.sums, tensors, expected.tokens)
    return AfterClock(problem, nondeterministic=differ)


def check_drawn_rows(calls: Calls, pass_: Pass, drawn: Expected) -> AfterClock:
    """Compares rows of the last timed call that were drawn after it: nobody could know them before."""
    verdict = Verdict()
    drawn.compare_timed(calls.last(pass_), verdict)
    return AfterClock() if verdict.ok else AfterClock(f"{DRAWN_WRONG}: {verdict.reason}", verdict.tensor_errors)


def check_other(calls: Calls, inputs_of: Callable[[str], Inputs], backward: bool, expected: Expected) -> AfterClock:
    """Compares the outputs on the second data set, which is written to the memory of the timed inputs."""
    verdict = Verdict()
    calls.write(lambda: inputs_of("loud"))
    outputs = calls.again(backward)
    with memory_for(CHECK):
        expected.compare(outputs, "loud", verdict)
    return AfterClock() if verdict.ok else AfterClock(f"{OTHER_WRONG}: {verdict.reason}", verdict.tensor_errors)


def compare_calls(
    sums: list[dict[str, torch.Tensor]], last: dict[str, torch.Tensor], tokens: torch.Tensor | None = None
) -> tuple[bool, str]:
    """Compares the sums of all timed calls with those of the first: whether bits differ, and the problem where they do by more than the
    order of adding explains. `last` are tensors of their size; `tokens` the numbers of a rank's tokens."""
    differ = False
    for name, tensor in last.items():
        if len(sums) < 2 or not tensor.numel():
            continue
        stack = torch.stack([call[name] for call in sums])
        change = (stack - stack[0]).abs().amax(0)
        differ = differ or bool((change > 0).any()) or bool(change.isnan().any())
        worst = (change / (FLUCTUATION * _size(tensor)).clamp_min(1e-30)).nan_to_num_(nan=math.inf)
        if float(worst.max()) > 1:
            group, head = divmod(int(worst.argmax()), worst.shape[1])
            call = int((stack[:, group, head] - stack[0, group, head]).abs().nan_to_num_(nan=math.inf).argmax())
            of_tokens = explain.group_tokens(group, tensor.shape[name == "lse"], GROUP, explain.Tokens(tokens))
            where = name if tensor.dim() == 1 else f"{name} of tokens {of_tokens}"
            return True, f"its timed calls disagree: {where}, head {head} differs in call {call + 1} of {len(stack)}"
    return differ, ""


def _size(x: torch.Tensor) -> torch.Tensor:
    """The root of the summed squares of each group of tokens, [groups, heads]."""
    if x.dim() < 3:
        return group_sums(_squares(x)).sqrt()
    (of_tokens,) = in_pieces(lambda part: (_squares(part).sum(2, keepdim=True),), x)
    return group_sums(of_tokens).sqrt()


def _squares(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).nan_to_num(neginf=0.0).square()


def group_sums(x: torch.Tensor, divisor: torch.Tensor | None = None) -> torch.Tensor:
    """Sums over groups of tokens, [groups, heads], in fp32 or better; of an lse [heads, tokens] without what is -inf; dsinks [heads] are
    one group. A `divisor`, [heads, 1 or head size], is that of every token."""
    if x.dim() == 1:
        return (x if divisor is None else x / divisor)[None]
    if x.dim() == 2:
        x = x.nan_to_num(nan=math.nan, posinf=math.inf, neginf=0.0).T[..., None]
    whole = len(x) // GROUP * GROUP
    precision = torch.promote_types(x.dtype, torch.float32)
    parts = [x[:whole].unflatten(0, (-1, GROUP)).sum(1, dtype=precision)] if whole else []
    sums = torch.cat([*parts, x[whole:].sum(0, dtype=precision)[None]])
    return (sums if divisor is None else sums / divisor).sum(2)
