"""What `best` runs where its choice has no memory for a call: the next best kernel of the trial or of the records.

A trial of a long call times only a part of it, which does not show that the whole call fits into memory, and records do not show that
either. Where the first call of a pass runs out of memory, the kernel of that pass is replaced by the next best one until one runs. Later
calls of the class in this process begin with the choice that ran. It is not kept on disk: another process may have held the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from longca.errors import Refused, is_out_of_memory
from longca.kernels import registry
from longca.kernels.base import Attention, AutogradAttention, Case
from longca.kernels.choice import chooser
from longca.kernels.choice.candidates import Candidates
from longca.kernels.choice.choice import Choice, Option
from longca.kernels.choice.pair import Pair, PairAttention

if TYPE_CHECKING:
    from torch import Tensor

    from longca.kernels.base import BackwardKind, Gradients, GradientsWithSinks
    from longca.masks import AnyMask

NO_MEMORY = "no memory for the whole call"
Result = TypeVar("Result")


def next_best(choice: Choice, among: Candidates, pass_: str, kind: BackwardKind) -> Choice | None:
    """Returns the choice without the kernel of one pass, which ran out of memory; None where no kernel can replace it.

    Kernels that a trial did not time replace none of those that it timed. Without a trial, kernels with records come first, then those
    without, in the order of preference. `kind` is the kind of backward that callers were told. A backward is replaced alone, because the
    forward before it has run.
    """
    options = {name: list(entries) for name, entries in choice.options.items()}
    options[pass_] = [replace(one, note=NO_MEMORY) if one.kernel == choice.by_pass[pass_] else one for one in options[pass_]]
    tried = choice.source == "trial"
    forward_costs = _costs(options["fwd"], tried)
    backward_costs = _costs(options["bwd"], tried, 1.0 if tried else chooser.BACKWARD_WEIGHT) if choice.backward else {"": Cost()}
    forwards, backwards = {kernel.label for kernel in among.forward}, {kernel.label for kernel in among.backward} or {""}
    ways = {(first, second) for first in forwards for second in backwards if pass_ == "fwd" or first == choice.forward}
    if pass_ == "fwd" and choice.backward:
        ways |= {(kernel.label, kernel.label) for kernel in among.whole if kernel.backward == kind}
    costs = {
        (first, second): forward_costs[first].plus(backward_costs[second])
        for first, second in ways
        if first in forward_costs and second in backward_costs
    }
    if not costs:
        return None
    forward, backward = min(costs, key=lambda way: costs[way])
    chosen = replace(choice, forward=forward, backward=backward, options=options)
    return replace(chosen, why={name: _reason(chosen, name, choice) for name in chosen.by_pass})


class Cost(NamedTuple):
    """The rank of a kernel in one pass, or of kernels in both; the least is the best."""

    unknown: int = 0  # passes without records
    time: float = 0.0  # milliseconds, or over that of the fastest
    place: int = 0  # in the order of preference, where records lack the kernel

    def plus(self, other: Cost) -> Cost:
        return Cost(self.unknown + other.unknown, self.time + other.time, self.place + other.place)


def _costs(options: list[Option], tried: bool, weight: float = 1.0) -> dict[str, Cost]:
    """Returns the costs of kernels that did not run out of memory; after a trial, of those that it timed."""
    costs: dict[str, Cost] = {}
    for place, option in enumerate(options):
        time = option.ms if tried else option.slower
        if option.note == NO_MEMORY or (tried and time is None):
            continue
        costs.setdefault(option.kernel, Cost(1, 0.0, place) if time is None else Cost(0, weight * time))
    return costs


def _reason(choice: Choice, pass_: str, before: Choice) -> str:
    """Returns why a kernel runs a pass: that of the choice before where it is the same kernel."""
    label = choice.by_pass[pass_]
    if label == before.by_pass[pass_]:
        return before.why[pass_]
    options = choice.options[pass_]
    failed = [option.kernel + (f" ({option.ms:.3g} ms)" if option.ms else "") for option in options if option.note == NO_MEMORY]
    own = next(option for option in options if option.kernel == label and option.note != NO_MEMORY)
    if choice.source == "trial":
        reason = f"trial on {choice.part}: {label} takes {own.ms:.3g} ms"
    elif own.slower is not None:
        reason = f"next by records: {own.slower:.2f} times the time of the fastest"
    else:
        reason = "next by preference, without records"
    return f"{reason}; {NO_MEMORY} with {' and '.join(dict.fromkeys(failed))}" if failed else reason


class FallbackAttention(Attention):
    """Runs the kernels of a choice that the whole call did not decide; replaces one that runs out of memory in its first call.

    `pair` is told the kernels that replace others, so that it names those that run.
    """

    def __init__(self, pair: Pair, choice: Choice, mask: AnyMask, case: Case, without: Collection[str] = ()) -> None:
        self._pair, self._choice, self._mask, self._case, self._without = pair, choice, mask, case, without
        self._chosen_first = choice
        self._prepared: Attention | None = None
        self._ran: set[str] = set()  # the passes that need no other kernel any more
        self._run("plan", lambda attention: attention)

    def forward(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._run("fwd", lambda attention: attention.forward(*self._ordered(q_LHD, k_LHD, v_LHD)))

    def forward_with_sinks(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, sinks_H: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._run("fwd", lambda attention: attention.forward_with_sinks(*self._ordered(q_LHD, k_LHD, v_LHD), sinks_H))

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        return self._run("bwd", lambda attention: attention.backward(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL))

    def backward_with_sinks(
        self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None, sinks_H: Tensor
    ) -> GradientsWithSinks:
        tensors = dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD
        return self._run("bwd", lambda attention: attention.backward_with_sinks(*tensors, lse_HL, sinks_H))

    def _ordered(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the tensors in the memory order of the forward that runs: the caller may have prepared them for another one."""
        from longca.kernels.inputs import in_layout

        layout = self._pair.layout
        return in_layout(q_LHD, layout), in_layout(k_LHD, layout), in_layout(v_LHD, layout)

    def _run(self, pass_: str, call: Callable[[Attention], Result]) -> Result:
        """Returns the result of a call, with the next best kernel where the first call of a pass runs out of memory."""
        if pass_ in self._ran:
            return call(self._prepare())
        from longca.kernels.choice.trial import free_memory

        first: Exception | None = None
        while True:
            try:
                result = call(self._prepare())
                break
            except Exception as error:
                is_refusal = first is not None and isinstance(error, Refused)
                if not (is_refusal or is_out_of_memory(error)):
                    raise error from first
                if chooser.obstacle(self._case.device) or not self._replace(pass_):
                    raise first or error from None
                first = first or error
                error.__traceback__ = None  # its frames hold tensors
            free_memory(self._case.device)
        self._ran.add(pass_)
        if first is not None:
            chooser.keep(self._asked(), self._choice)
        return result

    def _prepare(self) -> Attention:
        """Returns the prepared kernels; as a graph where callers expect one and a functional pair replaced a kernel with autograd."""
        if self._prepared is None:
            kernel = Pair(self._pair.forward_kernel, self._pair.backward_kernel)
            try:
                attention = kernel.prepare(self._mask, self._case)
            finally:
                self._pair.preparing = kernel.preparing
            if self._case.backward and (self._pair.backward, kernel.backward) == ("autograd", "functional"):
                attention = GraphAttention(kernel, attention)
            elif self._choice is not self._chosen_first and kernel.backward == "functional" and not kernel.composed:
                attention = PairAttention(attention, attention, kernel.layout)  # the caller's tensors may have another memory order
            self._prepared = attention
        return self._prepared

    def _replace(self, pass_: str) -> bool:
        """Replaces the kernel that ran out of memory, and returns whether there is one to replace it."""
        if self._prepared is None:  # it was not even prepared
            pass_ = "bwd" if self._pair.composed and self._pair.preparing == self._pair.backward_kernel.label else "fwd"
        elif pass_ == "bwd" and self._pair.backward == "autograd":
            return False  # its graph is that of the forward that ran
        choice = next_best(self._choice, self._asked().all, pass_, self._pair.backward)
        if choice is None:
            return False
        self._choice, self._prepared = choice, None
        self._pair.set_kernels(registry.get(choice.forward), registry.get(choice.backward or choice.forward))
        return True

    def _asked(self) -> chooser.Contest:
        return chooser.contest(self._mask, self._case, without=self._without)


class GraphAttention(AutogradAttention):
    """A kernel with a functional backward for callers that expect a graph of torch."""

    def __init__(self, kernel: Pair, attention: Attention) -> None:
        self._kernel, self._attention = kernel, attention

    def forward(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._differentiable(q_LHD, k_LHD, v_LHD, None)

    def forward_with_sinks(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, sinks_H: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._differentiable(q_LHD, k_LHD, v_LHD, sinks_H)

    def _differentiable(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, sinks_H: Tensor | None) -> tuple[Tensor, Tensor | None]:
        from longca.kernels.functional import differentiable

        return differentiable(self._kernel, self._attention, q_LHD, k_LHD, v_LHD, sinks_H)
