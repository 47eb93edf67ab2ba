"""How much memory a check and a timed cell hold beside what the kernel itself takes: in units of all inputs, results and gradients.

The peaks are those of all allocations, the temporaries inside torch's operations included. Pieces are small here, as they are beside the
tensors of a large shape.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import longca
from longca import masks
from longca.bench.check import check as checks
from longca.bench.check import fingerprint as fingerprints
from longca.bench.check import pieces
from longca.bench.check import reference as reference_module
from longca.bench.check.check import check_kernel
from longca.bench.check.fingerprint import fingerprint
from longca.bench.check.reference import DATA_SETS, Reference, data, home, reference
from longca.bench.one_device import job as one_job
from longca.bench.one_device.messages import Answer, WorkerJob
from longca.bench.one_device.session import Session
from longca.errors import NoMemory
from longca.kernels import discovery, registry
from longca.kernels import inputs as inputs_module
from longca.kernels.base import Case
from longca.processes import host_memory
from longca.results.problem import Pass
from longca.results.record import Status
from longca.results.settings import ClockSettings
from made_cells import make_cell

TOKENS, HEADS, SIZE, SIZE_V = 768, 8, 32, 24
UNIT = 4 * TOKENS * HEADS * (SIZE + SIZE_V) * 2  # bytes of q, k, v, dout, out, dq, dk and dv in bf16
KERNEL = "the kernel"
QUICK = ClockSettings(warmup_s=0, budget_s=0.001, least=3, most=3)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 1 << 12)
    monkeypatch.setattr(inputs_module, "BLOCK", 32)
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(reference_module.CHUNK_PAIRS, device, 1 << 13)
        monkeypatch.setitem(reference_module.HEADS_PAIRS, device, 1 << 13)


class Peak:
    """The most bytes that were allocated at the same time, less those before."""

    bytes = 0


@contextmanager
def peak_of_all() -> Iterator[Peak]:
    """Without what a kernel holds only while it is called."""
    peak = Peak()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        yield peak
    assert profiled.profiler is not None
    peak.bytes = most_bytes(profiled.profiler.kineto_results.events())


def most_bytes(events: list[Any]) -> int:
    calls = [(event.start_ns(), event.start_ns() + event.duration_ns()) for event in events if event.name() == KERNEL]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    changes = sorted([*changes, *((end, 0) for _, end in calls)])
    most = live = 0
    for time, change in changes:
        live += change
        if not any(start <= time < end for start, end in calls):
            most = max(most, live)
    return most


def size(values: dict[str, dict[str, torch.Tensor]]) -> int:
    return sum(x.numel() * x.element_size() for tensors in values.values() for x in tensors.values())


def bytes_of(made: Reference) -> int:
    return size(made.values) + size(made.rounding)


class Quiet(longca.Attention):
    """A right kernel; what it holds while it is called is not counted."""

    def __init__(self, mask: Any, case: Case) -> None:
        self.inner = registry.get("torch:chunked").prepare(mask, case)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        with record_function(KERNEL):
            return self.inner.forward(q, k, v)

    def backward(self, *given: Any) -> Any:
        with record_function(KERNEL):
            return self.inner.backward(*given)


class QuietKernel(longca.Kernel):
    name, devices = "quiet", ("cpu",)

    def supports(self, mask: Any, case: Case) -> Any:
        return longca.Yes()

    def prepare(self, mask: Any, case: Case) -> Quiet:
        return Quiet(mask, case)


def shape(device: str = "cpu") -> tuple[masks.Mask, Case]:
    return masks.causal(TOKENS), Case(TOKENS, TOKENS, HEADS, HEADS, SIZE, SIZE_V, "bf16", device)


def test_a_check_holds_inputs_results_and_those_of_the_call_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that it fills with NaN before a pass is that of its results; if there is more memory, that of all results once more."""
    mask, case = shape()
    wanted, quiet = reference(mask, case), Quiet(mask, case)
    with peak_of_all() as ample:
        assert check_kernel(QuietKernel(), quiet, case, wanted).reason == ""
    monkeypatch.setattr(checks, "_nan", OneEach().made)
    with peak_of_all() as scarce:
        assert check_kernel(QuietKernel(), quiet, case, wanted).reason == ""
    assert 1.5 < scarce.bytes / UNIT < 1.65
    assert 2 < ample.bytes / UNIT < 2.1


class OneEach:
    """Has memory for one tensor of each name at a time: there is none for a second one."""

    def __init__(self) -> None:
        self.held: dict[str, weakref.ref[torch.Tensor]] = {}

    def made(self, shape: tuple[int, ...], name: str, case: Case) -> torch.Tensor:
        if name in self.held and self.held[name]() is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        made = torch.full(shape, float("nan"), dtype=torch.float32 if name == "lse" else torch.bfloat16, device=case.device)
        self.held[name] = weakref.ref(made)
        return made


