"""Measures errors: of kernels over masks, lengths and dtypes, and of methods over numbers of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from longca.errors import Refused, Unavailable
from longca.kernels import registry as kernels
from longca.kernels.base import Case
from longca.kernels.inputs import make
from longca.masks import AnyMask
from longca.numerics.attention_step import RanksStep, Tensors, exact_step, one_call
from longca.numerics.errors import Error, changed_share, errors
from longca.parallel import registry as methods
from longca.parallel.method import make_plan


@dataclass(frozen=True)
class Measured:
    """One kernel, or one method on ranks, on one mask."""

    kernel: str
    mask: str
    seqlen: int
    dtype: str
    seed: int
    method: str = ""  # empty: one call
    ranks: int = 1
    errors: dict[str, Error] | None = None  # by tensor, against fp64
    repeats: bool = True  # whether a second call gives the same bits
    changed: dict[str, float] | None = None  # of a method: the share of elements whose bits differ from one call's
    alone: dict[str, Error] | None = None  # of a method: the errors of one call
    refused: str = ""  # why it was not measured


def measure(
    named: Sequence[tuple[str, AnyMask]], case: Case, asked: Sequence[str], split: Sequence[tuple[str, int]], seed: int
) -> Iterator[Measured]:
    """`named` are masks of one length; `split` are methods with their numbers of ranks, which run the first kernel."""
    for name, mask in named:
        make_row = partial(Measured, mask=name, seqlen=case.seqlen_q, dtype=case.dtype, seed=seed)
        inputs, exact = make(case, seed), exact_step(mask, case, seed)
        alone: Tensors | None = None
        for kernel in asked:
            try:
                first, repeats = _twice(partial(one_call, kernels.choose(kernel, mask, case).label, mask, inputs))
            except (Refused, Unavailable) as refused:
                yield make_row(kernel, refused=str(refused))
                continue
            alone = first if kernel == asked[0] else alone
            yield make_row(kernel, errors=errors(first, exact), repeats=repeats)
        for method, ranks in split:
            if alone is None:
                yield make_row(asked[0], method=method, ranks=ranks, refused=f"methods run {asked[0]}, which was not measured here")
                continue
            try:
                plan = make_plan(methods.get(method), mask, case, ranks, None, asked[0])
                first, repeats = _twice(RanksStep(plan, inputs, kernels.choices(asked[0])[0].layout))
            except (Refused, Unavailable) as refused:
                yield make_row(asked[0], method=method, ranks=ranks, refused=str(refused))
                continue
            yield make_row(
                asked[0], method=method, ranks=ranks, errors=errors(first, exact), repeats=repeats,
                changed=changed_share(first, alone), alone=errors(alone, exact),
            )  # fmt: skip


def _twice(call: Callable[[], Tensors]) -> tuple[Tensors, bool]:
    """The result, and whether a second call has the same bits."""
    first, second = call(), call()
    return first, not any(changed_share(first, second).values())
