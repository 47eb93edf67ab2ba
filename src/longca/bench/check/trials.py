"""Trials of a kernel at a short length: what no mask at the default settings shows, and what rings and users rely on.

- a forward alone under torch.no_grad(), as in inference: a kernel may take another way there;
- another scale than 1/sqrt(head size);
- a softcap, and attention sinks;
- rows without visible keys, whose out and gradients are 0 and whose lse is -inf;
- a backward that gets the out and lse of all steps of a ring, not those of its own forward;
- inputs that are not contiguous, through `longca.attention`: it copies them to the kernel's layout, and so kernels need not take them.
  Where there are several GPUs, another one is the current device meanwhile;
- calls under another stream than the default one: what runs on the default stream then reads inputs that are not there yet;
- later calls, on numbers that change in the same memory, with two backwards of each forward;
- calls with zones around all tensors that the kernel allocates (`guarded`).

What a kernel refuses is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from longca import masks
from longca.bench.check.check import KernelSubject, Subject, check_subject, names_of
from longca.bench.check.guarded import Guarded, eagerly
from longca.bench.check.reference import Reference, reference
from longca.bench.check.trial_names import TRIAL_TOKENS, TrialName
from longca.bench.check.verdict import Verdict
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Attention, Case, Kernel
from longca.kernels.functional import attention
from longca.kernels.inputs import Inputs, in_layout
from longca.kernels.sinks import gradient as sink_gradient
from longca.masks import AnyMask, Mask

OTHER_SCALE = 0.4  # times the default
SOFTCAP = 3.0  # scores of plain data reach 4, so that it bends some of them
LATER_CALLS = 3  # on each data set: some kernels are right in the first two
DELAY = 20_000_000  # cycles: about 10 ms
MERGED_ROUNDING = 1.5  # times the expected error: what two ring steps give is rounded before it is added up


@dataclass(frozen=True)
class Asked:
    """The kernel as it was asked for, the shapes, and a mask that it takes."""

    label: str
    case: Case
    mask: AnyMask | None  # None: only short masks are tried
    seed: int
    reference: Callable[[AnyMask, Case, int], Reference] = reference
    passes: tuple[bool, ...] = (True, False)  # with a backward, and without where the kernel refuses one
    tell_wrong: Callable[[Tried], object] = lambda tried: None  # gets the verdict so far before a wrong kernel is called again

    def check(self, subject: Subject, kernel: Kernel, case: Case, wanted: Reference, needs_lse: bool = False, repeats: int = 1) -> Tried:
        """Checks what calls the kernel."""

        def tell_wrong(so_far: Verdict) -> None:
            self.tell_wrong(Tried(kernel, case, so_far))

        verdict = check_subject(subject, kernel, case, wanted, self.seed, needs_lse=needs_lse, repeats=repeats, tell_wrong=tell_wrong)
        return Tried(kernel, case, verdict)

    @property
    def masks(self) -> list[AnyMask]:
        """The masks to try it on, of which the first that it takes is used: most kernels take a short one."""
        documents = masks.causal_document(TRIAL_TOKENS, documents=[TRIAL_TOKENS // 3, TRIAL_TOKENS - TRIAL_TOKENS // 3])
        return [masks.causal(TRIAL_TOKENS), masks.full(TRIAL_TOKENS), documents, *([] if self.mask is None else [self.mask])]

    def case_of(self, mask: AnyMask, **changes: object) -> Case:
        return replace(self.case, seqlen_q=mask.seqlen_q, seqlen_k=mask.seqlen_k, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Tried:
    """What was tried: the kernel that took it, the case, and the verdict."""

    kernel: Kernel
    case: Case
    verdict: Verdict


def run_trial(name: TrialName, asked: Asked) -> Tried:
    """Returns what was tried; raises Refused where the kernel cannot do it. Where a backward refuses when called, the forward is tried."""
    try:
        return _TRIALS[name](asked)
    except Refused:
        if name is TrialName.RING or asked.passes == (False,):
            raise
        return run_trial(name, replace(asked, passes=(False,)))


def _first(asked: Asked, candidates: list[AnyMask], **changes: object) -> tuple[Kernel, AnyMask, Case]:
    """The first mask that the kernel takes, with a backward if it has one; raises the first refusal where it takes none."""
    refusal: Refused | None = None
    for mask in candidates:
        for backward in asked.passes:
            case = asked.case_of(mask, backward=backward, **changes)
            try:
                return registry.choose(asked.label, mask, case), mask, case
            except Refused as refused:
                refusal = refusal or refused
    assert refusal is not None
    raise refusal


@torch.no_grad()
def _no_grad(asked: Asked) -> Tried:
    return _plainly(replace(asked, passes=(False,)), asked.masks)


def _rows_without_keys(asked: Asked) -> Tried:
    """Causal with a gap of blind rows; or, for kernels that know no such mask, causal with fewer keys than queries."""
    tokens, keys = TRIAL_TOKENS, TRIAL_TOKENS * 5 // 8
    gap = Mask.of(tokens, tokens, [(0, 100, 0, 0, 1, 1), (150, tokens, 0, 0, 1, 1)])
    fewer_keys = Mask.of(tokens, keys, [(tokens - keys, tokens, 0, 0, keys - tokens + 1, 1)])
    return _plainly(asked, [gap, fewer_keys])


def _plainly(
    asked: Asked, candidates: list[AnyMask], around: Callable[[Subject, Case], Subject] | None = None, repeats: int = 1, **changes: object
) -> Tried:
    """The check on the first of the masks that the kernel takes; `around` puts something around it."""
    kernel, mask, case = _first(asked, candidates, **changes)
    wanted = asked.reference(mask, case, asked.seed)
    kernel, attention = registry.prepare(kernel, mask, case)
    subject: Subject = KernelSubject(kernel, attention, case)
    return asked.check(around(subject, case) if around else subject, kernel, case, wanted, kernel.gives_lse, repeats)


def _ring(asked: Asked) -> Tried:
    """Two steps of a ring on one device: each sees half of the keys."""
    refusal: Refused | None = None
    for mask in asked.masks:
        half = mask.seqlen_k // 2
        spans = [(0, half), (half, mask.seqlen_k)]
        try:
            steps = [_Step.of(asked, mask, span) for span in spans]
        except Refused as refused:
            refusal = refusal or refused
            continue
        kernel, case = steps[0].kernel, asked.case_of(mask, backward=True)
        wanted = asked.reference(mask, case, asked.seed)
        rounding = {name: {key: MERGED_ROUNDING * x for key, x in values.items()} for name, values in wanted.rounding.items()}
        return asked.check(_RingSubject(steps), kernel, case, replace(wanted, rounding=rounding))
    assert refusal is not None
    raise refusal


@dataclass(frozen=True)
class _Step:
    kernel: Kernel
    attention: Attention
    keys: slice

    @staticmethod
    def of(asked: Asked, mask: AnyMask, span: tuple[int, int]) -> _Step:
        part = mask.cols([span])
        case = asked.case_of(part, backward=True, partial_backward=True, sinks=False)  # the merge adds them
        kernel = registry.choose(asked.label, part, case)
        if not kernel.lse_in(case):
            raise Refused(f"{kernel.label} gives no lse, without which steps of a ring cannot be merged.")
        return _Step(*registry.prepare(kernel, part, case), slice(*span))

    def cut(self, x_LHD: torch.Tensor) -> torch.Tensor:
        return in_layout(x_LHD[self.keys], self.kernel.layout)


class _RingSubject:
    """Merges the steps in fp32 or better."""

    def __init__(self, steps: list[_Step]) -> None:
        self._steps = steps
        self._out, self._lse = torch.empty(0), torch.empty(0)

    @torch.no_grad()
    def forward(self, inputs: Inputs) -> object:
        parts = [step.attention.forward(inputs.q, step.cut(inputs.k), step.cut(inputs.v)) for step in self._steps]
        lse_of = torch.stack([lse for _, lse in parts if lse is not None])
        self._lse = lse_of.logsumexp(0)
        if inputs.sinks is not None:
            self._lse = torch.logaddexp(self._lse, inputs.sinks[:, None])
        weights = (lse_of - self._lse.clamp_min(-1e30)).exp().mT[..., None]  # [steps, tokens, heads, 1]
        merged = sum(weight * out.to(weight.dtype) for weight, (out, _) in zip(weights, parts, strict=True))
        assert isinstance(merged, torch.Tensor)
        self._out = in_layout(merged.to(inputs.q.dtype), self._steps[0].kernel.layout)
        return self._out, self._lse

    @torch.no_grad()
    def backward(self, inputs: Inputs) -> object:
        (q, k, v, dout), sinks = inputs, inputs.sinks
        parts = [step.attention.backward(dout, q, step.cut(k), step.cut(v), self._out, self._lse) for step in self._steps]
        dq = torch.stack([part[0].to(self._lse.dtype) for part in parts]).sum(0).to(q.dtype)
        gradients = dq, torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])
        return gradients if sinks is None else (*gradients, sink_gradient(dout, self._out, self._lse, sinks))

    def release(self) -> None:
        self._out, self._lse = torch.empty(0), torch.empty(0)


def _strided(asked: Asked) -> Tried:
    kernel, mask, case = _first(asked, asked.masks)
    wanted = asked.reference(mask, case, asked.seed)
    return asked.check(_StridedSubject(kernel, mask, case), kernel, case, wanted)


class _StridedSubject:
    """Calls `longca.attention` with every second token of tensors that are twice as long."""

    def __init__(self, kernel: Kernel, mask: AnyMask, case: Case) -> None:
        self._kernel, self._mask, self._case = kernel, mask, case
        self._given: tuple[torch.Tensor, ...] = ()
        self._out = torch.empty(0)

    def forward(self, inputs: Inputs) -> object:
        case = self._case
        q, k, v = (_every_second(x).requires_grad_(case.backward) for x in inputs[:3])
        sinks = None if inputs.sinks is None else inputs.sinks.detach().requires_grad_(case.backward)
        self._given = (q, k, v) if sinks is None else (q, k, v, sinks)
        options: dict[str, Any] = {"scale": case.scale, "softcap": case.softcap, "deterministic": case.deterministic}
        with _other_device(case.device):
            self._out = attention(q, k, v, self._mask, kernel=self._kernel, sinks=sinks, **options)
        return self._out.detach(), None

    def backward(self, inputs: Inputs) -> object:
        with _other_device(self._case.device):
            return torch.autograd.grad(self._out, self._given, _every_second(inputs.dout), retain_graph=True)  # for a second call

    def release(self) -> None:
        self._given, self._out = (), torch.empty(0)


def _every_second(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in a view of a larger tensor, whose other numbers are NaN."""
    whole = torch.full((2 * len(x), *x.shape[1:]), float("nan"), dtype=x.dtype, device=x.device)
    whole[::2] = x
    return whole[::2]


