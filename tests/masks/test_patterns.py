"""Each pattern shows what its definition says, pair by pair."""

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import lengths, masks
from longca.errors import BadInput
from strategies import FORMULAS, LENGTHS, PAPER, patterns


@pytest.mark.parametrize("name", FORMULAS)
@given(data=st.data())
def test_every_pattern_is_its_formula(name: str, data: st.DataObject) -> None:
    mask, dense = data.draw(patterns((name,)))
    np.testing.assert_array_equal(mask.dense(), dense)
    assert mask.area == dense.sum()
    assert mask.name == name


@pytest.mark.parametrize("name", masks.PATTERNS)
@given(seqlen=LENGTHS, seed=st.integers(0, 2**40))
def test_every_pattern_can_be_built_again_from_what_it_reports(name: str, seqlen: int, seed: int) -> None:
    """Also a mask whose formula is not written down here yet."""
    mask = masks.PATTERNS[name](seqlen, seed=seed)
    assert (mask.name, mask.seqlen_q, mask.seqlen_k, mask.seed) == (name, seqlen, seqlen, seed)
    assert (mask.documents is not None) == masks.PATTERNS[name].has_documents
    assert sum(mask.documents or [seqlen]) == seqlen
    assert set(mask.params) == set(masks.PATTERNS[name].defaults)
    assert masks.build(name, seqlen, seed=seed + 1, documents=mask.documents, **mask.params) == mask
    assert mask.area == mask.dense().sum()


def test_parameters_are_drawn_from_their_own_generator() -> None:
    for seed in range(20):
        assert masks.prefix_lm_causal(1000, seed=seed).params == {"p": Random(f"prefix_lm_causal/{seed}").randint(1, 1000)}
        first = lengths.draw(1000, seed)[0]
        assert masks.prefix_lm_document(1000, seed=seed).params == {"p": Random(f"prefix_lm_document/{seed}").randint(1, first)}
        width = Random(f"global_sliding_window/{seed}").randint(1, 332)
        assert masks.global_sliding_window(1000, seed=seed).params == {"g": width, "w": width}


def test_a_global_window_takes_g_from_w_and_w_from_g() -> None:
    for options, params in (({"w": 7}, (7, 7)), ({"g": 7}, (7, 7)), ({"g": 3, "w": 7}, (3, 7)), ({"w": 700}, (100, 700))):
        assert tuple(masks.global_sliding_window(100, **options).params.values()) == params
    assert [masks.global_sliding_window(seqlen).params["g"] for seqlen in (1, 2, 5)] == [1, 1, 1]


