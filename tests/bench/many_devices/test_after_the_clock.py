"""Methods, and kernels under methods, that are right when they are checked and wrong when they are timed."""

import re
from pathlib import Path
from typing import Any

import pytest

from bench.many_devices.conftest import SMALL
from longca.bench.check.timed_calls import LAST_WRONG, OTHER_WRONG
from longca.bench.many_devices import rank_job
from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.ranks import Ranks
from longca.bench.plan.cells import plan
from longca.bench.plan.jobs import make_jobs
from longca.kernels import registry as kernels
from longca.parallel import registry as methods
from longca.parallel.comm.local import World
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
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
        shape = {"seqlens": ("300",), "heads": ("4:2",), "dtypes": ("fp32",), "passes": passes, "clock": CLOCK} | changes
        suite = SMALL.changed(kernels=(kernel,), methods=(method,), nproc=ranks, **shape)
        level = ManyDevices(suite, "cpu")
        (job,) = make_jobs(plan(level.cells([]), "a CPU", level.catalogue.versions))
        return dict(level.executor("a CPU", tmp_path, full=False).attempt(job))

    return outcomes


def reason(outcomes: dict[Pass, Outcome], pass_: Pass) -> str:
    assert outcomes[pass_].status is Status.WRONG, outcomes
    assert outcomes[pass_].timed is None
    return outcomes[pass_].reason


MODEL = {"softcap": 20.0, "sinks": True, "heads": ("4:4",)}  # as many KV heads: the backward of burst moves queries


@pytest.mark.parametrize(
    ("method", "dtype", "settings"),
    [
        ("usp", "bf16", {"grid": "2x2"}),
        ("magi", "bf16", {}),
        ("burst", "fp16", MODEL | {"grid": "1x4x2"}),
        ("halo", "fp32", MODEL | {"masks": ("sliding_window_causal",), "params": {"sliding_window_causal": {"w": 20}}}),
        pytest.param("ulysses", "bf16", {}, marks=pytest.mark.slow),
        pytest.param("ring_allgather", "fp16", {}, marks=pytest.mark.slow),
        pytest.param("loongtrain", "fp16", {"grid": "2x2"}, marks=pytest.mark.slow),
        pytest.param("mesh", "bf16", MODEL | {"grid": "2x2"}, marks=pytest.mark.slow),
        pytest.param("hybrid_dcp", "bf16", MODEL | {"masks": ("causal_document",)}, marks=pytest.mark.slow),
    ],
)
def test_own_methods_pass_in_every_pass(method: str, dtype: str, settings: dict[str, Any], measure: Any) -> None:
    found = measure(method, ranks=4, dtypes=(dtype,), clock=SHORT, seqlens=("150",), **settings)
    assert {pass_: outcome.status for pass_, outcome in found.items()} == dict.fromkeys(PASSES, Status.OK), found
    assert not any(outcome.timed.nondeterministic for outcome in found.values())
    assert ("dsinks" in found[Pass.BWD].check) == ("sinks" in settings)


def stale(tensor: str) -> str:
    """The reason for a result kept from another call, as a regular expression: the numbers of timed calls are drawn, so the last call may
    be right by chance, and differs from others then."""
    return f"rank 0: ({LAST_WRONG}: {tensor} is off by|its timed calls disagree: {tensor} of tokens)"


@pytest.mark.parametrize(
    ("method", "kernel", "ranks", "pass_", "words"),
    [
        ("caches_by_pointer", "torch:plain", 2, Pass.FWD, stale("out")),
        ("caches_by_pointer", "torch:plain", 2, Pass.BOTH, stale("dq")),
        ("caches_gradients", "torch:plain", 2, Pass.BWD, stale("dq")),
        ("right_at_first", "torch:plain", 2, Pass.FWD, f"rank 1: {LAST_WRONG}: out is off by"),
        (
            "wrong_now_and_then",
            "torch:plain",
            2,
            Pass.FWD,
            "rank 1: its timed calls disagree: out of tokens 150 to 277, head 0 differs in call",
        ),
        # one rank's ring passes its own tensors on; ulysses copies them into new buffers, where such a kernel may never find its results
        ("ring_p2p", "caches_by_pointer", 1, Pass.FWD, stale("out")),
        ("ring_p2p", "caches_gradients_by_pointer", 1, Pass.BWD, stale("dq")),
        ("ulysses", "caches_by_q_and_k", 1, Pass.FWD, f"rank 0: {LAST_WRONG}"),
        ("ulysses", "wrong_now_and_then", 1, Pass.FWD, "rank 0: its timed calls disagree"),
    ],
)
def test_what_is_right_only_in_the_check_is_wrong_on_all_ranks(
    method: str, kernel: str, ranks: int, pass_: Pass, words: str, measure: Any
) -> None:
    methods.load_plugin(WRONG_METHODS)
    kernels.load_plugin(WRONG_KERNELS)
    assert re.match(words, reason(measure(method, kernel, ranks), pass_))


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


@pytest.mark.parametrize("method", ["fails_without_transfers", "fails_later_without_transfers"])
def test_where_one_rank_fails_without_transfers_all_keep_what_they_timed(method: str, measure: Any) -> None:
    methods.load_plugin(WRONG_METHODS)
    found = measure(method, ranks=3, passes=(Pass.FWD,), clock=SHORT)[Pass.FWD]
    assert (found.status, len(found.timed.samples), found.over_ranks.wait_share) == (Status.OK, 5, None)