@pytest.mark.parametrize("room_for", [1, 2])
def test_inputs_live_until_the_next_are_made_where_there_is_memory_for_both(room_for: int) -> None:
    """So that they lie at other addresses: a kernel that reads those of its first call is wrong, and is seen."""
    mask, case = shape()
    wanted, kernel = reference(mask, case), registry.get("torch:chunked")
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    compared: list[str] = []

    def inputs_of(data_set: str) -> Any:
        before = sum(inputs() is not None for inputs in made)
        if before == room_for:
            raise torch.OutOfMemoryError("CUDA out of memory")
        alive.append(before)
        inputs = data(case, wanted.sampled, data_set, 0)
        made.append(weakref.ref(inputs.q))
        return inputs

    subject = checks.KernelSubject(kernel, kernel.prepare(mask, case), case)
    checks.SubjectCheck(subject, case, inputs_of, lambda tensors, data_set, verdict: compared.append(data_set)).run()
    assert compared == [*DATA_SETS]
    assert alive == [0, room_for - 1]


@pytest.mark.slow
def test_a_reference_takes_its_inputs_itself_and_fp64_numbers_of_one_head() -> None:
    """All heads together would take more than three times the unit."""
    mask, case = shape()
    with peak_of_all() as peak:
        made = reference(mask, case)
    assert (peak.bytes - bytes_of(made)) / UNIT < 0.5 + 0.75


@pytest.mark.slow
def test_a_timed_cell_takes_no_more_than_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(discovery._plugins, "quiet", QuietKernel)
    monkeypatch.setattr(checks, "_nan", OneEach().made)
    mask, case = shape()
    size = {"heads_q": HEADS, "heads_kv": HEADS, "head_dim": SIZE, "head_dim_v": SIZE_V, "dtype": "bf16"}
    cells = [make_cell("quiet", mask="causal", seqlen=TOKENS, pass_=pass_, **size) for pass_ in Pass]
    session, job = Session(lambda phase: None, "a CPU"), WorkerJob(cells=cells, digest=mask.digest, clock=QUICK)
    session.configure(job)
    monkeypatch.setattr(one_job, "_refuse_wrong_in_trial", lambda *given: None)
    with peak_of_all() as peak:
        outcomes = [reply.outcome for reply in one_job.run(job, session) if isinstance(reply, Answer)]
    assert [outcome.status for outcome in outcomes] == [Status.OK] * len(Pass), outcomes
    kept = bytes_of(session.reference(mask, case, 0))
    assert (peak.bytes - kept) / UNIT < 1.75


def errors(wanted: Reference, mask: masks.Mask, case: Case) -> dict[str, Any]:
    kernel = registry.get("torch:chunked")
    return check_kernel(kernel, kernel.prepare(mask, case), case, wanted).errors


def test_a_reference_that_is_kept_elsewhere_gives_the_same_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, case = shape()
    near = reference(mask, case)
    monkeypatch.setattr(reference_module, "home", lambda case, ranks: "cpu:0")
    far = reference(mask, case)
    assert not far.values["plain"]["dk"].is_contiguous()
    assert all(torch.equal(near.values[name]["dk"], values["dk"]) for name, values in far.values.items())
    assert errors(far, mask, case) == errors(near, mask, case)


@pytest.mark.gpu
def test_a_large_reference_is_kept_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, case = shape("cuda")
    near = reference(mask, case)
    monkeypatch.setattr(reference_module, "SHARE", 0.0)
    far = reference(mask, case)
    assert {name: x.device.type for name, x in far.values["loud"].items()} == {
        "out": "cuda",
        "lse": "cuda",
        "dq": "cuda",
        "dk": "cpu",
        "dv": "cpu",
    }
    assert errors(far, mask, case) == errors(near, mask, case)


@pytest.mark.parametrize(
    ("heads_kv", "host_gib", "ranks", "device"), [(128, 120, 1, "cpu"), (128, 60, 1, "cuda"), (8, 120, 1, "cuda"), (128, 120, 8, "cuda")]
)
def test_a_reference_is_kept_on_the_host_where_it_takes_much_of_the_device_and_less_of_the_host(
    heads_kv: int, host_gib: int, ranks: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 140 << 30))
    monkeypatch.setattr(host_memory, "free_bytes", lambda: host_gib << 30)
    assert home(Case(1 << 17, 1 << 17, 128, heads_kv, 192, 128, "bf16", "cuda"), ranks) == device


@pytest.mark.parametrize("change", ["a value", "two tokens", "two places", "a sign of 0", "NaN", "the scale of a head size of 64"])
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), lambda x: x[..., ::2]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_fingerprint_shows_every_change(change: str, make: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    x = make(torch.randn(40, 3, 10, generator=torch.Generator().manual_seed(0)).to(dtype))
    x[7, 1, 3] = 0.0
    before = fingerprint(x)
    assert torch.equal(before, fingerprint(x.clone()))
    if change == "a value":
        x[20, 2, 4] *= 1 + 2 * torch.finfo(dtype).eps
    elif change == "two tokens":
        x[[3, 4]] = x[[4, 3]]
    elif change == "two places":
        x[:, :, [0, 1]] = x[:, :, [1, 0]]
    elif change == "the scale of a head size of 64":
        x.mul_(0.125)
    else:
        x[7, 1, 3] = -0.0 if change == "a sign of 0" else float("nan")
    assert not torch.equal(before, fingerprint(x))


def test_a_fingerprint_without_memory_does_not_blame_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def sums(words: torch.Tensor) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 256.00 MiB.")

    monkeypatch.setattr(fingerprints, "_sums", sums)
    with pytest.raises(NoMemory, match=r"no memory for the check: it asked for 256\.00 MiB at once"):
        fingerprint(torch.zeros(4, 2, 8))
