"""Softcap, sinks and scale in suites, cells, keys, records and commands; and the models that name them."""

from __future__ import annotations

import pytest

from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite, check, names, to_toml
from longca.bench.plan.workload import model, with_model
from longca.errors import BadInput
from longca.text import parse_dims, parse_heads


def test_a_suite_hands_them_to_its_cells_and_cases() -> None:
    suite = Suite(kernels=("torch",), masks=("causal",), seqlens=("64",), softcap=30.0, sinks=True, scale=0.2)
    check(suite)
    for cell in make_cells(suite, ["torch"], "cpu"):
        case = cell.case(cell.problem.build_mask())
        assert (case.softcap, case.sinks, case.scale) == (30.0, True, 0.2)
    assert "softcap = 30.0\nsinks = true\nscale = 0.2\n" in to_toml(suite)
    with pytest.raises(BadInput, match=r"softcap: Expected `float` >= 0.0, not -1.0"):
        check(suite.changed(softcap=-1.0))


@pytest.mark.parametrize("name", names("models"))
def test_every_model_can_be_run(name: str) -> None:
    shape, suite = model(name), with_model(Suite(), name)
    check(suite)
    assert (suite.softcap, suite.sinks, suite.scale) == (shape.softcap, shape.sinks, shape.scale)
    parse_heads(shape.heads)
    parse_dims(shape.head_dim)
    assert set(shape.pattern.split()) <= {"local", "global"}
    assert ("local" in shape.pattern) == (shape.window is not None)


def test_models_with_more_than_heads() -> None:
    gemma, oss = model("gemma2-27b"), model("gpt-oss-120b")
    assert (gemma.heads, gemma.head_dim, gemma.softcap, gemma.window, gemma.layer_pattern) == (
        "32:16",
        "128",
        50,
        4096,
        "1 local, 1 global",
    )
    assert gemma.scale == pytest.approx(144**-0.5)
    assert (oss.heads, oss.head_dim, oss.sinks, oss.window) == ("64:8", "64", True, 128)
    for mask in ("sliding_window_causal", "sliding_window_causal_document", "causal_document & sliding_window"):
        assert oss.params_of(mask) == {"w": 127}
    for mask in ("causal", "sliding_window(w=9)", "sink_window_causal", "sliding_window & sink_window_causal"):
        assert oss.params_of(mask) == {}
    assert model("llama3-8b").params_of("sliding_window") == {}
    assert model("gemma3-27b").layer_pattern == "5 local, 1 global"
    assert model("llama3-8b").layer_pattern == "all global"
