"""Which kernels can take part in a call: as its forward, as its backward, or only with both passes together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from longca.kernels import registry
from longca.kernels.base import BYTES, LAST_RESORT, Case, Kernel, Yes
from longca.masks import AnyMask

SHORT = 8192  # tokens up to which a dense mask does not matter
MOST_BYTES = 1 << 30  # of scores or masks of every pair that a kernel may need beside others that need none

Available = Callable[[Kernel], bool]


@dataclass(frozen=True)
class Candidates:
    """Kernels in the order of `Kernel.preference`. Any `forward` goes with any `backward`: forwards give an lse, backwards are functional.

    A kernel of `whole` runs both passes itself: its backward is autograd's, or it gives no lse. Where no backward is wanted, `backward`
    is empty. `quadratic`: a pass can only be done with memory for every pair of tokens.
    """

    forward: tuple[Kernel, ...] = ()
    backward: tuple[Kernel, ...] = ()
    whole: tuple[Kernel, ...] = ()
    quadratic: bool = False

    @property
    def all(self) -> list[Kernel]:
        """Each kernel once."""
        return _once(*self.forward, *self.backward, *self.whole)

    def of(self, pass_: str) -> list[Kernel]:
        """Returns each kernel of one pass once: one with an autograd backward may be a forward alone, and run both passes."""
        return _once(*(self.forward if pass_ == "fwd" else self.backward), *self.whole)

    def __bool__(self) -> bool:
        return bool(self.forward or self.whole)


def _once(*kernels: Kernel) -> list[Kernel]:
    return list({kernel.label: kernel for kernel in kernels}.values())


def candidates(mask: AnyMask, case: Case, available: Available | None = None, without: Collection[str] = ()) -> Candidates:
    """Returns the kernels that can do this; those that need memory for every pair only where that is little, or no other can, and those
    of the last resort only where no other can with an lse."""
    available = available or (lambda kernel: bool(registry.available(kernel, case.device)))
    kernels = [kernel for kernel in registry.preferred(case.device) if kernel.label not in without and available(kernel)]
    fast = [kernel for kernel in kernels if getattr(kernel.preference, case.device) != LAST_RESORT]
    lean = _sorted(fast, mask, case, greedy=False)
    if not any(kernel.lse_in(case) for kernel in lean.all):
        lean = _sorted(kernels, mask, case, greedy=False)
    if lean:
        return lean
    return replace(_sorted(kernels, mask, case, greedy=True), quadratic=True)


def _sorted(kernels: Iterable[Kernel], mask: AnyMask, case: Case, greedy: bool) -> Candidates:
    forward, backward, whole, without_lse = list[Kernel](), list[Kernel](), list[Kernel](), list[Kernel]()
    forward_case = replace(case, backward=False, partial_backward=False)
    for kernel in kernels:
        if _takes(kernel, mask, forward_case, greedy):
            (forward if kernel.lse_in(forward_case) else without_lse).append(kernel)
        if case.backward and kernel.backward == "functional" and _takes(kernel, mask, replace(case, partial_backward=True), greedy):
            backward.append(kernel)
        elif case.backward and not case.partial_backward and _takes(kernel, mask, case, greedy):
            whole.append(kernel)
    if not case.backward:
        return Candidates(tuple(forward or without_lse))
    if not (forward and backward):
        forward, backward = [], []
    gives_lse = [kernel for kernel in whole if kernel.lse_in(case)]
    return Candidates(tuple(forward), tuple(backward), tuple(gives_lse or ([] if forward else whole)))


def _takes(kernel: Kernel, mask: AnyMask, case: Case, greedy: bool) -> bool:
    """Whether a kernel can do this, without much memory for every pair of tokens unless that is allowed."""
    answer = registry.supports(kernel, mask, case)
    if greedy or not (isinstance(answer, Yes) and answer.quadratic):
        return bool(answer)
    pairs = case.seqlen_q * case.seqlen_k * BYTES[case.dtype] * (case.heads_q if answer.per_head else 1)
    return max(case.seqlen_q, case.seqlen_k) <= SHORT and pairs <= MOST_BYTES
