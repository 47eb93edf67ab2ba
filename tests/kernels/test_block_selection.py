"""Patterns that q and k select: from the numbers that kernels are measured on, the same in pieces and at once, in every process."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from longca import masks
from longca.errors import BadInput
from longca.kernels import block_selection, inputs
from longca.kernels.base import Case
from longca.masks.selection import QUANTUM
from longca.results.problem import Pass
from made_cells import make_cell

SHAPE = block_selection.Heads(4, 2, 16)


def test_means_are_those_of_the_tokens_however_they_come() -> None:
    x = torch.randn(700, 3, 5, dtype=torch.float64)
    edges = np.array([0, 1, 130, 131, 500, 700])
    right = torch.stack([x[first:last].mean(0) for first, last in pairwise(edges)], 1).numpy()
    for step in (700, 64, 131, 1):
        found = block_selection.block_means(iter(x.split(step)), edges)
        np.testing.assert_allclose(found * QUANTUM, right, atol=QUANTUM)
        assert np.array_equal(found, np.rint(found))


@pytest.mark.parametrize("source", ["nsa", "moba"])
@pytest.mark.parametrize(("name", "params"), [("uniform_block", {"b": 64}), ("variable_block", {"avg": 100, "least": 20})])
def test_the_pattern_of_a_seed_is_the_one_its_q_and_k_select(name: str, params: dict[str, float], source: str) -> None:
    q, k, _, _ = inputs.make(Case(1500, 1500, 4, 2, 16, 16, "fp32"), 7)
    mask = block_selection.from_seed(name, 1500, source, 7, SHAPE, ratio=0.3, **params)
    assert mask == block_selection.from_tensors(q, k, name, source, 7, ratio=0.3, **params)
    assert mask != block_selection.from_tensors(torch.roll(q, 64, 0), k, name, source, 7, ratio=0.3, **params)
    assert (mask.heads, mask.source) == (2, source)


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing() -> None:
    program = (
        "import sys, torch; from longca.kernels import block_selection; torch.set_num_threads(int(sys.argv[1]));"
        "print(block_selection.from_seed('uniform_block', 3000, 'nsa', 1, block_selection.Heads(4, 2, 64), ratio=.2).digest)"
    )
    runs = [subprocess.run([sys.executable, "-c", program, n], capture_output=True, text=True, env=_environment(n)) for n in ("1", "2")]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout


def _environment(threads: str) -> dict[str, str]:
    import os

    return {**os.environ, "OPENBLAS_NUM_THREADS": threads}


def test_build_leaves_other_masks_alone_and_refuses_what_it_does_not_know() -> None:
    assert block_selection.build("causal", 64, "nsa", SHAPE, documents=None) == masks.causal(64)
    assert block_selection.build("uniform_block", 256, "random", SHAPE, heads=2, seed=3) == masks.uniform_block(256, heads=2, seed=3)
    shared = block_selection.build("uniform_block", 256, "moba", SHAPE, heads=1, b=32, documents=None)
    assert shared.heads == 1
    with pytest.raises(BadInput, match="did you mean 'nsa'"):
        block_selection.build("uniform_block", 256, "nssa", SHAPE)
    with pytest.raises(BadInput, match="not for 3"):
        block_selection.build("uniform_block", 256, "nsa", SHAPE, heads=3)
    with pytest.raises(BadInput, match="as many queries as keys, not 8 and 9"):
        block_selection.from_tensors(torch.zeros(8, 1, 4), torch.zeros(9, 1, 4), "uniform_block", "nsa")
    with pytest.raises(BadInput, match="unknown block pattern 'causal'"):
        block_selection.from_tensors(torch.zeros(8, 1, 4), torch.zeros(8, 1, 4), "causal", "nsa")
    with pytest.raises(BadInput, match="4:3: the number of query heads must be a multiple of the number of KV heads"):
        block_selection.from_tensors(torch.zeros(8, 4, 4), torch.zeros(8, 3, 4), "uniform_block", "nsa")


def test_what_a_selected_pattern_is_measured_with_is_what_selected_it() -> None:
    params = (("b", 64), ("ratio", 0.5))
    cell = make_cell(mask="uniform_block", seqlen=256, pass_=Pass.FWD, device="cuda", source="nsa", params=params)
    mask = cell.problem.build_mask()
    case = replace(cell.case(mask), device="cpu")
    assert case.numbers == "cpu"
    assert block_selection.from_tensors(*inputs.make(case, cell.problem.seed)[:2], "uniform_block", "nsa", b=64, ratio=0.5) == mask
    assert cell.with_problem(source="random").case(mask).numbers == ""
