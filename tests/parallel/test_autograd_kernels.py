"""Kernels whose backward is autograd's, or that give no lse: where they serve, and where they are refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longca.errors import Refused
from longca.kernels import registry as kernels
from longca.masks import Mask
from longca.parallel.comm.null import NullComm
from longca.processes.pool import Pool
from parallel.running import STATIC, assert_right, case_of, mask_of, plain_inputs, plan_of, reference, run_local

FUNCTIONS = """
import longca
import torch
from longca.kernels.lower import dense


def scores(q, k, seen, scale):
    group = q.shape[1] // k.shape[1]
    found = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) * scale
    return found.masked_fill(~seen, float("-inf"))


@longca.kernel(lower=lambda mask, case: dense(mask, case.device), gives_lse=True)
def with_lse(q, k, v, seen, scale):
    found = scores(q, k, seen, scale)
    share = found.softmax(-1).nan_to_num()
    return torch.einsum("hqk,khd->qhd", share, v.repeat_interleave(q.shape[1] // v.shape[1], 1)), found.logsumexp(-1)


@longca.kernel(lower=lambda mask, case: dense(mask, case.device))
def without_lse(q, k, v, seen, scale):
    raise AssertionError


@longca.kernel(differentiable=False, gives_lse=True)
def one_way(q, k, v, mask, scale):
    raise AssertionError
"""


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    kernels.load_plugin(file)
    return file


def run(method: str, mask: Mask, ranks: int, kernel: str, backward: bool) -> None:
    case = replace(case_of(mask.seqlen_q), backward=backward)
    assert_right(run_local(plan_of(method, mask, case, ranks, kernel=kernel)), reference(mask, case))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "mask",
    [mask_of("causal"), mask_of("share_question"), Mask.of(97, 97, [(10, 60, 5, 0, 6, 1)])],
    ids=["causal", "share_question", "edges that see nothing and are cut off"],
)
def test_ulysses_runs_autograd_forward_and_backward(mask: Mask, ranks: int) -> None:
    run("ulysses", mask, ranks, "sdpa:math", backward=True)


def test_a_backward_may_be_called_twice() -> None:
    plan = plan_of("ulysses", mask_of("causal"), case_of(197), 1, kernel="sdpa:math")
    program, (q, k, v, dout) = plan.program(NullComm(0, 1)), plain_inputs(plan.case, [(0, 197)], "HLD")
    _, saved = program.forward(q, k, v)
    assert all(torch.equal(*pair) for pair in zip(program.backward(dout, saved), program.backward(dout, saved), strict=True))


@pytest.mark.usefixtures("functions")
def test_a_function_of_a_user_serves_ulysses_whole_and_rings_forward() -> None:
    mask = mask_of("causal_document")
    run("ulysses", mask, 2, "with_lse", backward=True)
    for method in sorted({*STATIC} - {"ulysses"}):
        run(method, mask, 4, "with_lse", backward=False)


def test_one_attention_over_all_keys_needs_no_lse() -> None:
    run("ring_allgather", mask_of("causal_document"), 3, "sdpa:math", backward=False)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("method", "kernel", "backward", "ranks", "sentence"),
    [
        (
            "ring_p2p",
            "with_lse",
            True,
            2,
            "ring_p2p cannot use the kernel with_lse: the backward of with_lse is torch's autograd, which cannot start from the "
            "out and lse of all ranks together; use ulysses, the forward alone (--passes fwd), or another kernel such as torch:chunked.",
        ),
        ("magi", "sdpa:math", True, 2, "cannot be merged; use ulysses, or another kernel such as torch:chunked."),
        ("ring_p2p", "flex", True, 2, "cannot be merged; use another kernel such as torch:chunked."),  # nor could ulysses, on a CPU
        ("ulysses", "one_way", True, 2, "one_way has no backward; use the forward alone (--passes fwd), or another kernel such as"),
    ],
)
def test_what_cannot_serve_is_refused_with_what_would(method: str, kernel: str, backward: bool, ranks: int, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        plan_of(method, mask_of("causal"), replace(case_of(197), backward=backward), ranks, kernel=kernel)
    assert sentence in str(refused.value)


def test_a_kernel_that_fails_when_it_is_asked_breaks_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin may: its cells will say so, when they are run."""

    def fails(*_: object) -> None:
        raise RuntimeError("no driver")

    for name in ("torch", "sdpa"):
        monkeypatch.setattr(kernels.classes()[name], "supports", fails)
    plan_of("ring_p2p", mask_of("causal"), case_of(197), 2, kernel="torch:chunked")


def test_attention_in_a_training_script_takes_such_kernels_too(pool: Pool) -> None:
    answers = pool.run("parallel.plan_jobs:attention", {"method": "ulysses", "kernel": "sdpa:math", "lse": False}, 60)
    alone = pool.run("parallel.plan_jobs:forward_alone", {"method": "ring_allgather", "kernel": "sdpa:math"}, 60)
    assert all(answer["error"] < 1e-5 for answer in answers)
    assert all(error < 1e-5 for error in alone)
