"""Distributions, packers and files."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import lengths
from longca.errors import BadInput
from longca.lengths import Distribution
from longca.lengths.packers import PACKERS

K = 1024
GOLDEN = {
    1 * K: [353, 559, 102, 10],
    8 * K: [353, 559, 102, 421, 322, 13],
    16 * K: [545, 719, 166, 581, 482, 27],
}


def by_the_book(seqlen: int, distribution: Distribution, rng: Random) -> list[int]:
    """The paper's packer, written plainly."""
    total, lows, drawn = sum(distribution.weights), [0, *distribution.uppers[:-1]], list[int]()
    while sum(drawn) < seqlen:
        weights = [weight / total for weight in distribution.weights]
        bucket = rng.choices(range(len(weights)), weights=weights)[0]
        drawn.append(min(max(1, rng.randint(lows[bucket], distribution.uppers[bucket])), seqlen - sum(drawn)))
    return drawn


@pytest.mark.parametrize("seqlen", GOLDEN)
def test_golden_first_documents(seqlen: int) -> None:
    assert lengths.draw(seqlen, seed=42)[: len(GOLDEN[seqlen])] == GOLDEN[seqlen]


@pytest.mark.parametrize(
    ("seqlen", "count", "longest", "density"),
    [(1 * K, 4, 559, None), (8 * K, 17, 3608, 0.2251), (16 * K, 25, 4167, 0.1101), (32 * K, 59, None, 0.0393), (48 * K, 77, None, 0.0281)],
)
def test_golden_packings(seqlen: int, count: int, longest: int | None, density: float | None) -> None:
    packed = lengths.draw(seqlen, seed=42)
    assert packed == by_the_book(seqlen, lengths.default_for(seqlen), Random(42))
    assert (len(packed), sum(packed)) == (count, seqlen)
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
    for name in ("pile", "prolong64k", "prolong512k"):
        assert sum(lengths.named(name).weights) == pytest.approx(1, abs=0.005)
    assert sum(lengths.named("chatqa2").weights) == pytest.approx(1.31)


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


def test_names_nobody_knows() -> None:
    with pytest.raises(BadInput, match="unknown packing 'drawn'; did you mean 'draw'"):
        lengths.pack(8, 0, "drawn")
    with pytest.raises(BadInput, match="unknown length distribution 'prolong'; did you mean 'prolong64k'"):
        lengths.find("prolong")


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.data())
def test_own_lengths_are_cut_to_fit(given_lengths: list[int], data: st.DataObject) -> None:
    seqlen = data.draw(st.integers(1, sum(given_lengths)))
    fitted = lengths.fit(given_lengths, seqlen)
    assert sum(fitted) == seqlen
    assert fitted[:-1] == given_lengths[: len(fitted) - 1]
    assert 1 <= fitted[-1] <= given_lengths[len(fitted) - 1]


# -- files ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), [("a.json", "[3, 5, 1]"), ("a.txt", "3 5\n1\n"), ("a.csv", "3,5,1"), ("a", " 3, 5,\n1 ")])
def test_lengths_from_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert lengths.read_lengths(tmp_path / name) == [3, 5, 1]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.txt", "3 five 1", "holds 'five' where a document length"),
        ("a.txt", "3 0", "holds '0' where a document length"),
        ("a.txt", "3 -1", "holds '-1' where a document length"),
        ("a.txt", "1.5", "holds '1.5' where a document length"),
        ("a.txt", "9" * 5000, "where a document length"),
        ("a.txt", "", "holds no list of document lengths"),
        ("a.json", "[3, true]", "holds True where a document length"),
        ("a.json", "[3, 2.0]", "holds 2.0 where a document length"),
        ("a.json", "[3, [2]]", r"holds \[2\] where a document length"),
        ("a.json", '{"a": 3}', "holds no list of document lengths"),
        ("a.json", "[]", "holds no list of document lengths"),
        ("a.json", "[3,", "is not JSON"),
        ("a.json", "[" + "9" * 5000 + "]", "is not JSON"),
    ],
)
def test_bad_length_files(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=sentence):
        lengths.read_lengths(tmp_path / name)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read document lengths from .*: No such file"):
        lengths.read_lengths(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x9f")
    with pytest.raises(BadInput, match="it is not a text file"):
        lengths.read_lengths(tmp_path / "binary")
    with pytest.raises(BadInput, match=r"cannot read the length distribution .*: No such file"):
        lengths.find(str(tmp_path / "none.csv"))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x9f")
    with pytest.raises(BadInput, match="is no length distribution"):
        lengths.find(str(tmp_path / "binary.csv"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("d.csv", "# upper, probability\n10, 1\n\n40, 3\n"), ("d.json", "[[10, 1], [40, 3]]"), ("e.json", '{"10": 1, "40": 3}')],
)
def test_distributions_from_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = lengths.find(str(tmp_path / name))
    assert (found.name, found.uppers, found.weights) == (name, (10, 40), (1, 3))
    drawn = lengths.draw(4000, 0, found)
    assert max(drawn) <= 40
    assert sum(length <= 10 for length in drawn) / len(drawn) == pytest.approx(0.25, abs=0.1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[10, 0], [20, 0]]", "sum to more than 0"),
        ("[[10, 1], [20, -1]]", "must be 0 or more"),
        ("[[10, NaN]]", "must be 0 or more"),
        ("[[20, 1], [10, 1]]", "must be positive and rising"),
        ("[[0, 1]]", "must be positive and rising"),
        ("[]", "must be positive and rising"),
        ("[[Infinity, 1]]", "is no length distribution"),
        ("[[1, 2, 3]]", "is no length distribution"),
        ('[["a", 1]]', "is no length distribution"),
        ("5", "is no length distribution"),
        ("{", "is no length distribution"),
    ],
)
def test_bad_distributions(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(BadInput, match=sentence):
        lengths.find(str(tmp_path / "d.json"))


def test_a_file_without_ending_is_found_before_a_name_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("10,1\n")
    assert lengths.find("mine").uppers == (10,)
    Path("lengths.json").write_text(json.dumps(lengths.draw(1000)))
    assert sum(lengths.read_lengths("lengths.json")) == 1000
    assert all(low < high for low, high in pairwise(lengths.named("pile").uppers))
