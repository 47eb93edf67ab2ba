"""The check that comes before the clock: is this kernel, or this rank of many, right on this mask and length?

Each data set is run forward and backward, and all results are compared with the reference (see `comparison`).

Memory for outputs is filled with NaN first. Fingerprints of outputs are taken as soon as a call returns, on the same stream, and again
after they were compared: work that ends later is seen. Inputs and earlier outputs must stay unchanged, rows without gradient must get none,
and where determinism is asked for a second call must give the same bits.

Beside the inputs and outputs of a call, only the outputs of the call before are held, and temporaries of bounded size: what is left of a
device's memory is the kernel's. What is held besides for a stricter check, such as inputs of the data set before, is dropped where memory
is short.

A kernel that is wrong is called again on the same data: where another call is right, or wrong in another way, the data is not to blame.
Nor is it where a wrong result is the right one of the call before, on other data: then the kernel keeps results. A wrong kernel stays wrong
if a later call raises; the verdict is told before that call, so that it is known even if the call never returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from longca.bench.check.comparison import Tensors, compare, differ
from longca.bench.check.diagnosis import Diagnosis, diagnose, first_wrong
from longca.bench.check.fingerprint import Fingerprinted
from longca.bench.check.own_memory import CHECK, INPUTS, memory_for
from longca.bench.check.reference import DATA_SETS, Reference, data
from longca.bench.check.verdict import Compared, Verdict
from longca.errors import NoMemory, is_out_of_memory
from longca.kernels.base import Attention, Case, Kernel
from longca.kernels.inputs import DTYPES, Inputs
from longca.plugins import place
from longca.text import plural

TellWrong = Callable[[Verdict], object]
Diagnose = Callable[[Tensors, Inputs, str, Verdict], Diagnosis | None]
DifferOn = Callable[[str, Tensors, Tensors], bool]  # whether two results on a data set differ
AGAIN, AGAIN_S = 3, 10.0  # how often a wrong kernel is called again at most, and the seconds after which no other call begins


class Subject(Protocol):
    """What is checked: a prepared kernel, or the program of one rank. `backward` follows a `forward` on the same inputs."""

    def forward(self, inputs: Inputs) -> object:
        """Returns the tuple (out, lse)."""

    def backward(self, inputs: Inputs) -> object:
        """Returns the tuple (dq, dk, dv), with dsinks at its end where the inputs have sinks."""

    def release(self) -> None:
        """Drops the inputs of the last forward, and what it left for a backward."""


class KernelSubject:
    """A prepared kernel. As in `longca.attention`, torch records gradients only in a forward whose backward is autograd's: a forward alone
    runs as in inference."""

    def __init__(self, kernel: Kernel, attention: Attention, case: Case) -> None:
        self._attention, self._autograd = attention, kernel.backward == "autograd" and case.backward
        self._given: tuple[torch.Tensor, ...] = ()  # q, k, v, and sinks where the case has them
        self._kept: tuple[torch.Tensor, ...] = ()

    def forward(self, inputs: Inputs) -> object:
        self._given = tuple(x.detach().requires_grad_() for x in inputs.of_forward) if self._autograd else inputs.of_forward
        attention = self._attention
        with torch.set_grad_enabled(self._autograd):
            answer: object = attention.forward(*self._given) if inputs.sinks is None else attention.forward_with_sinks(*self._given)
        if isinstance(answer, tuple | list) and len(answer) == 2:
            self._kept = tuple(answer)
        return answer

    @torch.no_grad()
    def backward(self, inputs: Inputs) -> object:
        q, k, v, *sinks = self._given
        out, lse = self._kept
        if not sinks:
            return self._attention.backward(inputs.dout, q, k, v, out, lse)
        return self._attention.backward_with_sinks(inputs.dout, q, k, v, out, lse, sinks[0])

    def release(self) -> None:
        self._given = self._kept = ()


def names_of(step: str, case: Case) -> tuple[str, ...]:
    """The tensors that a pass returns."""
    if step == "forward":
        return "out", "lse"
    return ("dq", "dk", "dv", "dsinks") if case.sinks else ("dq", "dk", "dv")


def _nothing(*_: object) -> None:
    """Does nothing."""


def check_kernel(kernel: Kernel, attention: Attention, case: Case, reference: Reference, seed: int = 0, **settings: Any) -> Verdict:
    """The verdict on a prepared kernel; `settings` are those of a `SubjectCheck`."""
    return check_subject(KernelSubject(kernel, attention, case), kernel, case, reference, seed, needs_lse=kernel.gives_lse, **settings)


def check_subject(subject: Subject, kernel: Kernel, case: Case, reference: Reference, seed: int, **settings: Any) -> Verdict:
    """The verdict on what calls a kernel on one device; where it is wrong, it is called again on the same data."""
    return SubjectCheck(
        subject,
        case,
        lambda data_set: data(case, reference.sampled, data_set, seed, kernel.layout),
        lambda tensors, data_set, verdict: compare(tensors, reference, data_set, case, verdict),
        lambda data_set, first, second: differ(first, second, reference, data_set, case),
        partial(_diagnosis, reference, case),
        own_buffer=kernel.returns_own_buffer,
        **settings,
    ).run()


def _diagnosis(reference: Reference, case: Case, tensors: Tensors, inputs: Inputs, data_set: str, verdict: Verdict) -> Diagnosis | None:
    """The diagnosis of the first wrong tensor; None where it has no finite error, or there is no memory for it."""
    name = first_wrong([name for name, error in verdict.errors.items() if not error.ok])
    if not name or (verdict.problems and not verdict.blamed):  # results of calls that do more than to compute wrong numbers
        return None
    try:
        return diagnose(name, tensors[name], inputs, reference, data_set, case)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None


@dataclass
class SubjectCheck:
    """Calls a subject on both data sets and compares.

    A subject that is wrong is called again where `differ_on` is given. Ranks give none: they call together, and those that are right would
    not call again; a rank that ended its check alone would leave the others waiting.
    """

    subject: Subject
    case: Case
    inputs_of: Callable[[str], Inputs]
    compare_with: Callable[[Tensors, str, Verdict], None]
    differ_on: DifferOn | None = None
    diagnose_wrong: Diagnose | None = None
    needs_lse: bool = False
    lse_shape: tuple[int, ...] | None = None  # of ranks, which compute other rows and heads than they own
    repeats: int = 1  # of each data set
    ran: Callable[[], None] = _nothing  # is called after each run: when it has run once, nothing is left to compile
    tell_wrong: TellWrong = _nothing  # gets the verdict so far before a wrong subject is called again
    own_buffer: bool = False  # a call may write to the results of the call before
    verdict: Verdict = field(default_factory=Verdict)
    earlier: Fingerprinted | None = None  # outputs of the call before
    given: Inputs | None = None  # the latest

    def run(self) -> Verdict:
        for data_set in [name for name in DATA_SETS for _ in range(self.repeats)]:
            try:
                was_wrong = self.check_on(data_set)
                if was_wrong:
                    self.call_where_right()
            except Exception as error:
                if self.verdict.ok or self.differ_on is None:
                    raise
                if not isinstance(error, NoMemory):  # which is not the kernel's fault
                    self.verdict.raised = f"{type(error).__name__}: {error}{place(error)}"
                break
            if self.verdict.problems:
                break
        return self.verdict

    def check_on(self, data_set: str) -> bool:
        """Calls the subject on a data set; where the first call on it is wrong, calls again and returns True."""
        inputs, verdict = self.inputs(data_set), self.verdict
        outputs, own = self.call(inputs, data_set)
        own.kept = self._kept(outputs, data_set, own)
        verdict.join(own)
        self.earlier = outputs
        if not own.ok and verdict.diagnosis is None and not verdict.kept and self.diagnose_wrong is not None:
            verdict.diagnosis = self.diagnose_wrong(outputs.tensors, inputs, data_set, own)
        if not verdict.ok:
            self.tell_wrong(verdict)
        first_wrong = [call for call in verdict.compared if call.data_set == data_set] == [Compared(data_set, False)]
        if not first_wrong or not verdict.steady or verdict.kept or self.differ_on is None:
            return False
        self.call_again(inputs, data_set, partial(self.differ_on, data_set, outputs.tensors))
        return True

    def inputs(self, data_set: str) -> Inputs:
        """Those of the data set before live until these are made, so that these lie at other addresses: a kernel must not rely on the
        addresses of its first call. Where there is no memory for both, they are dropped."""
        try:
            with memory_for(INPUTS):
                self.given = self.inputs_of(data_set)
            return self.given
        except NoMemory:
            if self.given is None:
                raise
        self.given = None  # not in the handler, whose error holds tensors
        return self.inputs(data_set)

    def call(self, inputs: Inputs, data_set: str) -> tuple[Fingerprinted, Verdict]:
        """The outputs of a forward and a backward, and the verdict on them; they are compared if nothing else is wrong."""
        verdict = Verdict()
        outputs = _Run(self.subject, self.case, inputs, verdict, self.lse_shape).both(self.needs_lse)
        self.subject.release()
        self.ran()
        with memory_for(CHECK):
            if self.earlier is not None and not self.own_buffer:
                _refuse_changed(self.earlier, "a later call writes to the memory of", verdict)
            if not verdict.problems:
                self.compare_with(outputs.tensors, data_set, verdict)
                _refuse_changed(outputs, "it returns before its work is done: later work changes", verdict)
                verdict.compared.append(Compared(data_set, verdict.ok))
        return outputs, verdict

    def _kept(self, outputs: Fingerprinted, data_set: str, own: Verdict) -> list[str]:
        """The wrong tensors of a call that are, to the bit, the right ones of the call before on other data."""
        before = self.verdict.compared[-1] if self.verdict.compared else None
        wrong = [name for name, error in own.errors.items() if not error.ok]
        if not wrong or self.earlier is None or before is None or not before.ok or before.data_set == data_set:
            return []
        unlike = self.earlier.unlike(outputs.tensors)
        return [name for name in wrong if name not in unlike]

    def call_again(self, inputs: Inputs, data_set: str, differs: Callable[[Tensors], bool]) -> None:
        """Calls a wrong subject on the same data until another outcome comes: it is right, or wrong in another way."""
        start, verdict = time.perf_counter(), self.verdict
        for _ in range(AGAIN):
            outputs, again = self.call(inputs, data_set)
            verdict.compared += again.compared
            verdict.unequal |= bool(again.compared) and not again.ok and differs(outputs.tensors)
            if not verdict.steady or time.perf_counter() - start > AGAIN_S:
                return
            del outputs  # there may be no memory for them beside those of another call

    def call_where_right(self) -> None:
        """Calls a wrong subject once more on the data on which it was right: it may be the later calls that are wrong, not the data."""
        right = [call.data_set for call in self.verdict.compared if call.ok and self.verdict.steady]
        for data_set in right[:1]:
            self.given = None  # there may be no memory for the inputs of both data sets beside the outputs of two calls
            self.verdict.compared += self.call(self.inputs(data_set), data_set)[1].compared


class _Run:
    """One forward and backward on one data set; what is wrong besides errors goes to the verdict."""

    def __init__(self, subject: Subject, case: Case, inputs: Inputs, verdict: Verdict, lse_shape: tuple[int, ...] | None) -> None:
        self._subject, self._case, self._inputs, self._verdict, self._lse_shape = subject, case, inputs, verdict, lse_shape
        self._before = Fingerprinted.of(inputs.tensors)

    def both(self, needs_lse: bool) -> Fingerprinted:
        verdict = self._verdict
        outputs = self._call("forward", lambda: self._subject.forward(self._inputs))
        if "lse" not in outputs.tensors and needs_lse and not verdict.problems:
            verdict.problems.append("it returns no lse, though its class says that it gives one")
        if self._case.backward and not verdict.problems:
            gradients = self._call("backward", lambda: self._subject.backward(self._inputs))
            _refuse_changed(outputs, "its backward changes", verdict)
            outputs.tensors |= gradients.tensors
            outputs.fingerprints |= gradients.fingerprints
        return outputs

    def _call(self, step: str, call: Callable[[], object]) -> Fingerprinted:
        """The tensors that a pass returns; a case that asks for determinism calls it twice."""
        pass_, names = {"forward": "fwd", "backward": "bwd"}[step], names_of(step, self._case)
        case, verdict = self._case, self._verdict
        with memory_for(CHECK):
            _poison(names, case, self._lse_shape)
        with _timed(pass_, case, verdict):
            tensors = _by_name(step, names, call(), verdict)
            _refuse_forms(tensors, case, verdict, self._lse_shape)
            outputs = Fingerprinted() if verdict.problems else Fingerprinted.of(tensors)
        _refuse_changed(outputs, f"its {step} returns before its work is done: later work changes", verdict)
        _refuse_changed(self._before, f"its {step} changes its input", verdict)
        if case.deterministic and not verdict.problems and (other := outputs.unlike(_by_name(step, names, call(), verdict))):
            differ = f"{' and '.join(other)} {'differs' if len(other) == 1 else 'differ'}"
            verdict.problems.append(f"its {step} is not deterministic, as was asked for: {differ} in a second call on the same inputs")
        return outputs


def _refuse_changed(outputs: Fingerprinted, what: str, verdict: Verdict) -> None:
    if not verdict.problems and (changed := outputs.changed()):
        verdict.problems.append(f"{what} {' and '.join(changed)}")


def refuse_outputs(step: str, answer: object, case: Case, verdict: Verdict, lse_shape: tuple[int, ...] | None, needs_lse: bool) -> None:
    """Notes what is wrong with the types, shapes and dtypes of what a pass returned, and an lse that is missing."""
    tensors = _by_name(step, names_of(step, case), answer, verdict)
    if not verdict.problems:
        _refuse_forms(tensors, case, verdict, lse_shape)
    if needs_lse and step == "forward" and "lse" not in tensors and not verdict.problems:
        verdict.problems.append("it returns no lse, though it gave one when it was checked")


def _by_name(step: str, names: tuple[str, ...], answer: object, verdict: Verdict) -> Tensors:
    """What a kernel returned; anything but the tensors that are expected, in their order, is a problem. An lse may be None."""
    wanted = f"({', '.join(names)})"
    if not isinstance(answer, tuple | list):
        verdict.problems.append(f"its {step} returns {_kind(answer)}, not the tuple {wanted}")
        return {}
    if len(answer) != len(names):
        verdict.problems.append(f"its {step} returns {plural(len(answer), 'value')}, not the {len(names)} of {wanted}")
        return {}
    found = dict(zip(names, answer, strict=True))
    for name, value in found.items():
        if type(value) is not torch.Tensor and not (name == "lse" and value is None):
            hint = "; a function returns out, or the tuple (out, lse)" if isinstance(value, list) else ""
            verdict.blame(name, f"is {_kind(value)}, not a plain torch.Tensor{hint}")
    return {name: value.detach() for name, value in found.items() if type(value) is torch.Tensor}  # without graphs, which hold inputs


def _kind(value: object) -> str:
    plain = {"NoneType": "None", "Tensor": "one tensor", "list": "a list"}
    return plain.get(type(value).__name__, f"a value of the type {type(value).__name__}")


def _refuse_forms(tensors: Tensors, case: Case, verdict: Verdict, lse_shape: tuple[int, ...] | None) -> None:
    """Refuses other shapes, dtypes and devices: out and gradients are as q, k and v are, lse and dsinks fp32, or fp64 beside fp64."""
    names, shapes = {dtype: name for name, dtype in DTYPES.items()}, _shapes(case, lse_shape)
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name]:
            verdict.blame(name, f"has the shape {list(tensor.shape)}, not {list(shapes[name])}")
        if tensor.dtype != (wanted := _dtype_of(name, case)):
            why = ": it is fp64 where q is, and else fp32" if name in ("lse", "dsinks") else f" as {'q' if name == 'out' else name[1:]} is"
            verdict.blame(name, f"is {names.get(tensor.dtype, tensor.dtype)}, not {names[wanted]}{why}")
        if tensor.device.type != case.device:
            verdict.blame(name, f"lies on {tensor.device.type}, not on {case.device}")


@contextmanager
def _timed(pass_: str, case: Case, verdict: Verdict) -> Iterator[None]:
    synchronize = torch.cuda.synchronize if case.device == "cuda" else _nothing
    synchronize()
    start = time.perf_counter()
    yield
    synchronize()
    verdict.first_ms.setdefault(pass_, (time.perf_counter() - start) * 1e3)


def _shapes(case: Case, lse_shape: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    """Those of all tensors that passes return."""
    query, key = (case.seqlen_q, case.heads_q), (case.seqlen_k, case.heads_kv)
    forward = {"out": (*query, case.head_dim_v), "lse": lse_shape or query[::-1]}
    return forward | {"dq": (*query, case.head_dim), "dk": (*key, case.head_dim), "dv": (*key, case.head_dim_v), "dsinks": (case.heads_q,)}


def _dtype_of(name: str, case: Case) -> torch.dtype:
    own = DTYPES[case.dtype]
    return torch.promote_types(own, torch.float32) if name in ("lse", "dsinks") else own


def _poison(names: tuple[str, ...], case: Case, lse_shape: tuple[int, ...] | None) -> None:
    """Fills memory of the sizes that a pass is about to ask for with NaN, so that a value it never writes is seen.

    A kernel may take some of it for other tensors before its results, so memory for the results of both passes is filled beside it, as
    far as there is any.
    """
    shapes = _shapes(case, lse_shape)
    held, spare = [_nan(shapes[name], name, case) for name in names], []
    try:
        for name, shape in shapes.items():
            spare.append(_nan(shape, name, case))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        spare.clear()
        if case.device == "cuda":
            torch.cuda.empty_cache()  # for what a kernel allocates without torch
    del held, spare


def _nan(shape: tuple[int, ...], name: str, case: Case) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=_dtype_of(name, case), device=case.device)
