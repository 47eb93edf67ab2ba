"""What a user may type in place of a mask's name: names of plugins, files, expressions; and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longca
from longca import masks
from longca.errors import BadInput, LongcaError, Refused
from longca.masks import own
from longca.text import parse_list

PLUGIN = Path(__file__).parents[1] / "bench" / "plugins" / "own_masks.py"


NAMES = st.sampled_from(["full", "causal", "sliding_window(w=3)", "causal_document", "block_causal_document(B=4)", "chunked_causal(c=5)"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.sampled_from(["name", "name", "not", "&", "|", "-"])) if depth else "name"
    if kind == "name":
        return draw(NAMES)
    left = draw(expressions(depth - 1))
    return f"~({left})" if kind == "not" else f"({left}) {kind} ({draw(expressions(depth - 1))})"


@given(expressions(), st.integers(1, 30), st.integers(0, 9))
def test_expressions_mean_what_python_means(text: str, seqlen: int, seed: int) -> None:
    mask = masks.build(text, seqlen, seed=seed)
    documents = mask.documents

    def part(pattern: masks.Pattern) -> Any:
        return lambda **params: pattern(seqlen, seed=seed, documents=documents if pattern.has_documents else None, **params)

    parts = {name: part(pattern) for name, pattern in masks.PATTERNS.items()}
    assert eval(_called(text), {}, parts) == mask
    assert masks.find(masks.find(text).name).name == masks.find(f"( {text} )").name == mask.name


def _called(text: str) -> str:
    """The expression with a call at each plain name."""
    return re.sub(r"\b([a-z]\w*)\b(?![(=])", r"\1()", text)


def test_parts_share_parameters_documents_and_seed() -> None:
    named = masks.find("causal_document & sliding_window & ~sliding_window_causal(w=2)")
    assert dict(named.defaults) == {"w": 1024}
    mask = masks.build(named.name, 100, seed=7, w=5)
    inside = masks.causal_document(100, seed=7)
    assert mask.documents == inside.documents
    assert mask == inside & masks.sliding_window(100, w=5) - masks.sliding_window_causal(100, w=2)
    assert (mask.params, mask.seed) == ({"w": 5}, 7)
    both = masks.build("full_document | block_causal_document(B=8)", 64, seed=3)
    assert both.documents == masks.block_causal_document(64, seed=3, B=8).documents
    given = masks.build("full_document | block_causal_document(B=8)", 64, documents=[40, 24])
    assert given == masks.full_document(64, documents=[40, 24])
    with pytest.raises(BadInput, match="has no parameter 'w'; it has none"):
        masks.build("causal & sliding_window(w=3)", 16, w=5)
    drawn = masks.build("prefix_lm_causal & prefix_lm_document", 64, seed=1)
    assert set(drawn.params) == {"p", "prefix_lm_document.p"}


def test_a_block_pattern_in_an_expression() -> None:
    text = "uniform_block(b=4) & causal"
    mask = masks.build(text, 32, ratio=0.5, heads=2)
    blocks = masks.uniform_block(32, b=4, ratio=0.5, heads=2)
    np.testing.assert_array_equal(mask.dense(), blocks.dense() & np.tri(32, dtype=bool))
    assert (mask.name, mask.params) == (text, {"ratio": 0.5, "heads": 2})
    assert masks.has_blocks(text)
    assert masks.blocks_of(text, {"ratio": 0.5, "w": 3}) == (masks.uniform_block, {"ratio": 0.5, "b": 4})
    assert not masks.has_blocks("causal & full")
    assert not masks.has_blocks("no_such_mask & causal")
    for refused in ("~uniform_block", "causal | uniform_block", "uniform_block - causal"):
        with pytest.raises(Refused, match="a block pattern takes & with a mask of bands, not"):
            masks.find(refused)
    with pytest.raises(Refused, match="two block patterns"):
        masks.find("uniform_block & variable_block")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("causal &", "cannot be read: invalid syntax; write it as"),
        ("causal + full", "'causal + full' is no mask; write it as"),
        ("causal, full", "'causal, full' is several masks, and this takes one: give"),
        ("causal & 3", "'3' is no mask"),
        ("sliding_window(w='a')", "w must be a number"),
        ("__import__('os').system('x')", "is no mask"),
        ("[causal for x in full] & causal", "is no mask"),
        ("(" * 400 + "causal" + ")" * 400, "cannot be read"),
        ("causal & " * 200 + "full", "up to 1000 characters, not 1804"),
        ("~" * 400 + "causal", "not 400"),
        (" | ".join(["causal"] * 100), "not 99"),
        ("sliding_window(w=1,w=2)", "w twice"),
        ("causal & 'nothing.json'", "cannot read a mask from nothing.json"),
    ],
)
def test_bad_texts_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(LongcaError) as caught:
        masks.find(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_commas_in_parentheses_belong_to_their_entry() -> None:
    assert parse_list("causal, sink_window_causal(s=4, w=8) & full,'a,b.json' & full ,") == [
        "causal",
        "sink_window_causal(s=4, w=8) & full",
        "'a,b.json' & full",
    ]
    assert parse_list("a,b), (c,d") == ["a", "b)", "(c,d"]


def test_files_hold_what_is_printed(tmp_path: Path) -> None:
    mask = masks.build("causal_document & sliding_window(w=3)", 40, seed=2)
    path = masks.write_mask(mask, tmp_path / "mine.json")  # type: ignore[arg-type]
    assert masks.read_mask(path) == mask
    again = masks.build(str(path), 40)
    assert (again.digest, again.documents, again.name) == (mask.digest, mask.documents, str(path))
    combined = f"'{path}' | causal"
    assert masks.build(combined, 40) == masks.causal(40)
    with pytest.raises(BadInput, match="holds a mask of 40 tokens, not of 41; ask for that length"):
        masks.build(str(path), 41)
    with pytest.raises(BadInput, match=r"whose name ends in \.json, not 'mine\.txt'"):
        masks.write_mask(masks.causal(4), tmp_path / "mine.txt")
    with pytest.raises(BadInput, match="as many queries as keys, not 2 and 4"):
        masks.write_mask(masks.causal(4).rows([(0, 2)]), tmp_path / "cut.json")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is no mask: Input data was truncated"),
        ('{"seqlen": 4}', "missing required field `bands`"),
        ('{"seqlen": 4, "bands": [[0, 4, 0, 0, 1]]}', "is no mask: Expected `array` of length 6"),
        ('{"seqlen": 4, "bands": [[0, 4, 0, 5, 1, 1]]}', "slopes must be 0 or 1"),
        ('{"seqlen": 4, "bands": [[0, 4, 0, 0, 9, 0]]}', "a band leaves the 4 keys"),
        ('{"seqlen": 4, "bands": [[0, 4, 0, 0, 2, 0], [0, 4, 1, 0, 3, 0]]}', "bands overlap"),
        ('{"seqlen": 4, "bands": [], "blocks": []}', "holds a block pattern, and files hold masks of bands"),
        ('{"seqlen": 4, "bands": [], "documents": [-1, 5]}', "negative, and one is -1"),
        ('{"seqlen": 4, "bands": [], "documents": [3]}', "3 tokens, and its sequence 4"),
        ('{"seqlen": 4, "bands": [[0, 4, 3, 0, 2, 0]]}', r"\[3, 2\)"),
        ('{"seqlen": 4, "bands": [[4, 1, 0, 0, 2, 0]]}', r"\[4, 1\)"),
    ],
)
def test_files_that_are_no_masks(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=problem):
        masks.find(str(path))


def test_lengths_of_documents_and_seeds_are_whole_numbers() -> None:
    with pytest.raises(BadInput, match=r"document lengths must be a list of whole numbers, such as \[353, 7839\], not 'abc'"):
        masks.build("causal_document", 8, documents="abc")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"whole numbers, .*, not \[3.5, 4.5\]"):
        masks.build("causal_document", 8, documents=[3.5, 4.5])  # type: ignore[list-item]
    for name in ("causal", "causal_document", "uniform_block", "causal | full"):
        for seed in ("x", -1, (1 << 62) + 1, 0.5):
            with pytest.raises(BadInput, match=rf"^the seed \(--seed\) must be a whole number from 0 to {1 << 62}, not {seed!r}\.$"):
                masks.build(name, 8, seed=seed)  # type: ignore[arg-type]
        assert masks.build(name, 8, seed=1 << 62).seqlen_q == 8


def test_masks_of_a_plugin() -> None:
    assert masks.load_plugin(PLUGIN) == ["stairs", "first_tokens"]
    assert own.files() == {str(PLUGIN): ["stairs", "first_tokens"]}
    stairs = masks.build("stairs & full", 40, step=8)
    assert stairs == masks.block_causal_document(40, documents=[40], B=8)
    assert stairs.params == {"step": 8}
    mask = masks.build("first_tokens", 12, documents=[5, 7])
    expected = np.eye(12, dtype=bool)
    expected[:, [0, 5]] = True
    np.testing.assert_array_equal(mask.dense(), expected)
    assert mask.documents == (5, 7)
    found = masks.find("stairs")
    assert (found.group, found.about) == ("own", "blocks of step tokens see all blocks before and their own")
    masks.load_plugin(PLUGIN)  # twice is allowed
    assert masks.expand(["every"]) == [*masks.names(), *masks.more_names(), "stairs", "first_tokens"]


def test_a_file_is_read_for_masks_before_it_is_imported(tmp_path: Path) -> None:
    assert own.mentioned_in(PLUGIN)
    for text, expected in (
        ("from longca import mask\n", True),
        ("import longca as l\n@l.mask\ndef f(seqlen): ...\n", True),
        ("import longca\n@longca.kernel\ndef f(): ...\n", False),
        ("import longca\nclass A(longca.Attention):\n    def __init__(self, mask): self.mask = mask\n", False),
        ("def f(:\n", True),  # importing it will tell
    ):
        (tmp_path / "a.py").write_text(text)
        assert own.mentioned_in(tmp_path / "a.py") is expected


def broken(seqlen: int) -> Any:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (broken, "the mask 'odd' fails: ValueError: no idea"),
        (lambda seqlen: 3, "odd: it must return a Mask, or rows of six numbers .*, not int"),
        (lambda seqlen: masks.causal(seqlen + 1), "odd: it returned a mask of 9x9 tokens, not of 8x8"),
        (lambda seqlen: [(0, 8, 0, 0, 1.5, 0)], r"odd: a band must be six whole numbers .*, not \(0, 8, 0, 0, 1.5, 0\)"),
        (lambda seqlen: [(0, 8, 0, 0, 2, 0), (0, 8, 1, 0, 3, 0)], "bands overlap"),
    ],
)
def test_what_a_function_may_return(function: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        longca.mask(name="odd")(function)(8)


def test_what_a_mask_of_ones_own_may_be() -> None:
    assert longca.mask(name="rows")(lambda seqlen: [(0, seqlen, 0, 0, 1, 1)])(8) == masks.causal(8)
    for function, name, problem in (
        (lambda: None, "odd", "must take the sequence length as its first argument"),
        (lambda seqlen, w: None, "odd", "the argument 'w' of the mask 'odd' needs a number as default"),
        (lambda seqlen, w="a": None, "odd", "needs a number as default"),
        (lambda seqlen: None, "causal", "cannot be called 'causal', which is a name of LongCA's"),
        (lambda seqlen: None, 3, "a mask cannot be called 3"),
        (lambda seqlen: None, "a-b", "a mask cannot be called 'a-b'; a name is made of letters, digits and _"),
    ):
        with pytest.raises(BadInput, match=problem):
            longca.mask(name=name)(function)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="takes its settings by name, such as name='odd'"):
        longca.mask("odd")  # type: ignore[call-overload]
    masks.load_plugin(PLUGIN)
    with pytest.raises(BadInput, match="two masks are called 'stairs'"):
        longca.mask(name="stairs")(lambda seqlen: [])


def test_installed_packages_offer_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "somebody"

        def load(self) -> None:
            longca.mask(name="theirs")(lambda seqlen: [(0, seqlen, 0, 0, seqlen, 0)])

    class Broken(Entry):
        name = "nobody"

        def load(self) -> None:
            raise ImportError("it is broken")

    monkeypatch.setattr(own, "entry_points", lambda group: [Broken(), Entry()] if group == "longca.masks" else [])
    own.load_installed.cache_clear()
    try:
        assert masks.build("theirs & causal", 8) == masks.causal(8)
        with pytest.raises(BadInput, match="the masks of the installed package nobody cannot be loaded: ImportError: it is broken"):
            masks.find("nowhere")
    finally:
        own.load_installed.cache_clear()
        own.broken.clear()