def _other_device(device: str) -> AbstractContextManager[object]:
    """Makes the last GPU the current device, where there are several."""
    several = device == "cuda" and torch.cuda.device_count() > 1
    return torch.cuda.device(torch.cuda.device_count() - 1) if several else nullcontext()


def _another_stream(asked: Asked) -> Tried:
    kernel, mask, case = _first(asked, asked.masks)
    (kernel, prepared), wanted = registry.prepare(kernel, mask, case), asked.reference(mask, case, asked.seed)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        tried = asked.check(_DelayedSubject(KernelSubject(kernel, prepared, case)), kernel, case, wanted)
        torch.cuda.synchronize()
    return tried


def _clones(inputs: Inputs) -> Inputs:
    q, k, v, dout = (x.clone() for x in inputs)
    return Inputs(q, k, v, dout, None if inputs.sinks is None else inputs.sinks.clone())


class _DelayedSubject:
    """Has the inputs arrive late on the current stream, when the kernel was called already."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._late: Inputs | None = None

    def forward(self, inputs: Inputs) -> object:
        self._late = _clones(inputs)
        _arrive_late(self._late[:3], inputs[:3])
        return self._subject.forward(self._late)

    def backward(self, inputs: Inputs) -> object:
        assert self._late is not None
        _arrive_late([self._late.dout], [inputs.dout])
        return self._subject.backward(self._late)

    def release(self) -> None:
        self._late = None
        self._subject.release()


def _arrive_late(tensors: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor]) -> None:
    """Fills tensors with NaN now, and with these numbers some milliseconds later on the current stream."""
    for tensor in tensors:
        tensor.fill_(float("nan"))
    torch.cuda.synchronize()
    torch.cuda._sleep(DELAY)
    for tensor, values in zip(tensors, numbers, strict=True):
        tensor.copy_(values)


class _SameMemory:
    """Calls the kernel on the memory of its first inputs, and its backward twice after each forward. V has the other sign in every second
    call, and dout in every second backward; both are taken out of the results."""

    def __init__(self, subject: Subject, case: Case) -> None:
        self._subject, self._case, self._sign = subject, case, -1
        self._own: Inputs | None = None

    def forward(self, inputs: Inputs) -> object:
        self._own, self._sign = self._own or _clones(inputs), -self._sign
        for own, x in zip(self._own, (*inputs[:2], self._sign * inputs.v, inputs.dout), strict=True):
            own.data.copy_(x)  # a kernel that asks for the version of a tensor must not rely on it
        if self._own.sinks is not None and inputs.sinks is not None:
            self._own.sinks.data.copy_(inputs.sinks)
        answer: Any = self._subject.forward(self._own)
        return self._sign * answer[0], answer[1]

    def backward(self, inputs: Inputs) -> object:
        assert self._own is not None
        self._own.dout.data.copy_(inputs.dout)  # a second call, where determinism is asked for, is to be as the first
        self._subject.backward(self._own)
        self._own.dout.data.neg_()
        answer: Any = self._subject.backward(self._own)
        signs = {"dv": -1} | dict.fromkeys(("dq", "dk", "dsinks"), -self._sign)
        return tuple(signs[name] * x for name, x in zip(names_of("backward", self._case), answer, strict=True))

    def release(self) -> None:
        self._subject.release()


def _guarded(asked: Asked) -> Tried:
    zones = Guarded()
    try:
        with eagerly():
            tried = _plainly(asked, asked.masks, lambda subject, case: _GuardedSubject(subject, zones))
    except (Refused, torch.AcceleratorError):  # the device is lost: the kernel reached memory that is not its own
        raise
    except Exception as error:  # it was right without zones
        raise Refused(f"it cannot be called while its allocations are replaced: {type(error).__name__}: {error}") from error
    if tried.verdict.ok and zones.problem:
        tried.verdict.problems.append(zones.problem)
    return tried


class _GuardedSubject:
    """Calls the kernel while zones are put around what it allocates."""

    def __init__(self, subject: Subject, zones: Guarded) -> None:
        self._subject, self._zones = subject, zones

    def forward(self, inputs: Inputs) -> object:
        with self._zones:
            return self._subject.forward(inputs)

    def backward(self, inputs: Inputs) -> object:
        with self._zones:
            return self._subject.backward(inputs)

    def release(self) -> None:
        self._subject.release()


_TRIALS: dict[TrialName, Callable[[Asked], Tried]] = {
    TrialName.NO_GRAD: _no_grad,
    TrialName.SCALE: lambda asked: _plainly(asked, asked.masks, scale=OTHER_SCALE * asked.case.head_dim**-0.5),
    TrialName.SOFTCAP: lambda asked: _plainly(asked, asked.masks, softcap=SOFTCAP),
    TrialName.SINKS: lambda asked: _plainly(asked, asked.masks, sinks=True),
    TrialName.BLIND_ROWS: _rows_without_keys,
    TrialName.RING: _ring,
    TrialName.STRIDED: _strided,
    TrialName.STREAM: _another_stream,
    TrialName.LATER: lambda asked: _plainly(asked, asked.masks, _SameMemory, LATER_CALLS),
    TrialName.GUARDED: _guarded,
}
