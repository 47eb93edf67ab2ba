"""Sweeps: `configs` makes variants, lists of a plugin are searched, and name:* means all variants."""

from typing import Any

import pytest
import torch

import longca
from longca import masks
from longca.bench.plan.catalogue import Entry, make_catalogue
from longca.bench.plan.suite import Suite
from longca.errors import BadInput
from longca.kernels import registry
from longca.kernels.base import Case, Kernel

CASE = Case(64, 64, 2, 1, 16, 16, "fp32", backward=False)


def swept(configs: Any, **settings: Any) -> type[Kernel]:
    @longca.kernel(configs=configs, **settings)
    def tiled(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lowered: Any, scale: float, block: int = 1, stages: int = 0
    ) -> torch.Tensor:
        seen.append((lowered, block, stages))
        return q

    seen: list[Any] = []
    tiled.seen = seen  # type: ignore[attr-defined]
    return tiled


def test_each_config_reaches_the_function_and_what_lowers_the_mask() -> None:
    made = swept([{"block": 64, "stages": 2}, {"block": 128, "stages": 3}], lower=lambda mask, case, block: block // 2)
    assert made.variants == ("block64-stages2", "block128-stages3")
    q = torch.zeros(64, 2, 16)
    for variant in ("block128-stages3", "block64-stages2", ""):
        kernel = made(variant)
        assert kernel.supports(masks.causal(64), CASE)
        kernel.prepare(masks.causal(64), CASE).forward(q, q[:, :1], q[:, :1])
    assert made.seen == [(64, 128, 3), (32, 64, 2), (32, 64, 2)]  # type: ignore[attr-defined]
    made(q, q, q, None, 1.0, block=7)
    assert made.seen[-1] == (None, 7, 0), "called with tensors it stays the function"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ([{"tile": 64}], r"which do not fit \(got an unexpected keyword argument 'tile'\)"),
        ([64], "it must be a list of dictionaries"),
        ({"block": 64}, "it must be a list of dictionaries"),
        ([{}], "it must be a list of dictionaries"),
        ([{"block": 64}, {"block": 64}], "two configs of the kernel 'tiled' are the same"),
        ([{"block": (64, 64)}], r"makes the name 'block\(64, 64\)'"),
    ],
)
def test_configs_that_fit_no_call_are_one_sentence(configs: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        swept(configs)


def test_a_star_means_all_variants_of_a_kernel() -> None:
    offered = {label: Entry(label, {}, "mine.py") for label in ("mine:a", "mine:b", "other")}

    def labels(*names: str) -> list[str]:
        return list(make_catalogue(Suite(kernels=names), offered, "cpu", only_named=True).entries)

    assert labels("mine:*") == ["mine:a", "mine:b"]
    assert labels("other:*") == ["other"]
    assert labels("sdpa:*", "torch") == [*registry.labels("sdpa"), "torch"]
    with pytest.raises(BadInput, match="unknown kernel 'nosuch'"):
        labels("nosuch:*")
