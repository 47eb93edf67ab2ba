"""Errors against fp64 are those of known distances, and bits that differ are counted."""

from __future__ import annotations

import math

import pytest
import torch

import longca
from longca.cli import main
from longca.kernels.base import Case
from longca.kernels.inputs import make
from longca.numerics.attention_step import RanksStep, exact_step, one_call
from longca.numerics.errors import Error, changed_share, errors, growth
from longca.parallel import registry
from longca.parallel.method import make_plan

SMALL = {"heads": "2:1", "head_dim": 16, "progress": False, "device": "cpu"}


EXACT = torch.full((64, 2, 4), 8.0, dtype=torch.float64)
OFF = EXACT.bfloat16()
OFF[3] *= 1 + 2**-7  # one epsilon of bf16, in one of 64 rows
NOWHERE = torch.full((2, 4), -math.inf, dtype=torch.float64)  # the lse of rows without keys
RIGHT, INFINITE = Error(0.0, 0.0), Error(math.inf, math.inf)


@pytest.mark.parametrize(
    ("name", "got", "exact", "error"),
    [
        ("out", EXACT.bfloat16(), EXACT, RIGHT),
        ("out", OFF, EXACT, Error(0.0, 1.0)),
        ("dq", torch.full_like(EXACT, math.nan), EXACT, INFINITE),
        ("out", torch.full_like(EXACT, math.inf), EXACT, INFINITE),
        ("lse", NOWHERE.float(), NOWHERE, RIGHT),
        ("lse", torch.zeros(2, 4), NOWHERE, INFINITE),
    ],
)
def test_an_error_is_in_epsilons_of_the_row(name: str, got: torch.Tensor, exact: torch.Tensor, error: Error) -> None:
    assert errors({name: got}, {name: exact})[name] == error


def test_the_same_bits_are_the_same_where_they_are_no_number() -> None:
    broken, right = {"out": torch.tensor([math.nan, 1.0])}, {"out": torch.tensor([2.0, 1.0])}
    assert changed_share(broken, {"out": broken["out"].clone()}) == {"out": 0.0}
    assert changed_share(broken, right) == {"out": 0.5}


def test_growth_is_per_doubling() -> None:
    assert growth([256, 512, 1024], [1.0, 2.0, 4.0]) == pytest.approx(2.0)
    assert growth([256, 256], [1.0, 2.0]) is None


def test_fp64_on_ranks_is_fp64_of_one_call() -> None:
    """The exact step, put together from ranks, has no error but fp64's own."""
    mask = longca.masks.causal_document(96, documents=[40, 56])
    case = Case(96, 96, 2, 1, 16, 16, "fp64", "cpu")
    plan = make_plan(registry.get("magi"), mask, case, 4, None, "torch:chunked")
    found = errors(RanksStep(plan, make(case, 0), "LHD")(), exact_step(mask, case, 0))
    assert set(found) == {"out", "lse", "dq", "dk", "dv"}
    assert max(error.far for error in found.values()) < 100


def test_bits_of_one_rank_are_those_of_one_call() -> None:
    mask, case = longca.masks.causal(64), Case(64, 64, 2, 1, 16, 16, "bf16", "cpu")
    plan = make_plan(registry.get("ring_p2p"), mask, case, 1, None, "torch:chunked")
    inputs = make(case, 0)
    alone = one_call("torch:chunked", mask, inputs)
    assert not any(changed_share(RanksStep(plan, inputs, "LHD")(), alone).values())
    changed = {name: value.clone() for name, value in alone.items()}
    changed["dk"][0, 0, 0] += 1
    assert changed_share(alone, changed)["dk"] == 1 / alone["dk"].numel()


def test_a_lower_precision_has_the_same_error_in_its_own_epsilons() -> None:
    found = longca.numerics("torch:chunked", "causal", 256, "bf16,fp32", **SMALL)
    bf16, fp32 = found.rows
    assert 0.1 < bf16["out_far"] < 2  # rounding out is half an epsilon of an element, and elements are larger than their rms
    assert 1 < fp32["out_far"] < 100  # sums of many terms are rounded too
    assert found.ok


def test_the_table_names_kernels_methods_and_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    shape = "--masks causal --seqlens 64,128 --heads 2:1 --head-dim 16 --device cpu --ranks 2"
    assert main(["numerics", *shape.split(), "--kernels", "torch:chunked", "--methods", "ring_p2p,halo"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 kernel: 99.9 % of out is within")
    assert "1 method on up to 2 ranks" in shown
    assert shown.count("not measured: halo on 2 ranks on causal") == 1
    assert main(["numerics", *shape.split(), "--kernels", "flex,torch:chunked", "--methods", "ring_p2p"]) == 0
    shown = capsys.readouterr().out
    assert "not measured: flex on causal: flex has no backward on a CPU." in shown
    assert "not measured: ring_p2p on 2 ranks on causal: methods run flex, which was not measured here" in shown


@pytest.mark.parametrize(
    "flags",
    ["--dtypes int8", "--ranks 0 --methods all", "--ranks 0", "--seqlens 1M", "--masks uniform_block", "--kernels nobody", "--set zz=3"],
)
def test_bad_input_is_one_sentence(flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numerics", "--device", "cpu", *flags.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_gpu_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("longca.devices.gpus", list)
    assert main(["numerics", "--device", "cuda"]) != 0
    assert capsys.readouterr().err.startswith("longca: no GPU was found")
