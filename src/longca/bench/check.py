"""The check that comes before the clock: is this kernel right, on this mask, at this length?

Each data set is run forward and backward. Per token and head the rms error over the head size is compared with `FACTOR` times the
honest error of the tested precision. Memory that outputs may be made of is filled with NaN first, inputs must come out
unchanged, and rows without gradient must get none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from longca.bench.reference import DATA_SETS, Reference, data
from longca.kernels.base import Attention, Case, Kernel
from longca.kernels.inputs import DTYPES, Inputs
from longca.text import plural

Tensors = dict[str, torch.Tensor]
FACTOR = 8.0  # honest kernels stay under half of it in hundreds of seeds; a key dropped at a loud edge is far above
LSE_ALLOWED = {"bf16": 1e-3, "fp16": 1e-3, "fp32": 2e-5, "fp64": 1e-10}  # 1e-3 in lse moves out by half a step of bf16


@dataclass(frozen=True)
class Error:
    """The worst token of one tensor: its error, what is allowed there, and where it is."""

    error: float
    allowed: float
    where: str

    @property
    def ratio(self) -> float:
        if self.error == 0:
            return 0.0
        return self.error / self.allowed if self.allowed else math.inf

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed


@dataclass
class Verdict:
    """Per tensor the worst error of both data sets, and in words whatever else went wrong."""

    errors: dict[str, Error] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    first_ms: dict[str, float] = field(default_factory=dict)  # the wall time of the first call of each pass, in which kernels compile

    @property
    def ok(self) -> bool:
        return not self.problems and all(error.ok for error in self.errors.values())

    @property
    def reason(self) -> str:
        """Why it is wrong, in a sentence; empty where it is right."""
        wrong = [f"{name} is off by {e.error:.2g} at {e.where}, allowed {e.allowed:.2g}" for name, e in self.errors.items() if not e.ok]
        return "; ".join([*self.problems, *wrong])


def _nobody() -> None:
    """Nobody is to be told."""


def check(
    kernel: Kernel, attention: Attention, case: Case, reference: Reference, seed: int = 0, ran: Callable[[], None] = _nobody
) -> Verdict:
    """Run a prepared kernel on both data sets and compare; `ran` is called when it has run on one, so that nothing is left to compile."""

    def run(inputs: Inputs, verdict: Verdict) -> Tensors:
        tensors = _run(kernel, attention, case, inputs, verdict)
        ran()
        return tensors

    return examine(
        lambda which: data(case, reference.probe, which, seed, kernel.layout),
        run,
        lambda tensors, which, verdict: compare(tensors, reference, which, case, verdict),
    )


def examine(
    inputs_of: Callable[[str], Inputs], run: Callable[[Inputs, Verdict], Tensors], compare_with: Callable[[Tensors, str, Verdict], None]
) -> Verdict:
    """The check of anything that attends: a kernel, or one rank of many."""
    verdict = Verdict()
    for which in DATA_SETS:
        inputs = inputs_of(which)
        before = [_fingerprint(x) for x in inputs]
        tensors = run(inputs, verdict)
        changed = [name for name, x, old in zip(inputs._fields, inputs, before, strict=True) if _fingerprint(x) != old]
        if changed:
            verdict.problems.append(f"it changes its input {' and '.join(changed)}")
        if not verdict.problems:
            compare_with(tensors, which, verdict)
        if verdict.problems:
            break
    return verdict


def _run(kernel: Kernel, attention: Attention, case: Case, inputs: Inputs, verdict: Verdict) -> Tensors:
    q, k, v, dout = inputs
    if kernel.backward == "autograd" and case.backward:
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    poison(case)
    with _timed("fwd", case, verdict):
        answer: object = attention.forward(q, k, v)
    tensors = _by_name("forward", ("out", "lse"), answer, verdict)
    if "lse" not in tensors and kernel.gives_lse and not verdict.problems:
        verdict.problems.append("it returns no lse, though it says that it gives one")
    _refuse_forms(tensors, case, verdict)
    if case.backward and not verdict.problems:
        poison(case)
        with _timed("bwd", case, verdict):
            answer = attention.backward(dout, q, k, v, tensors["out"], tensors.get("lse"))
        gradients = _by_name("backward", ("dq", "dk", "dv"), answer, verdict)
        _refuse_forms(gradients, case, verdict)
        tensors |= gradients
    return {name: tensor.detach() for name, tensor in tensors.items()}


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
        if not isinstance(value, torch.Tensor) and not (name == "lse" and value is None):
            hint = "; a function returns out, or the tuple (out, lse)" if isinstance(value, list) else ""
            verdict.problems.append(f"{name} is {_kind(value)}, not a tensor{hint}")
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _kind(value: object) -> str:
    plain = {"NoneType": "None", "Tensor": "one tensor", "list": "a list"}
    return plain.get(type(value).__name__, f"a value of the type {type(value).__name__}")


def _refuse_forms(tensors: Tensors, case: Case, verdict: Verdict) -> None:
    """Shapes, dtypes and devices: out and gradients are as q, k and v are, lse is fp32, or fp64 beside fp64."""
    refuse_shapes(tensors, case, verdict)
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name, tensor in tensors.items():
        wanted = DTYPES[case.dtype] if name != "lse" or case.dtype == "fp64" else torch.float32
        if tensor.dtype != wanted:
            why = "" if name == "lse" else f" as {'q' if name == 'out' else name[1:]} is"
            verdict.problems.append(f"{name} is {names.get(tensor.dtype, tensor.dtype)}, not {names[wanted]}{why}")
        if tensor.device.type != case.device:
            verdict.problems.append(f"{name} lies on {tensor.device.type}, not on {case.device}")


@contextmanager
def _timed(which: str, case: Case, verdict: Verdict) -> Iterator[None]:
    synchronize = torch.cuda.synchronize if case.device == "cuda" else _nobody
    synchronize()
    start = time.perf_counter()
    yield
    synchronize()
    verdict.first_ms.setdefault(which, (time.perf_counter() - start) * 1e3)


def refuse_shapes(tensors: Tensors, case: Case, verdict: Verdict) -> None:
    query, key = (case.seqlen_q, case.heads_q), (case.seqlen_k, case.heads_kv)
    shapes = {"out": (*query, case.head_dim_v), "lse": query[::-1], "dq": (*query, case.head_dim)}
    shapes |= {"dk": (*key, case.head_dim), "dv": (*key, case.head_dim_v)}
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name]:
            verdict.problems.append(f"{name} has the shape {list(tensor.shape)}, not {list(shapes[name])}")


def poison(case: Case) -> None:
    """Fill memory of the sizes the kernel is about to ask for with NaN, so that what it never writes is seen."""
    sizes = [(case.seqlen_q, case.heads_q, case.head_dim_v), (case.seqlen_q, case.heads_q, case.head_dim)]
    sizes += [(case.seqlen_k, case.heads_kv, case.head_dim), (case.seqlen_k, case.heads_kv, case.head_dim_v)]
    held = [torch.full(size, float("nan"), dtype=DTYPES[case.dtype], device=case.device) for size in sizes]
    held.append(torch.full((case.heads_q, case.seqlen_q), float("nan"), device=case.device))
    del held


def _fingerprint(x_LHD: torch.Tensor) -> tuple[int, int]:
    """Sums of the bits, weighted by token and by place in a token: changed values and swapped ones both show."""
    bits = x_LHD.detach().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x_LHD.element_size()])
    sums = bits.sum((1, 2), dtype=torch.int64), bits.sum(0, dtype=torch.int64).flatten()
    weighted = [int((part * (2 * torch.arange(len(part), device=part.device) + 1)).sum()) for part in sums]
    return weighted[0], weighted[1]


def compare(tensors: Tensors, reference: Reference, which: str, case: Case, verdict: Verdict) -> None:
    """Each tensor with what is right: all tokens, or those of a shard that the reference was cut to."""
    rows = torch.from_numpy(reference.probe.rows).to(case.device)
    right, honest = reference.values[which], reference.honest[which]
    tokens = None if reference.tokens is None else torch.from_numpy(reference.tokens).to(case.device)
    row_tokens = rows if tokens is None else tokens[rows]
    for name, tensor in tensors.items():
        if name == "dq" and _any_outside(tensor, rows):
            verdict.problems.append("dq is not 0 in rows whose dout is 0")
        if name == "out" and not tensor.isfinite().all():
            verdict.problems.append("out holds NaN or infinity")
        if not right[name].numel():
            continue  # a shard without any row that is looked at
        if name == "lse":
            found = _lse_error(tensor[:, rows].to(right["lse"].dtype), right["lse"], LSE_ALLOWED[case.dtype], row_tokens)
        else:
            part = tensor[rows] if name in ("out", "dq") else tensor
            token = row_tokens if name in ("out", "dq") else tokens
            found = _worst(part, right[name], honest[name], token)
        worst = verdict.errors.get(name)
        if worst is None or found.ratio > worst.ratio:
            verdict.errors[name] = found


def _worst(got: torch.Tensor, right: torch.Tensor, honest: torch.Tensor, token: torch.Tensor | None) -> Error:
    error = (got.to(right.dtype) - right).square_().mean(-1).sqrt_().nan_to_num_(nan=math.inf)  # [tokens, heads]
    allowed = FACTOR * honest
    ratio = error / allowed.clamp_min(1e-38)
    index = int(ratio.argmax())
    row, head = divmod(index, error.shape[1])
    number = int(token[row]) if token is not None else row
    return Error(float(error[row, head]), float(allowed[row, head]), f"token {number}, head {head}")


def _lse_error(got: torch.Tensor, right: torch.Tensor, allowed: float, rows: torch.Tensor) -> Error:
    same = got == right  # also where both are -inf
    error = torch.where(same, 0.0, (got - right).abs()).nan_to_num_(nan=math.inf)
    head, row = divmod(int(error.argmax()), error.shape[1])
    return Error(float(error[head, row]), allowed, f"token {int(rows[row])}, head {head}")


def _any_outside(dq: torch.Tensor, rows: torch.Tensor) -> bool:
    silent = torch.ones(len(dq), dtype=torch.bool, device=dq.device)
    silent[rows] = False
    nonzero = (dq != 0).flatten(1).any(1)
    return bool((nonzero & silent).any())