def test_block_documents_are_one_to_eight_blocks() -> None:
    mask = masks.block_causal_document(100_000, seed=3)
    assert mask.params == {"B": 1024}
    assert mask.documents is not None
    rng = Random(3)
    assert all(length == rng.randint(1, 8) * 1024 for length in mask.documents[:-1])
    assert {length // 1024 for length in mask.documents[:-1]} <= set(range(1, 9))
    assert sum(mask.documents) == 100_000


NO_DOCUMENTS = "has no documents, so it takes no lengths, no distribution and no packing."


@pytest.mark.parametrize(
    ("name", "seqlen", "options", "sentence"),
    [
        ("causl", 8, {}, "unknown mask 'causl'; did you mean 'causal'?"),
        ("causal", 0, {}, "the sequence length must be a whole number of 1 or more, not 0."),
        ("sliding_window", 8, {"w": -1}, "sliding_window: w must be a whole number of 0 or more, not -1."),
        ("sliding_window", 8, {"w": "3"}, "sliding_window: w must be a number, not '3'."),
        ("prefix_lm_causal", 8, {"p": 9}, "prefix_lm_causal: p must be a whole number from 0 to 8, not 9."),
        ("global_sliding_window", 8, {"g": 1, "w": -3}, "global_sliding_window: w must be a whole number of 0 or more, not -3."),
        ("block_causal_document", 8, {"B": 0}, "block_causal_document: B must be a whole number of 1 or more, not 0."),
        ("causal", 8, {"w": 1}, "causal has no parameter 'w'; it has none."),
        ("sliding_window", 8, {"q": 1}, "sliding_window has no parameter 'q'; it has w."),
        ("causal", 8, {"documents": [8]}, f"causal {NO_DOCUMENTS}"),
        (
            "uniform_block",
            8,
            {"packing": "draw"},
            f"uniform_block {NO_DOCUMENTS}",
        ),
        ("uniform_block", 8, {"ratio": 0}, "uniform_block: ratio is the part of the blocks that is kept, above 0 and up to 1, not 0."),
        ("variable_block", 8, {"avg": 2.5}, "variable_block: avg must be a whole number of 1 or more, not 2.5."),
        ("causal_document", 8, {"documents": [4, 3]}, "the documents hold 7 tokens, fewer than the sequence length 8; give more of them."),
        ("causal_document", 8, {"documents": [8, 0]}, "document lengths must be 1 or more, not 0."),
        ("causal_document", 8, {"packing": "tetris"}, "unknown packing 'tetris'; known are: draw, mixed, chunked, short."),
        ("causal_document", 8, {"distribution": "pill"}, "unknown length distribution 'pill'; did you mean 'pile'?"),
        (
            "causal_document",
            8,
            {"documents": [8], "packing": "draw"},
            "causal_document: give document lengths, or a distribution and a packing to draw them, not both.",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(name: str, seqlen: int, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        masks.build(name, seqlen, **options)  # type: ignore[arg-type]
    assert str(refusal.value) == sentence


LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("sliding_window", {"w": LARGEST}),
        ("global_sliding_window", {"w": LARGEST}),
        ("global_sliding_window", {"g": 3, "w": LARGEST}),
        ("block_causal_document", {"B": LARGEST, "documents": [64]}),
        ("uniform_block", {"b": LARGEST}),
        ("variable_block", {"avg": LARGEST}),
        ("variable_block", {"avg": LARGEST, "least": LARGEST}),
    ],
)
def test_what_is_longer_than_the_sequence_is_all_of_it(name: str, params: dict[str, Any]) -> None:
    assert masks.build(name, 64, **params).area == 64 * 64


@given(st.integers(0, 1 << 63).map(lambda width: min(width, LARGEST)), st.sampled_from([64, (1 << 61) - 1, 1 << 61]))
def test_windows_of_any_width_have_their_area(w: int, seqlen: int) -> None:
    reach = min(w, seqlen - 1)
    below = reach * seqlen - reach * (reach + 1) // 2  # pairs with a key before the query
    assert masks.sliding_window_causal(seqlen, w=w).area == seqlen + below
    assert masks.sliding_window(seqlen, w=w).area == seqlen + 2 * below


@pytest.mark.parametrize("name", [*masks.names(), *masks.block_names()])
def test_numbers_beyond_64_bits_are_refused_in_one_sentence(name: str) -> None:
    for param, value in product(masks.find(name).defaults, [1e30, 10**400, -(2**80), 2**63, float("inf"), float("-inf"), 1e308]):
        with pytest.raises(BadInput, match=f"^{name}: {param} "):
            masks.build(name, 64, **{param: value})
    for seqlen in (float("nan"), float("inf"), 1e300, 2**80):
        with pytest.raises(BadInput, match=r"^the sequence length must be"):
            masks.build(name, seqlen)  # type: ignore[arg-type]


def test_all_means_the_papers_twelve_masks() -> None:
    assert tuple(masks.names()) == PAPER
    assert not set(masks.names()) & set(masks.more_names())
    assert {*masks.names(), *masks.more_names()} == set(masks.PATTERNS)


def test_masks_beyond_the_paper_are_what_expressions_would_make() -> None:
    documents, length = [5, 9, 3, 7], 24
    inside = masks.causal_document(length, documents=documents)
    assert masks.sliding_window_causal_document(length, documents=documents, w=3) == inside & masks.sliding_window(length, w=3)
    assert masks.chunked_causal(length, c=8) == masks.causal_document(length, documents=[8] * 3)
    sinks = masks.Mask.of(length, length, [(0, length, 0, 0, 4, 0)])
    assert masks.sink_window_causal(length, s=4, w=3) == masks.causal(length) & (masks.sliding_window(length, w=3) | sinks)
    assert masks.dilated_window_causal(length, n=5, d=1) == masks.sliding_window_causal(length, w=5)
    assert len(masks.dilated_window_causal(1 << 20, n=5, d=3).table) == 6
    assert masks.shared_questions(length, documents=documents, answers=3) == masks.share_question(length, documents=documents)
    assert masks.prefix_lm_pairs(14, documents=[5, 9]) == masks.prefix_lm_causal(14, p=5)
