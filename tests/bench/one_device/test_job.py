"""One job: passes share preparation and check, gradients never accumulate, and no time exists that should not."""

import gc
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import longca
from longca import masks
from longca.bench import kernel_job, record, references
from longca.bench.cell import Cell
from longca.bench.clock import Settings, Timing
from longca.bench.journal import describe_mask
from longca.bench.outcome import TooLong, fields_of
from longca.bench.plan import Planned
from longca.bench.reference import reference
from longca.bench.session import Session
from longca.bench.worker import plain
from longca.errors import Refused
from longca.kernels import inputs, registry
from longca.kernels.backends import torch_attention
from longca.kernels.backends.flex.kernel import MOST_COMPILATIONS
from longca.kernels.base import Case
from longca.report.compare import unsteady

CELL = Cell("torch:plain", "causal", 96, 4, 2, 16, 16, "fp32", "fwd")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(lambda message: None, "a CPU")
    made.settings, made.cache = Settings(warmup_s=0, budget_s=0.001, least=3), tmp_path
    return made


def run(session: Session, *passes: str, **changes: Any) -> dict[str, dict[str, Any]]:
    cells = [replace(CELL, which=which, **changes) for which in passes]
    return dict(kernel_job.measure(cells, session))


def test_passes_share_one_preparation_and_one_check(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from longca.bench import check

    calls = list[str]()
    plain = registry.classes()["torch"].prepare
    monkeypatch.setattr(registry.classes()["torch"], "prepare", lambda *given: calls.append("prepare") or plain(*given))
    real = check.check
    monkeypatch.setattr(check, "check", lambda *given, **more: calls.append("check") or real(*given, **more))
    found = run(session, "fwd", "bwd", "fwd+bwd")
    assert calls == ["prepare", "check"]
    assert [fields["status"] for fields in found.values()] == ["ok"] * 3
    assert all(set(fields["check"]) == {"out", "lse", "dq", "dk", "dv"} for fields in found.values())
    assert all(fields["ms"]["n"] >= 3 and fields["build_ms"] > 0 and fields["plan_ms"] > 0 for fields in found.values())


class Preparing:
    """The kernel torch, whose preparing takes as long as is said, one after the other; and what is there of it at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
        self.seconds, self.alive, self.most, self.count = seconds, weakref.WeakSet[Any](), 0, 0
        self.real = registry.classes()["torch"].prepare
        monkeypatch.setattr(registry.classes()["torch"], "prepare", lambda *given: self.prepare(*given))

    def prepare(self, *given: Any) -> Any:
        time.sleep(self.seconds[min(self.count, len(self.seconds) - 1)])
        self.count += 1
        made = self.real(*given)
        made.itself = made  # what refers to itself goes only when it is collected
        self.alive.add(made)
        self.most = max(self.most, len(self.alive))
        return made


def test_what_only_the_first_preparing_takes_is_compiling(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Preparing(monkeypatch, [0.5, 0.01])
    found = run(session, "fwd", "bwd")
    assert (kernel.count, kernel.most) == (2, 1)  # never two at a time: there may be no memory for both
    assert all(10 < fields["plan_ms"] < 200 and fields["compile_ms"] > 400 for fields in found.values())
    assert run(session, "fwd")["fwd"]["compile_ms"] < 200  # and later ones take it no more
    assert kernel.count == 3


def test_a_preparing_that_is_slow_every_time_is_repeated_once_and_never_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Preparing(monkeypatch, [0.3])
    assert run(session, "fwd")["fwd"]["plan_ms"] > 290
    assert run(session, "fwd")["fwd"]["plan_ms"] > 290
    assert kernel.count == 3
    assert run(session, "fwd", kernel="torch:chunked")["fwd"]["plan_ms"] > 290  # another way may be quicker
    assert kernel.count == 5


def test_a_new_compilation_is_found_even_where_planning_is_slow(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Preparing(monkeypatch, [0.25, 0.25, 0.8, 0.05])
    run(session, "fwd")  # 0.25 s each time
    found = run(session, "fwd")["fwd"]
    assert kernel.count == 4
    assert found["plan_ms"] < 200
    assert found["compile_ms"] > 600


def test_the_inputs_of_the_clock_are_not_there_while_the_kernel_is_checked(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()
    make, check = session.inputs, kernel_job._check
    monkeypatch.setattr(session, "inputs", lambda *given: order.append("inputs") or make(*given))
    monkeypatch.setattr(kernel_job, "_check", lambda *given: order.append("check") or check(*given))
    assert run(session, "fwd", "bwd")["bwd"]["status"] == "ok"
    assert order == ["check", "inputs"]


def test_the_first_call_has_the_deadline_of_building_and_shows_what_compiling_took(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases, forward = list[str](), torch_attention._Plain.forward
    monkeypatch.setattr(session, "phase", phases.append)
    during = list[str]()

    def compiling(*given: Any) -> Any:
        time.sleep(0 if during else 0.3)
        during.append(phases[-1])
        return forward(*given)

    monkeypatch.setattr(torch_attention._Plain, "forward", compiling)
    found = run(session, "fwd", "bwd")
    assert during[:2] == ["build", "check"]  # the two data sets
    assert set(during[2:]) == {"time"}
    assert found["fwd"]["compile_ms"] > 250 > found["bwd"]["compile_ms"]


def test_a_refusal_costs_no_cleaning_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came before anything ran; and a large suite holds a thousand of them."""
    collected = list[int]()
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    session.after_error(Refused("takes other masks"))
    assert not collected
    session.after_error(RuntimeError("it broke"))
    assert collected


def test_a_preparing_that_takes_minutes_is_not_repeated(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_job, "LONG_S", 0.25)
    kernel = Preparing(monkeypatch, [0.3])
    assert run(session, "fwd")["fwd"]["plan_ms"] > 290
    assert kernel.count == 1


@pytest.mark.parametrize("label", ["torch:plain", "sdpa:math"])
def test_gradients_are_returned_and_never_accumulated(label: str) -> None:
    mask = masks.causal(64)
    case = Case(64, 64, 4, 2, 16, 16, "fp32")
    kernel = registry.choose(label, mask, case)
    given = inputs.make(case, 0, kernel.layout)
    calls = kernel_job.Calls(kernel, kernel.prepare(mask, case), case, given)
    first, second, both = calls.backward(), calls.backward(), calls.both()
    for a, b, c in zip(first, second, both, strict=True):  # type: ignore[call-overload]
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert all(x.grad is None for x in (*calls._qkv, *given))


def test_without_a_backward_forward_is_measured_alone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.classes()["torch"], "backward", "none")
    found = run(session, "fwd", "bwd", kernel="torch:plain")
    assert found["bwd"]["status"] == "unsupported"
    assert "has no backward" in found["bwd"]["reason"]
    assert (found["fwd"]["status"], found["fwd"]["grad"]) == ("ok", False)
    assert set(found["fwd"]["check"]) == {"out", "lse"}


