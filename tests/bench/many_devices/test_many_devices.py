"""Context parallel cells through the runner: real ranks, one journal, and ranks that do their worst."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.many_devices.conftest import QUICK, SMALL, records_of
from longca import devices, masks
from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.ranks import Ranks
from longca.bench.many_devices.refusals import least_bytes, recorded, refusal_of
from longca.bench.plan import suite as suites
from longca.bench.plan.cells import plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.run.retry import outcomes
from longca.cli import main
from longca.kernels.base import Case
from longca.parallel import registry
from longca.processes.ranks import RankFailed
from longca.results.problem import Pass
from longca.results.record import Status


@pytest.mark.slow
def test_methods_are_checked_timed_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--methods", "usp,magi", *QUICK, "--nproc", "4", "--grid", "2x2", "--out", str(tmp_path)]
    assert main(asked) == 0
    found = records_of(tmp_path)
    assert set(found) == {(method, which) for method in ("usp", "magi") for which in ("fwd", "bwd")}
    for (method, which), record in found.items():
        assert record.status == "ok", record.reason
        assert (record.level, record.problem.ranks, record.split.grid) == ("cp", 4, "2x2" if method == "usp" else "1x4")
        assert set(record.check) == {"out", "lse", "dq", "dk", "dv"}
        over = record.over_ranks
        assert len(over.bytes_sent) == 4
        assert sum(over.bytes_sent) > 0
        assert over.imbalance >= 1
        assert 0 < over.mean_ms <= record.times.p80
        assert over.imbalance_ms >= 1
        assert 0 <= over.wait_share <= 1
        assert record.speed == pytest.approx(record.flops / 4 / record.times.median / 1e9, rel=1e-4), which
    capsys.readouterr()
    before = (tmp_path / "results.jsonl").read_bytes()
    assert main(asked) == 0
    assert "4 of 4 cells are done" in capsys.readouterr().err
    assert (tmp_path / "results.jsonl").read_bytes() == before


@pytest.mark.slow
def test_block_patterns_are_checked_and_timed_on_real_ranks(tmp_path: Path) -> None:
    shape = ["--masks", "uniform_block", "--seqlens", "461", "--heads", "8:4", "--head-dim", "32", "--dtype", "fp32", "--device", "cpu"]
    asked = ["run", "--level", "cp", "--methods", "ulysses,ring_allgather", *shape, "--budget", "0.02", "--nproc", "4"]
    assert main([*asked, "--out", str(tmp_path)]) == 0
    found = records_of(tmp_path)
    mask = masks.uniform_block(461, heads=4)
    assert set(found) == {(method, which) for method in ("ulysses", "ring_allgather") for which in ("fwd", "bwd")}
    for record in found.values():
        assert (record.level, record.status) == ("cp", "ok"), record.reason
        assert set(record.check) == {"out", "lse", "dq", "dk", "dv"}
        assert (record.built.digest, record.built.area) == (mask.digest, mask.area)
        assert record.flops == 4 * mask.area * 2 * 32 * (1 if record.problem.pass_ is Pass.FWD else 2.5)
        assert 1 <= record.over_ranks.imbalance < 1.5
    own = [64 + 13, 128, 128, 128]  # eight blocks for four ranks, the last of 13 tokens
    assert found["ring_allgather", "fwd"].over_ranks.bytes_sent == [3 * length * 2 * 4 * 32 * 4 for length in own]


@pytest.mark.slow
def test_a_rank_that_dies_or_hangs_or_is_wrong_has_its_own_status_and_the_next_cell_runs(tmp_path: Path, plugins: Path) -> None:
    methods = "dies,forgets,hangs,plain_ring"
    asked = ["--plugin", str(plugins / "fragile_methods.py"), "--methods", methods, *QUICK, "--passes", "fwd", "--nproc", "2"]
    command = [sys.executable, "-m", "longca", "run", *asked, "--deadline", "8", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = {method: record for (method, _), record in records_of(tmp_path).items()}
    assert {method: record.status for method, record in found.items()} == {
        "dies": "error",
        "forgets": "wrong",
        "hangs": "timeout",
        "plain_ring": "ok",
    }
    assert "rank 1 ended with exit code 9 during preparation or the first call" in found["dies"].reason
    assert "the disk is full" in found["dies"].reason
    assert "out is off" in found["forgets"].reason
    assert "rank 1 did not answer within 8 s" in found["hangs"].reason
    assert "waiting for Godot" in found["hangs"].reason
    assert all(record.timed is None and record.over_ranks is None for method, record in found.items() if method != "plain_ring")


class BrokenGroup:
    """Ranks that die as soon as a backward is asked for; a forward alone gets another answer."""

    lost = False

    def run(self, job: str, args: dict[str, Any], deadline: float) -> list[Any]:
        if args["args"]["backward"]:
            raise RankFailed(0, "died", "ended with exit code 9", "")
        raise RankFailed(0, "error", "failed: forward alone", "")

    def close(self) -> None: ...


def ranks_and_jobs(suite: suites.Suite, tmp_path: Path, device: str = "cpu", admit: bool = False) -> tuple[Ranks, list[Job]]:
    level = ManyDevices(suite, device)
    planned = plan(level.cells([]), "a device", level.catalogue.versions)
    if admit:
        level.admit(planned, dry=False)
    return level.executor("a device", tmp_path, full=False), make_jobs(planned)


def test_where_a_backward_breaks_the_ranks_the_forward_is_tried_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "_begin", lambda *_: BrokenGroup())
    ranks, jobs = ranks_and_jobs(SMALL.changed(methods=("ring_p2p",), seqlens=(64, 65, 66, 67), passes=(Pass.FWD, Pass.BWD)), tmp_path)
    reasons = [{pass_: outcome.reason for pass_, outcome in outcomes(job, ranks)} for job in jobs]
    assert all("forward alone" in reason[Pass.FWD] for reason in reasons)
    assert ["exit code 9" in reason[Pass.BWD] for reason in reasons] == [True] * 4
    assert ["not tried" in reason[Pass.BWD] for reason in reasons] == [False, False, False, True]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (["--methods", "ulysses", *QUICK, "--nproc", "8"], "use usp with grid 4x2"),
        (
            ["--methods", "ring_p2p", "--kernels", "flex", "--passes", "fwd", *QUICK],
            "ring_p2p cannot use the kernel flex: flex gives no lse",
        ),
        (["--methods", "usp", *QUICK, "--masks", "uniform_block"], "usp cannot do this: it attends to the keys of one rank at a time"),
        (["paper-cp", "--device", "cpu", "--masks", "causal", "--nproc", "4"], "the suite quick-cp, or a longer --deadline"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    asked: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *asked, "--out", str(tmp_path / "out")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def four_small_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {"name": "NVIDIA H200", "compute_cap": "9.0", "memory.total": "1024", "driver_version": "1"}
    monkeypatch.setattr(devices, "gpus", lambda: [gpu] * 4)


@pytest.mark.usefixtures("four_small_gpus")
def test_what_does_not_fit_into_the_gpus_is_refused_from_the_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "paper-cp", "--masks", "full", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith(
        "longca: ulysses on full with 32768 tokens and 64:8 heads over 4 ranks needs at least 1.4 GiB on a GPU, and these have 1.0 GiB; "
        "use shorter --seqlens or GPUs with more memory.\n"
    )
    assert not (tmp_path / "out").exists()
    assert main(["run", "paper-cp", "--masks", "full", "--seqlens", "1K", "--dry-run"]) == 0  # ranks have room for an eighth of it


def test_a_kernel_that_refuses_the_masks_of_ranks_costs_its_cell_and_no_rank_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fa2 takes causal, but not what is left of it for the gathered keys of one rank."""
    monkeypatch.setattr(Ranks, "_begin", lambda *_: pytest.fail("ranks were started"))
    suite = SMALL.changed(methods=("ring_allgather",), kernels=("fa2",), nproc=4, seqlens=("1K",), heads=("8:2",), head_dims=("128",))
    monkeypatch.setattr(devices, "gpus", lambda: [{"memory.total": "100000"}] * 4)
    ranks, (job,) = ranks_and_jobs(suite, tmp_path, "cuda")
    ((_, outcome),) = outcomes(job, ranks)
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.reason.startswith("ring_allgather cannot use the kernel fa2 for a part of the mask")
    assert refusal_of(job.cell.job, dry=True) is None  # the plan alone does not show it


def test_the_estimate_counts_inputs_and_what_the_program_or_the_check_holds() -> None:
    def least(method: str, seqlen: int, heads: tuple[int, int], ranks: int) -> int:
        case = Case(seqlen, seqlen, *heads, 16, 16, "fp32", "cuda")
        plan = registry.plan(method, masks.full(seqlen), case, ranks)
        return least_bytes(plan, recorded(plan))

    token = 4 * 16 * (2 * 8 + 2 * 2)  # q, dout, k and v of 8:2 heads in fp32
    assert least("ring_p2p", 960, (8, 2), 16) == token * (960 + 60)  # all tokens for the check, a sixteenth of them for the rank
    each, lse = 4 * 16 * 8 * 960, 4 * 8 * 960  # q, k, v, dout, out or a gradient of 8:8 heads
    assert least("ring_allgather", 960, (8, 8), 1) == 4 * each + each + lse + 3 * each  # inputs, out and lse, and the gradients
    assert least("ring_allgather", 960, (8, 8), 2) >= 2 * each + 2 * each + each // 2 + each // 2 + 2 * each  # k and v are gathered
