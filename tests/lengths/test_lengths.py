"""Distributions, packers and files."""

import json
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longca
from longca import lengths
from longca.errors import BadInput
from longca.lengths import Distribution, shares
from longca.lengths.packers import PACKERS

K = 1024


def by_the_book(seqlen: int, distribution: Distribution, rng: Random) -> list[int]:
    """The paper's packer, written plainly."""
    total, lows, drawn = sum(distribution.weights), [0, *distribution.uppers[:-1]], list[int]()
    while sum(drawn) < seqlen:
        weights = [weight / total for weight in distribution.weights]
        bucket = rng.choices(range(len(weights)), weights=weights)[0]
        drawn.append(min(max(1, rng.randint(lows[bucket], distribution.uppers[bucket])), seqlen - sum(drawn)))
    return drawn


@pytest.mark.parametrize(
    ("seqlen", "first", "count", "longest", "density"),
    [
        (1 * K, [353, 559, 102, 10], 4, 559, None),
        (8 * K, [353, 559, 102, 421, 322, 13], 17, 3608, 0.2251),
        (16 * K, [545, 719, 166, 581, 482, 27], 25, 4167, 0.1101),
        (32 * K, [], 59, None, 0.0393),
        (48 * K, [], 77, None, 0.0281),
    ],
)
def test_golden_packings(seqlen: int, first: list[int], count: int, longest: int | None, density: float | None) -> None:
    packed = lengths.draw(seqlen, seed=42)
    assert packed == by_the_book(seqlen, lengths.default_for(seqlen), Random(42))
    assert (packed[: len(first)], len(packed), sum(packed)) == (first, count, seqlen)
    assert longest in (None, max(packed))
    assert density in (None, round(sum(length**2 for length in packed) / seqlen**2, 4))


@pytest.mark.parametrize("name", lengths.names())
@given(seqlen=st.integers(1, 3000), seed=st.integers(0, 1 << 40))
def test_draw_is_the_papers_packer(name: str, seqlen: int, seed: int) -> None:
    assert lengths.draw(seqlen, seed, lengths.named(name)) == by_the_book(seqlen, lengths.named(name), Random(seed))


@pytest.mark.parametrize("packing", PACKERS)
@given(seqlen=st.integers(1, 200_000), seed=st.integers(0, 10_000))
def test_every_packing_fills_the_sequence(packing: str, seqlen: int, seed: int) -> None:
    packed = lengths.pack(seqlen, seed, packing)
    assert sum(packed) == seqlen
    assert min(packed) >= 1
    assert packed == lengths.pack(seqlen, seed, packing)


def test_default_distributions_by_length() -> None:
    sizes = {1: "pile", 12 * K: "pile", 12 * K + 1: "prolong64k", 64 * K: "prolong64k", 64 * K + 1: "prolong512k", 1 << 24: "prolong512k"}
    assert {size: lengths.default_for(size).name for size in sizes} == sizes


def test_the_four_distributions() -> None:
    assert lengths.names() == ["pile", "prolong64k", "prolong512k", "chatqa2"]
    assert [len(lengths.named(name).uppers) for name in lengths.names()] == [41, 44, 42, 12]
    assert [lengths.named(name).uppers[-1] for name in lengths.names()] == [9323168, 61920, 475872, 4 << 20]
    for name in lengths.names():
        assert sum(lengths.named(name).weights) == pytest.approx(1, abs=0.005)
    published = [0.16, 0.05, 0.04, 0.06, 0.08, 0.21, 0.4, 0.2, 0.05, 0.04, 0.01, 0.01]
    assert lengths.named("chatqa2").weights == pytest.approx([weight / 1.31 for weight in published])


@given(st.integers(1, 400_000), st.integers(0, 1000))
def test_mixed_is_two_fifths_drawn_and_the_rest_long(seqlen: int, seed: int) -> None:
    rng, short = Random(seed), int(0.4 * seqlen)
    expected = by_the_book(short, lengths.default_for(seqlen), rng)
    while sum(expected) < seqlen:
        expected.append(min(rng.randint(8192, 30720), seqlen - sum(expected)))
    rng.shuffle(expected)
    assert lengths.mixed(seqlen, seed) == expected


