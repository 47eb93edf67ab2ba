"""Rules that select blocks: what each keeps always, and that nothing it dropped has a higher score by the rule's own definition."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.errors import BadInput
from longca.masks.bands import Ints
from longca.masks.selection import QUANTUM, Means, select

SIZE = 8


def edges_of(draw: st.DrawFn, length: int) -> Ints:
    inner = draw(st.lists(st.integers(1, max(1, length - 1)), max_size=7, unique=True))
    return np.unique([0, *(cut for cut in inner if cut < length), length]).astype(np.int64)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Means, Ints, Ints, int]:
    length, kv_heads, group = draw(st.integers(1, 40)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    rows, keys = edges_of(draw, length), edges_of(draw, length)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    heads = (kv_heads * group, len(rows) - 1), (kv_heads, len(keys) - 1)
    means = Means(*(np.rint(rng.normal(size=(*shape, SIZE)) / QUANTUM) for shape in heads))
    return means, rows, keys, draw(st.integers(1, 6))


def score(source: str, means: Means, rows: Ints, keys: Ints, head: int, row: int) -> list[float]:
    """Of each visible key block, by the papers' definitions: one mean query at a time."""
    group = len(means.queries) // len(means.keys)
    seen = [key for key in range(len(keys) - 1) if keys[key] < rows[row + 1]]
    total = np.zeros(len(seen))
    for query in means.queries[head * group : (head + 1) * group, row] * QUANTUM:
        products = np.array([query @ (means.keys[head, key] * QUANTUM) for key in seen])
        if source == "nsa":
            weight = np.exp(products / np.sqrt(SIZE))
            products = weight / weight.sum()
        total += products
    return list(total)


def always(source: str, rows: Ints, keys: Ints, row: int) -> set[int]:
    own = {key for key in range(len(keys) - 1) if keys[key] < rows[row + 1] and keys[key + 1] > rows[row]}
    return own | {0, max(min(own) - 1, 0)} if source == "nsa" else own


@pytest.mark.parametrize("source", ["nsa", "moba", "msa"])
@given(problem=problems())
def test_every_row_block_keeps_its_own_and_the_best_of_those_it_sees(source: str, problem: tuple[Means, Ints, Ints, int]) -> None:
    means, rows, keys, count = problem
    kept = select(source, means, rows, keys, count, len(means.keys))
    assert kept.shape == (len(means.keys), len(rows) - 1, len(keys) - 1)
    for head, row in product(range(kept.shape[0]), range(kept.shape[1])):
        chosen, fixed = set(np.flatnonzero(kept[head, row]).tolist()), always(source, rows, keys, row)
        scores = score(source, means, rows, keys, head, row)
        assert fixed <= chosen <= set(range(len(scores)))
        assert len(chosen) == min(max(count, len(fixed)), len(scores))
        dropped = [scores[key] for key in range(len(scores)) if key not in chosen]
        assert all(scores[key] >= max(dropped, default=-np.inf) - 1e-9 for key in chosen - fixed)


@pytest.mark.parametrize("source", ["nsa", "moba", "msa"])
def test_equal_scores_take_the_first_blocks_and_heads_may_choose_together(source: str) -> None:
    edges = np.arange(0, 65, 8)
    means = Means(np.zeros((4, 8, SIZE)), np.zeros((2, 8, SIZE)))
    kept = select(source, means, edges, edges, 4, 2)
    assert np.flatnonzero(kept[0, 7]).tolist() == ([0, 1, 6, 7] if source == "nsa" else [0, 1, 2, 7])
    assert np.array_equal(select(source, means, edges, edges, 4, 1)[0], kept[0])
    with pytest.raises(BadInput, match="each of the 2 KV heads, or for all together: not for 3"):
        select(source, means, edges, edges, 4, 3)


def means_of(rows: Ints, keys: Ints) -> Means:
    rng = np.random.default_rng(0)
    return Means(*(np.rint(rng.normal(size=(heads, len(edges) - 1, SIZE)) / QUANTUM) for heads, edges in ((4, rows), (2, keys))))


@pytest.mark.parametrize(("params", "size", "kept"), [({}, 128, 16), ({"b": 64}, 64, 16), ({"top": 3}, 128, 3), ({"top": 0}, 128, 15)])
def test_msa_keeps_sixteen_blocks_of_128_unless_told_otherwise(params: dict[str, int], size: int, kept: int) -> None:
    mask = masks.uniform_block.selected(30 * 128, "msa", means_of, heads=2, **params)
    count = np.minimum(np.arange(30 * 128 // size) + 1, kept)
    assert np.diff(mask.row_edges).tolist() == [size] * len(count)
    assert (mask.kept.sum(2) == count).all()
    assert ("ratio" in mask.params, mask.params.get("top")) == ((True, None) if kept == 15 else (False, kept))


def test_top_takes_the_place_of_the_ratio() -> None:
    mask = masks.uniform_block(4096, seed=1, b=128, top=5)
    assert (mask.kept.sum(2) == 5).all()
    assert mask == masks.uniform_block(4096, seed=1, b=128, ratio=5 / 32)
    assert (masks.variable_block(4096, seed=1, avg=256, top=3).kept.sum(2) == 3).all()


def test_together_means_the_sum_over_heads() -> None:
    rng, edges = np.random.default_rng(1), np.arange(0, 129, 8)
    queries, keys = (np.rint(rng.normal(size=(2, 16, SIZE)) / QUANTUM) for _ in range(2))
    together = select("moba", Means(queries, keys), edges, edges, 3, 1)
    joined = select("moba", Means(np.concatenate(list(queries), 1)[None], np.concatenate(list(keys), 1)[None]), edges, edges, 3, 1)
    assert np.array_equal(together, joined)


def test_a_selected_pattern_is_causal_and_every_token_sees_itself() -> None:
    for pattern, params in ((masks.uniform_block, {"b": 16}), (masks.variable_block, {"avg": 30, "least": 5})):
        mask = pattern.selected(200, "nsa", means_of, seed=3, ratio=0.2, heads=2, **params)
        dense = mask.dense()
        assert not (dense & ~masks.causal(200).dense()).any()
        assert all(np.diagonal(head).all() for head in dense)
        assert (mask.name, mask.source, mask.params["ratio"]) == (pattern.name, "nsa", 0.2)
        with pytest.raises(BadInput, match="did you mean 'moba'"):
            pattern.selected(200, "mobe", means_of)
