"""Methods, and kernels under methods, that are right when they are checked and wrong when they are timed."""

import re
from pathlib import Path
from typing import Any

import pytest

from longca.bench.check.timed_calls import LAST_WRONG, OTHER_WRONG
from longca.bench.many_devices import rank_job
from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.ranks import Ranks
from longca.bench.plan.cells import plan
from longca.bench.plan.jobs import make_jobs
from longca.bench.plan.suite import Suite
from longca.cli import main
from longca.kernels import registry as kernels
from longca.parallel import registry as methods
from longca.parallel.comm.local import World
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import LevelName, Outcome, Status
from longca.results.settings import ClockSettings

WRONG_METHODS = Path(__file__).parent / "wrong" / "methods.py"
WRONG_KERNELS = Path(__file__).parents[1] / "check" / "wrong" / "keeps_state.py"
CLOCK = ClockSettings(warmup_s=0, budget_s=60, least=24, most=24)  # so many that no race falls into the last one
SHORT = ClockSettings(warmup_s=0, budget_s=60, least=5, most=5)
PASSES = (Pass.FWD, Pass.BWD, Pass.BOTH)


class Threads:
    """Ranks as threads of this process."""

    lost = False

    def __init__(self, ranks: int) -> None:
        self.world = World(ranks)
        self.comms = self.world.comms()

    def run(self, job: str, args: dict[str, Any], deadline: float) -> list[Any]:
        return self.world.run(lambda rank: rank_job.step(self.comms[rank], **args))

    def close(self) -> None: ...


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function: the outcomes of a method with a kernel by pass."""
    monkeypatch.setattr(Ranks, "_begin", lambda self, ranks: Threads(ranks))

    def outcomes(method: str, kernel: str = "torch:plain", ranks: int = 2, passes: tuple[Pass, ...] = PASSES, **changes: Any) -> Any:
        suite = Suite(
            level=LevelName.CP,
            kernels=(kernel,),
            methods=(method,),
            nproc=ranks,
            masks=("causal",),
            seqlens=("300",),
            heads=("4:2",),
            head_dims=("16",),
            dtypes=("fp32",),
            passes=passes,
            clock=CLOCK,
        ).changed(**changes)
        level = ManyDevices(suite, "cpu")
        (job,) = make_jobs(plan(level.cells([]), "a CPU", level.catalogue.versions))
        return dict(level.executor("a CPU", tmp_path, full=False).attempt(job))

    return outcomes


def reason(outcomes: dict[Pass, Outcome], pass_: Pass) -> str:
    assert outcomes[pass_].status is Status.WRONG, outcomes
    assert outcomes[pass_].timed is None
    return outcomes[pass_].reason


@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        ("usp", "bf16"),
        ("magi", "bf16"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("ulysses", "bf16"), ("ring_allgather", "fp16"), ("loongtrain", "fp16"))),
    ],
)
def test_own_methods_pass_in_every_pass(method: str, dtype: str, measure: Any) -> None:
    found = measure(method, ranks=4, dtypes=(dtype,), clock=SHORT, seqlens=("150",), grid="2x2" if method in ("usp", "loongtrain") else "")
    assert {pass_: (outcome.status, outcome.timed.nondeterministic) for pass_, outcome in found.items()} == dict.fromkeys(
        PASSES, (Status.OK, False)
    )


@pytest.mark.parametrize(
    ("method", "grid", "dtype"),
    [
        ("burst", "1x4x2", "fp16"),
        ("halo", "", "fp32"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("mesh", "2x2", "bf16"), ("hybrid_dcp", "", "bf16"))),
    ],
)
def test_and_with_softcap_and_sinks(method: str, grid: str, dtype: str, measure: Any) -> None:
    """Equal heads: the backward of burst moves queries."""
    model = {"softcap": 20.0, "sinks": True, "heads": ("4:4",), "dtypes": (dtype,)}
    masks = ("sliding_window_causal",) if method == "halo" else ("causal_document",)
    found = measure(
        method, ranks=4, clock=SHORT, seqlens=("150",), grid=grid, masks=masks, params={"sliding_window_causal": {"w": 20}}, **model
    )
    assert {pass_: (outcome.status, outcome.timed.nondeterministic) for pass_, outcome in found.items()} == dict.fromkeys(
        PASSES, (Status.OK, False)
    ), found
    assert "dsinks" in found[Pass.BWD].check


def stale(tensor: str) -> str:
    """The reason for a result kept from another call, as a regular expression: the numbers of timed calls are drawn, so the last call may
    be right by chance, and differs from others then."""
    return f"rank 0: ({LAST_WRONG}: {tensor} is off by|its timed calls disagree: {tensor} of tokens)"


@pytest.mark.parametrize(
    ("method", "pass_", "words"),
    [
        ("caches_by_pointer", Pass.FWD, stale("out")),
        ("caches_by_pointer", Pass.BOTH, stale("dq")),
        ("caches_gradients", Pass.BWD, stale("dq")),
        ("right_at_first", Pass.FWD, f"rank 1: {LAST_WRONG}: out is off by"),
        ("wrong_now_and_then", Pass.FWD, "rank 1: its timed calls disagree: out of tokens 150 to 277, head 0 differs in call"),
    ],
)
def test_a_method_that_is_right_only_in_the_check_is_wrong_on_all_ranks(method: str, pass_: Pass, words: str, measure: Any) -> None:
    methods.load_plugin(WRONG_METHODS)
    assert re.match(words, reason(measure(method), pass_))


def test_a_method_that_reuses_its_output_is_wrong_before_it_is_timed(measure: Any) -> None:
    methods.load_plugin(WRONG_METHODS)
    assert "a later call writes to the memory of out" in reason(measure("reuses_out"), Pass.FWD)


def test_bits_that_differ_on_one_rank_are_told_in_the_record(measure: Any) -> None:
    methods.load_plugin(WRONG_METHODS)
    found = measure("nondeterministic")[Pass.FWD]
    assert (found.status, found.timed.nondeterministic) == (Status.OK, True)


@pytest.mark.parametrize(
    ("kernel", "method", "pass_", "words"),
    [
        # one rank's ring passes its own tensors on; ulysses copies them into new buffers, where such a kernel may never find its results
        ("caches_by_pointer", "ring_p2p", Pass.FWD, stale("out")),
        ("caches_gradients_by_pointer", "ring_p2p", Pass.BWD, stale("dq")),
        ("caches_by_q_and_k", "ulysses", Pass.FWD, LAST_WRONG),
        ("wrong_now_and_then", "ulysses", Pass.FWD, "its timed calls disagree"),
    ],
)
def test_a_kernel_under_a_method_that_is_right_only_in_the_check_is_wrong(
    kernel: str, method: str, pass_: Pass, words: str, measure: Any
) -> None:
    kernels.load_plugin(WRONG_KERNELS)
    assert re.search(words, reason(measure(method, kernel, ranks=1), pass_))


def test_a_wrong_forward_costs_no_figure_of_the_backward(measure: Any) -> None:
    methods.load_plugin(WRONG_METHODS)
    found = measure("right_at_first", passes=(Pass.BWD, Pass.FWD))
    assert found[Pass.FWD].status is Status.WRONG
    assert OTHER_WRONG not in found[Pass.BWD].reason
    assert found[Pass.BWD].status is Status.OK


@pytest.mark.slow
def test_ranks_in_processes_agree_on_the_verdict_too(tmp_path: Path) -> None:
    shape = ["--masks", "causal", "--seqlens", "300", "--heads", "4:2", "--head-dim", "16", "--dtype", "fp32", "--device", "cpu"]
    asked = ["run", "--plugin", str(WRONG_METHODS), "--methods", "right_at_first,honest_ring", *shape, "--passes", "fwd", "--nproc", "2"]
    assert main([*asked, "--budget", "0.1", "--out", str(tmp_path)]) == 0
    found = {record.method: record for record in read(tmp_path).records}
    assert (found["right_at_first"].status, found["honest_ring"].status) == (Status.WRONG, Status.OK)
    assert found["right_at_first"].reason.startswith(f"rank 1: {LAST_WRONG}")
    assert found["honest_ring"].timed.nondeterministic is False