@given(st.integers(1, 3000), st.integers(0, 5))
def test_chunked_packs_follow_one_another_without_gaps(seqlen: int, drawing: int) -> None:
    packs = [lengths.chunked(seqlen, 20 * drawing + number) for number in range(20)]
    quarter = max(1, seqlen // 4)
    rng, pieces = Random(drawing), list[int]()
    for length in by_the_book(20 * seqlen, lengths.named("chatqa2"), rng):
        pieces += [quarter] * (length // quarter)
        pieces += [length % quarter] if length % quarter else []
    rng.shuffle(pieces)
    ends = {sum(pieces[: n + 1]) for n in range(len(pieces))}
    position = 0
    for pack in packs:
        assert sum(pack) == seqlen
        assert max(pack) <= quarter
        for length in pack:
            position += length
            ends.discard(position)
    assert not ends  # every piece of the drawing ends where a document of a pack ends


def test_chunked_takes_another_distribution() -> None:
    tiny = Distribution("tiny", (3,), (1.0,))
    assert max(lengths.chunked(1000, 0, tiny)) <= 3
    assert lengths.pack(1000, 0, "chunked", tiny) == lengths.chunked(1000, 0, tiny)


@pytest.mark.parametrize("call", [lengths.draw, lengths.mixed, lengths.chunked, lengths.pack, lambda seqlen: lengths.fit([1], seqlen)])
@pytest.mark.parametrize("seqlen", [0, -5])
def test_nothing_to_fill_is_refused(call: object, seqlen: int) -> None:
    with pytest.raises(BadInput, match=f"must be 1 or more, not {seqlen}"):
        call(seqlen)  # type: ignore[operator]


@pytest.mark.parametrize("packing", PACKERS)
def test_lengths_of_endless_sequences_are_not_drawn(packing: str) -> None:
    with pytest.raises(BadInput, match="drawn for at most 4G tokens, not 4294967297; give fewer, or your own lengths"):
        lengths.pack((1 << 32) + 1, 0, packing)
    assert lengths.fit([1 << 40], 1 << 40) == [1 << 40]


def test_names_nobody_knows() -> None:
    with pytest.raises(BadInput, match="unknown packing 'drawn'; did you mean 'draw'"):
        lengths.pack(8, 0, "drawn")
    with pytest.raises(BadInput, match="unknown length distribution 'prolong'; did you mean 'prolong64k'"):
        lengths.find("prolong")
    for name in ("", " ", "x" * 5000, "nul\0"):
        with pytest.raises(BadInput, match="unknown length distribution"):
            lengths.find(name)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.data())
def test_own_lengths_are_cut_to_fit(given_lengths: list[int], data: st.DataObject) -> None:
    seqlen = data.draw(st.integers(1, sum(given_lengths)))
    fitted = lengths.fit(given_lengths, seqlen)
    assert sum(fitted) == seqlen
    assert fitted[:-1] == given_lengths[: len(fitted) - 1]
    assert 1 <= fitted[-1] <= given_lengths[len(fitted) - 1]


# -- files ---------------------------------------------------------------------------------------------------------------------


def test_documents_beyond_the_sequence_are_noted() -> None:
    assert lengths.cut_note([500, 700], [1200]) == []
    (note,) = lengths.cut_note([500, 700], [1200, 1024, 64])
    assert note == "the given documents hold 1200 tokens, and what is beyond the sequence (64, 1024 tokens) is cut off"


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "[3, 5, 1]"), ("json.txt", " [3, 5, 1]"), ("a.txt", "3 5\n1\n"), ("a.csv", "3,5,1"), ("a", " 3, 5,\n1 ")]
)
def test_lengths_from_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert lengths.read_lengths(tmp_path / name) == [3, 5, 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.csv", "# upper, probability\n10, .25\n\n40, .75\n"),
        ("d.json", "[[10, 0.25], [40, 0.75]]"),
        ("e.json", '{"10": 0.25, "40": 0.75}'),
    ],
)
def test_distributions_from_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    distribution = lengths.find(str(tmp_path / name))
    assert (distribution.name, distribution.uppers, distribution.weights) == (name, (10, 40), (0.25, 0.75))
    drawn = lengths.draw(4000, 0, distribution)
    assert max(drawn) <= 40
    assert sum(length <= 10 for length in drawn) / len(drawn) == pytest.approx(0.25, abs=0.1)


