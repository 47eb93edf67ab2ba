"""Every kernel of the folder wrong/ is found wrong, and every kernel of right/ and of LongCA is not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from in_process import outcomes_of
from longca import masks
from longca.bench.check import check
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.bench.check.trial_names import TrialName, trials_on
from longca.bench.check.trials import Asked, run_trial
from longca.bench.check.verdict import KEPT, UNSTEADY, Verdict
from longca.bench.one_device import job as one_job
from longca.bench.one_device.messages import WorkerJob
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Case
from longca.masks import Mask
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from longca.results.settings import ClockSettings
from made_cells import make_cell

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
QUICK = ClockSettings(warmup_s=0, budget_s=60, least=25, most=25)


class Found(NamedTuple):
    """How a wrong kernel is found, and how the sentence about it begins (in one of several ways, where timing decides)."""

    words: str | tuple[str, ...]
    by: str  # check, repeat, run, or the name of a trial
    dtype: str = "fp32"
    tokens: int = 200
    mask: str = "causal"


WRONG = {
    "caches_by_pointer": Found("right at first, but wrong in the last timed call: out is off by", "run"),
    "caches_gradients_by_pointer": Found("right at first, but wrong in the last timed call: dq is off by", "run"),
    "caches_by_q_and_k": Found("right at first, but wrong in the last timed call: out is off by", "run"),
    "right_at_first": Found("right at first, but wrong in the last timed call: out is off by", "run"),
    "caches_scores": Found("right at first, but wrong once its inputs hold other numbers in the same memory: out is off by", "run"),
    "only_sampled_rows": Found("right in the rows that the check samples, but wrong in others: out is off by", "run", tokens=1021),
    "only_sparse_dk": Found("right at first, but wrong in the last timed call: dk is wrong: the sum of dk · k", "run", "bf16", 1021),
    "only_sparse_dv": Found("right at first, but wrong in the last timed call: dv is wrong: the sum of dv", "run", "bf16", 1021),
    "lazy_when_timed": Found("right at first, but wrong in the last timed call: out is a value of the type Promise", "run"),
    "no_lse_when_timed": Found("right at first, but wrong in the last timed call: it returns no lse", "run"),
    "reuses_out": Found("a later call writes to the memory of out", "check"),
    "reuses_gradients": Found("a later call writes to the memory of dk", "check"),
    "late_on_a_thread": Found("", "check"),  # what it says depends on when the thread writes
    "no_maximum": Found("only on data with loud edges and large numbers: out holds infinity", "check"),
    "wrong_large_scores_backward": Found("only on data with loud edges and large numbers: dq is off by", "check"),
    "scales_without_gradients": Found("out is off by", TrialName.NO_GRAD),
    "keeps_out_without_gradients": Found(f"it returns the out {KEPT}: out is off by", TrialName.NO_GRAD),
    "ignores_scale": Found("out is off by", TrialName.SCALE),
    "ignores_scale_backward": Found("dq is off by", TrialName.SCALE),
    "nan_in_blind_rows": Found("out holds NaN at token 100, head 0", TrialName.BLIND_ROWS),
    "recomputes_lse": Found("dq is off by", TrialName.RING),
    "adds_in_bf16": Found("out is off by", "check", "bf16", 2048, "full"),
    "adds_gradients_in_bf16": Found("dk is off by", "check", "bf16", 2048),
    "small_last_keys": Found("dk is off by", "check", "bf16", 1024),
    "wrong_now_and_then": Found(f"{UNSTEADY}, wrong in 2 of 40 calls, first in call 10: out is off by", "repeat"),
    "returns_a_subclass": Found("out is a value of the type Equal, not a plain torch.Tensor", "check"),
    "backward_destroys_out": Found("its backward changes out", "check"),
    "clamps_v": Found("only on data with loud edges and large numbers: out is off by", "check"),
    "wrong_row_of_tiles": Found("out is off by", "check", tokens=1021),
    "wrong_second_backward": Found("dq is off by", TrialName.LATER),
    "writes_past_out": Found("it writes behind the end of a tensor that it allocates ([256, 2, 32] float32): 8 bytes", TrialName.GUARDED),
}
ON_A_GPU = {
    "late_on_a_stream": Found(("out holds ", "its forward returns before its work is done: later work changes out"), "check"),
    "default_stream": Found("out holds NaN", TrialName.STREAM),
}
# found even earlier where memory of other inputs is used again, and by calls that disagree where the last one was given other memory
BY_POINTER = ("caches_by_pointer", "caches_gradients_by_pointer")
RIGHT = ("torch:plain", "torch:chunked", "sdpa:flash", "sdpa:math", "online_softmax", "needs_contiguous", "my_kernel", "my_kernel_class")


def load(name: str) -> None:
    if name in WRONG or name in ON_A_GPU:
        load_wrong()
    for folder in (HERE / "right", EXAMPLES):
        if (folder / f"{name}.py").exists():
            assert registry.load_plugin(folder / f"{name}.py") == [name]


def load_wrong() -> list[str]:
    files = [file for file in (HERE / "wrong").glob("*.py") if file.stem != "honest"]
    return [name for file in files for name in registry.load_plugin(file)]


def case_of(found: Found, device: str = "cpu") -> Case:
    return Case(found.tokens, found.tokens, 2, 1, 32, 32, found.dtype, device)


def by_check(name: str, found: Found, device: str = "cpu", repeats: int = 1) -> str:
    mask, case, kernel = masks.build(found.mask, found.tokens), case_of(found, device), registry.get(name)
    return check_kernel(kernel, registry.prepare(kernel, mask, case).attention, case, reference(mask, case), repeats=repeats).reason


def by_trial(name: str, found: Found, device: str = "cpu") -> str:
    assert by_check(name, found, device) == ""  # on a mask it is right
    return run_trial(TrialName(found.by), Asked(name, case_of(found, device), masks.causal(found.tokens), 0)).verdict.reason


def by_run(name: str, found: Found) -> str:
    outcomes = timed(name, masks.causal(found.tokens), (Pass.FWD, Pass.BWD), found.dtype)
    wrong = [outcome for outcome in outcomes.values() if outcome.status is Status.WRONG]
    assert all(outcome.timed is None for outcome in wrong)
    return wrong[0].reason if wrong else ""


def timed(name: str, mask: Mask, passes: tuple[Pass, ...], dtype: str, grad: bool = True, trial: bool = False) -> dict[Pass, Outcome]:
    """The outcomes of a job with a causal mask; without `grad`, of a forward alone; with the `trial` before the first time."""
    cells = [make_cell(name, mask="causal", seqlen=mask.seqlen_q, dtype=dtype, pass_=pass_, grad=grad) for pass_ in passes]
    with pytest.MonkeyPatch.context() as patch:
        if not trial:
            patch.setattr(one_job, "_refuse_wrong_in_trial", lambda *given: None)
        return outcomes_of(WorkerJob(cells=cells, digest=mask.digest, clock=QUICK))


def reason_of(name: str, found: Found) -> str:
    ways: dict[str, Callable[[], str]] = {
        "check": lambda: by_check(name, found),
        "repeat": lambda: by_check(name, found, repeats=20),
        "run": lambda: by_run(name, found),
    }
    return ways.get(found.by, lambda: by_trial(name, found))()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if WRONG[name].by != "repeat":
        monkeypatch.setattr(check, "AGAIN", 0)  # its first calls are wrong, and later ones take as long
    load(name)
    reason = reason_of(name, WRONG[name])
    assert reason
    assert reason.startswith(WRONG[name].words) or (name in BY_POINTER and ("off by" in reason or "timed calls disagree" in reason))


@pytest.mark.parametrize("name", ["caches_by_pointer", "caches_gradients_by_pointer", "caches_by_q_and_k", "right_at_first"])
def test_verify_finds_what_later_calls_in_the_same_memory_show(name: str) -> None:
    load(name)
    assert "off by" in by_trial(name, WRONG[name]._replace(by=TrialName.LATER))


def test_a_run_makes_this_trial_before_the_first_time() -> None:
    load("right_at_first")
    outcomes = timed("right_at_first", masks.causal(200), (Pass.FWD, Pass.BWD), "fp32", trial=True)
    assert {outcome.status for outcome in outcomes.values()} == {Status.WRONG}
    assert outcomes[Pass.FWD].reason.startswith("in a trial of 256 tokens: ")


def test_a_race_shows_in_the_timed_calls_too() -> None:
    load("wrong_now_and_then")
    assert by_run("wrong_now_and_then", WRONG["wrong_now_and_then"]).startswith("its timed calls disagree: out of tokens ")


@pytest.mark.parametrize("name", [name for name, found in WRONG.items() if found.by is TrialName.NO_GRAD])
def test_a_forward_alone_is_checked_without_gradients(name: str) -> None:
    """As `longca run --passes fwd` has it; beside a backward, the forward records gradients, where these kernels are right."""
    load(name)
    found, mask = WRONG[name], masks.causal(WRONG[name].tokens)
    assert timed(name, mask, (Pass.FWD, Pass.BWD), found.dtype)[Pass.FWD].status is Status.OK
    alone = timed(name, mask, (Pass.FWD,), found.dtype, grad=False)[Pass.FWD]
    assert (alone.status, alone.reason.startswith(found.words)) == (Status.WRONG, True)


def test_each_wrong_kernel_is_tried() -> None:
    assert sorted(load_wrong()) == sorted(WRONG | ON_A_GPU)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_kernel_on_a_wrong_stream_is_found(name: str) -> None:
    load(name)
    found = ON_A_GPU[name]
    reason = by_check(name, found, "cuda") if found.by == "check" else by_trial(name, found, "cuda")
    assert reason.startswith(found.words)


def shares(verdict: Verdict) -> list[float]:
    return [error.ratio for error in verdict.errors.values()]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp64"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes(name: str, dtype: str) -> None:
    load(name)
    kernel = registry.get(name)
    for seed, mask in enumerate([masks.causal(180), masks.sliding_window(130, w=20), masks.full_document(257, documents=[100, 157])]):
        case = Case(mask.seqlen_q, mask.seqlen_k, 2, 1, 16, 16, dtype)
        verdict = check_kernel(kernel, registry.prepare(kernel, mask, case).attention, case, reference(mask, case, seed), seed)
        assert verdict.reason == ""
        assert max(shares(verdict)) < 0.8


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "bf16") for name in RIGHT),
        *(pytest.param(name, "fp32", marks=() if name in ("torch:chunked", "my_kernel") else pytest.mark.slow) for name in RIGHT),
    ],
)
def test_a_right_kernel_passes_every_trial(name: str, dtype: str) -> None:
    load(name)
    asked = Asked(name, Case(100, 100, 2, 1, 16, 16, dtype), masks.causal(100), 0)
    refused = set()
    for trial in trials_on("cpu"):
        try:
            verdict = run_trial(trial, asked).verdict
        except Refused:
            refused.add(trial)
            continue
        assert verdict.reason == "", trial
        assert max(shares(verdict)) < 0.8, trial
    kernel = registry.get(name)
    optional = {TrialName.SOFTCAP: kernel.takes_softcap, TrialName.SINKS: kernel.sink_support != "no"}
    assert refused - set(optional) == ({TrialName.RING} if kernel.backward == "autograd" else set())
    assert refused & set(optional) == {trial for trial, can in optional.items() if not can}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sdpa:math", {"deterministic": True}),
        ("torch:chunked", {"sinks": True, "softcap": 5.0, "scale": -0.3, "deterministic": True}),
    ],
)
def test_a_right_kernel_passes_the_trials_of_other_calls_than_the_usual(name: str, settings: dict[str, Any]) -> None:
    asked = Asked(name, Case(100, 100, 2, 1, 16, 16, "fp32", **settings), masks.causal(100), 0)
    for trial in trials_on("cpu"):
        with suppress(Refused):
            assert run_trial(trial, asked).verdict.reason == "", trial


@pytest.mark.parametrize("name", ["torch:plain", "my_kernel"])
@pytest.mark.parametrize(("passes", "dtype"), [((Pass.FWD, Pass.BWD, Pass.BOTH), "bf16"), ((Pass.BWD, Pass.BOTH, Pass.FWD), "fp32")])
def test_timed_calls_of_a_right_kernel_pass(name: str, passes: tuple[Pass, ...], dtype: str) -> None:
    load(name)
    outcomes = timed(name, masks.causal(150), passes, dtype)
    assert {pass_: outcome.status for pass_, outcome in outcomes.items()} == dict.fromkeys(passes, Status.OK)
    assert not any(outcome.timed.nondeterministic for outcome in outcomes.values())