def test_a_wrong_backward_is_wrong_and_its_forward_is_measured(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from longca.kernels.backends import torch_attention

    right = torch_attention._Plain.backward
    monkeypatch.setattr(torch_attention._Plain, "backward", lambda *given: tuple(grad * 1.01 for grad in right(*given)))
    found = run(session, "fwd", "bwd", "fwd+bwd")
    assert [found[which]["status"] for which in ("fwd", "bwd", "fwd+bwd")] == ["ok", "wrong", "wrong"]
    assert "dq is off" in found["bwd"]["reason"]


def test_a_block_pattern_is_measured_like_any_mask(session: Session) -> None:
    found = run(session, "fwd", "bwd", mask="uniform_block", level="sparse", params=(("b", 16), ("ratio", 0.5)))
    assert [fields["status"] for fields in found.values()] == ["ok", "ok"]


def test_forward_only_asks_for_no_gradients(session: Session) -> None:
    found = run(session, "fwd", grad=False, kernel="sdpa:math")
    assert set(found["fwd"]["check"]) == {"out"}


def test_faster_than_the_device_is_invalid_and_has_no_time() -> None:
    mask = masks.full(8192)
    case = Case(8192, 8192, 64, 8, 128, 128, "bf16", "cuda")
    honest = Timing((3.5, 3.5, 3.5), False, 0.1, "target")
    impossible = replace(honest, samples=(1.1, 1.1, 1.1))  # 1,999 TFLOP/s, as somebody once published for one H200
    assert kernel_job.figures(honest, mask, case, "fwd", "NVIDIA H200")["status"] == "ok"
    found = kernel_job.figures(impossible, mask, case, "fwd", "NVIDIA H200")
    assert found["status"] == "invalid"
    assert "above the 989" in found["reason"]
    assert "ms" not in found
    assert kernel_job.figures(impossible, mask, case, "fwd", "an unknown device")["status"] == "ok"


def test_one_sample_is_noisy_and_has_no_spread() -> None:
    timing = Timing((3.5,), False, 0.1, "most")
    found = plain(kernel_job.figures(timing, masks.full(64), Case(64, 64, 4, 2, 16, 16), "fwd", "a CPU"))
    assert (found["ms"]["spread"], found["noisy"]) == (None, True)
    assert unsteady(found)


@pytest.mark.parametrize(
    ("label", "mask", "need"),
    [
        ("torch:plain", masks.causal(1024), "128 MiB for the scores of 64 heads"),
        ("sdpa:math", masks.causal(1024), "128 MiB for the scores of 64 heads"),
        ("sdpa:math", masks.prefix_lm_causal(1024, p=9), "128 MiB for the scores of 64 heads"),
        ("sdpa:cudnn", masks.prefix_lm_causal(1024, p=9), "2 MiB for a dense mask"),
        ("sdpa:efficient", masks.prefix_lm_causal(1024, p=9), "2 MiB for a dense mask"),
    ],
)
def test_quadratic_memory_stops_at_a_length_with_what_it_would_take(label: str, mask: masks.Mask, need: str) -> None:
    kernel, case = registry.get(label), Case(1024, 1024, 64, 8, 128, 128, device="cuda")
    with pytest.raises(TooLong) as refused:
        kernel_job.refuse_quadratic(kernel, mask, case, 512)
    assert str(refused.value) == f"O(S²) memory, {need} at 1024 tokens: left out by rule beyond 512 tokens; --full runs it"
    kernel_job.refuse_quadratic(kernel, mask, case, 1024)
    kernel_job.refuse_quadratic(kernel, mask, case, None)


def test_what_needs_no_memory_for_every_pair_has_no_limit() -> None:
    mask, case = masks.causal(1024), Case(1024, 1024, 64, 8, 128, 128, device="cuda")
    for label in ("torch:chunked", "sdpa:cudnn", "sdpa:flash"):
        kernel_job.refuse_quadratic(registry.get(label), mask, case, 512)


@pytest.mark.parametrize("status", ["unsupported", "oom", "wrong", "error", "timeout", "invalid", "unavailable"])
def test_a_time_exists_only_where_the_status_is_ok(status: str) -> None:
    planned = Planned(CELL, "key", describe_mask(CELL.build_mask()))
    measured = dict.fromkeys(record.MEASURED, 1.0) | {"reason": ""}
    made = record.make(planned, {"status": status, **measured}, "env")
    assert all(made[field] is None for field in record.MEASURED)
    assert all(record.make(planned, {"status": "ok", **measured}, "env")[field] == 1.0 for field in record.MEASURED)


def test_another_mask_than_planned_is_an_error() -> None:
    made = record.make(
        Planned(CELL, "key", describe_mask(CELL.build_mask())), {"status": "ok", "reason": "", "mask_digest": "other"}, "env"
    )
    assert made["status"] == "error"
    assert "another mask" in made["reason"]


def test_a_reference_is_computed_once_and_travels_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = masks.causal_document(256, seed=3)
    case, made = Case(256, 256, 4, 2, 16, 16, "bf16"), list[Any]()
    monkeypatch.setattr(references, "reference", lambda *given: made.append(given) or reference(*given))
    first, second = references.References(), references.References()
    computed = first.get(mask, case, 0, tmp_path)
    assert first.get(mask, case, 0, tmp_path) is computed
    read = second.get(mask, case, 0, tmp_path)
    assert len(made) == 1
    assert (read.probe.rows == computed.probe.rows).all()
    assert (read.probe.loud_keys == computed.probe.loud_keys).all()
    for kind in references.KINDS:
        for which, values in getattr(computed, kind).items():
            assert all(torch.equal(getattr(read, kind)[which][name], tensor) for name, tensor in values.items())
    for other in (replace(case, dtype="fp16"), replace(case, heads_kv=4)):
        second.get(mask, other, 0, tmp_path)
    second.get(mask, case, 1, tmp_path)
    assert len(made) == 4


def test_a_large_reference_stays_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "MOST_BYTES", 1000)
    references.References().get(masks.causal(64), Case(64, 64, 2, 1, 8, 8, "fp32"), 0, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_longca_offers_no_pickle() -> None:
    source = Path(longca.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text, path
        assert "torch.load" not in text, path
        assert "allow_pickle=True" not in text, path


class FakeCuda:
    """Counts bytes as torch does: what is held now, and the most since the last reset."""

    def __init__(self) -> None:
        self.held = self.most = 0
        self.running_s = 0.0  # of what was enqueued

    def take(self, size: int) -> None:
        self.held += size
        self.most = max(self.most, self.held)

    def memory_allocated(self) -> int:
        return self.held

    def max_memory_allocated(self) -> int:
        return self.most

    def reset_peak_memory_stats(self) -> None:
        self.most = self.held

    def synchronize(self) -> None:
        time.sleep(self.running_s)
        self.running_s = 0.0

    def empty_cache(self) -> None:
        pass


def test_peak_memory_is_the_call_s_own_whatever_was_there_before(session: Session) -> None:
    cuda = FakeCuda()
    session.start_device("cpu")
    session._cuda, session.settings = cuda, Settings(warmup_s=0.0, least=2, most=2)
    cuda.take(240 << 20)  # the flush buffer
    cuda.take(7000)  # inputs
    cuda.take(9999)
    cuda.take(-9999)  # an earlier, higher peak

    def call() -> None:
        cuda.take(500)
        cuda.take(-400)

    peak_bytes, timing = session.time(call)
    assert peak_bytes == 500
    assert session.allocated() == (240 << 20) + 7000 + 100 * (1 + len(timing.samples))


@pytest.mark.parametrize(("device_s", "warming"), [(0.03, 0), (0.0, 1)])
def test_the_call_that_shows_the_memory_warms_up_as_far_as_it_loads_the_device(session: Session, device_s: float, warming: int) -> None:
    """A host that compiles in it lets the device rest."""
    session.start_device("cpu")
    cuda, calls = FakeCuda(), list[None]()
    session._cuda, session.settings = cuda, Settings(warmup_s=0.02, least=3, most=3)

    def call() -> None:
        calls.append(time.sleep(0.03))
        cuda.running_s = device_s

    session.time(call)
    assert len(calls) == 1 + warming + 3


def test_after_a_lost_device_the_forward_is_left_to_another_process(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(kernel_job, "_check", lose)
    monkeypatch.setattr(session, "after_error", lambda error: setattr(session, "fatal", True))
    assert {which: fields["status"] for which, fields in run(session, "fwd", "bwd").items()} == {"bwd": "error"}


def test_what_was_left_out_for_its_length_says_so_in_its_record() -> None:
    planned = Planned(CELL, "key", describe_mask(CELL.build_mask()))
    for error, limited in ((TooLong("O(S²)"), True), (Refused("O(S²)"), False)):
        made = record.make(planned, fields_of(error), "env")
        assert (made["status"], made["limited"]) == ("unsupported", limited)


def test_compilers_forget_before_they_have_made_too_many_graphs(session: Session) -> None:
    """Whatever they are made for: shapes, kinds of masks, shapes of patterns."""
    import torch._dynamo

    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=MOST_COMPILATIONS, fail_on_recompile_limit_hit=True):
        for job in range(2 * MOST_COMPILATIONS // 3):
            session.compilations.limit()
            for size in range(3):
                compiled(torch.ones(3 * job + size + 2))
    torch._dynamo.reset()


def test_what_is_compiled_stays_while_there_is_room(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    resets, stats = list[int](), {"unique_graphs": 1000}  # made before this session
    fake = SimpleNamespace(reset=lambda: resets.append(stats["unique_graphs"]), utils=SimpleNamespace(counters={"stats": stats}))
    session.compilations.limit()  # nothing was ever compiled
    monkeypatch.setitem(sys.modules, "torch._dynamo", fake)
    for _ in range(40):
        session.compilations.limit()
        stats["unique_graphs"] += 5
    assert resets == [1000 + 35 * n for n in range(6)]  # 7 jobs of 5 graphs are more than 32