BAD_LENGTHS = [
    ("a.txt", "3 five 1", "entry 2 holds 'five'"),
    ("a.txt", "3 0", "entry 2 holds '0'"),
    ("a.txt", "9" * 5000, r"entry 1 holds '9{37}\.\.\.'"),
    ("a.txt", "2305843009213693953", "entry 1 holds '2305843009213693953'"),
    ("a.txt", "", "holds no document lengths"),
    ("a.json", "[3, true]", "entry 2 is wrong .*got `bool`"),
    ("a.json", "[3, 5, 0]", "entry 3 is wrong .*>= 1"),
    ("a.json", '{"a": 3}', "the file is wrong .*got `object`"),
    ("a.json", "[]", "holds no document lengths"),
    ("a.json", "[3,", "the file is wrong .*truncated"),
    ("a.json", "[" * 100_000, "entry 1 is wrong .*got `array`"),
    ("binary", None, "it is not a text file"),
    ("none/a.txt", None, r"cannot read document lengths from .*: No such file"),
]
BAD_DISTRIBUTIONS = [
    ("d.json", "[[10, 0], [20, 0]]", "must sum to 1 .*, not 0"),
    ("d.json", "[[10, 0.5], [20, 0.4]]", r"must sum to 1 \(within 0.01\), not 0.9"),
    ("d.json", '{"10": 0.5, "10": 0.5}', "must sum to 1 .*, not 0.5"),
    ("d.json", "[[10, 1], [20, -1]]", "must be 0 or more, not -1"),
    ("d.json", "[[10, NaN]]", "is no length distribution"),
    ("d.json", "[[20, 1], [10, 1]]", "must be positive and rising"),
    ("d.json", "[[0, 1]]", "entry 1 is wrong .*>= 1"),
    ("d.json", "[]", "must be positive and rising"),
    ("d.json", "[[1, 2, 3]]", "entry 1 is wrong .*length 2"),
    ("d.json", "[[10, 0.5], [100.7, 0.5]]", "entry 2 is wrong .*got `float`"),
    ("d.json", '{"100.7": 1}', "an entry is wrong"),
    ("d.json", '{"1":' * 100_000, "an entry is wrong .*got `object`"),
    ("d.csv", "10,.5\n100.7,.5", "entry 2 holds '100.7'"),
    ("d.csv", "10,.5\n20,half", "entry 2 holds 'half'"),
    ("d.csv", "10,nan", "must be 0 or more, not nan"),
    ("d.csv", "x" * 200_000, "is not CSV"),
    ("d.csv", "", "must be positive and rising"),
    ("binary.csv", None, "it is not a text file"),
    ("none/d.csv", None, r"cannot read a length distribution from .*: No such file"),
]


@pytest.mark.parametrize(
    ("read", "name", "text", "sentence"),
    [*((lengths.read_lengths, *row) for row in BAD_LENGTHS), *((lengths.find, *row) for row in BAD_DISTRIBUTIONS)],
)
def test_bad_files_are_one_sentence(read: Callable[[str], object], name: str, text: str | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if path.parent == tmp_path:
        path.write_bytes(b"\xff\xfe\x00\x9f" if text is None else text.encode())
    with pytest.raises(BadInput, match=sentence) as refusal:
        read(str(path))
    said = str(refusal.value)
    assert path.name in said
    assert "\n" not in said
    assert said.endswith(".")
    assert len(said) < 300 + len(str(path))


@pytest.mark.parametrize("factor", [0.9905, 1.0, 1.0095])
def test_probabilities_sum_to_about_one(factor: float) -> None:
    assert Distribution("own", (3, 5), (0.25 * factor, 0.75 * factor)).weights == (0.25 * factor, 0.75 * factor)
    with pytest.raises(BadInput, match="need as many probabilities"):
        Distribution("own", (3, 5, 7), (0.25, 0.75))


def test_a_file_without_ending_is_found_before_a_name_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("10,1\n")
    assert lengths.find("mine").uppers == (10,)
    Path("lengths.json").write_text(json.dumps(lengths.draw(1000)))
    assert sum(lengths.read_lengths("lengths.json")) == 1000
    assert all(low < high for low, high in pairwise(lengths.named("pile").uppers))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_shares_are_those_of_every_length(uppers: list[int], rng: Random) -> None:
    """Against the probability of each single length; a bucket has both ends, as the packer draws them."""
    weights = [rng.random() + 0.01 for _ in uppers]
    own = Distribution("own", tuple(sorted(uppers)), tuple(weight / sum(weights) for weight in weights))
    documents, tokens = Counter[int](), Counter[int]()
    for low, high, weight in zip((0, *own.uppers[:-1]), own.uppers, own.weights, strict=True):
        for length in range(low, high + 1):
            documents[int(math.log2(max(1, length)))] += weight / (high + 1 - low)
            tokens[int(math.log2(max(1, length)))] += weight / (high + 1 - low) * max(1, length)
    expected = shares.of_distribution(own)
    assert expected.documents == pytest.approx([documents[n] for n in range(len(expected.documents))])
    assert expected.tokens == pytest.approx([tokens[n] / tokens.total() for n in range(len(expected.tokens))])


def test_distributions_and_own_lengths_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("1 2 3 900")
    listing = longca.ls("distributions", "pile", png=tmp_path / "lengths.png", lengths=tmp_path / "own.txt")
    assert [(row["name"], row["longest"]) for row in listing.rows] == [("pile", 9323168), ("own.txt", 900)]
    assert listing.png == tmp_path / "lengths.png"
    assert listing.png.read_bytes().startswith(b"\x89PNG")
    assert shares.of_lengths([1, 2, 3, 900]).documents == [0.25, 0.5, *[0.0] * 7, 0.25]
    with pytest.raises(BadInput, match=r"must end in \.png"):
        longca.ls("distributions", png=tmp_path / "lengths.jpg")
    with pytest.raises(BadInput, match="are for `longca ls distributions`"):
        longca.ls("masks", png=tmp_path / "lengths.png")
