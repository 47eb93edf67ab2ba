"""Questions with so few tiles of rows that part of a GPU may be idle: their error is unknown."""

import pytest

from journals import Write
from longca.cli import main
from longca.recommend.idle import FILLED, row_tiles
from longca.recommend.question import Question
from recommend.cells import answer, cell

LENGTHS = tuple(n << 10 for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 24, 32))
SHAPES = ((64, 8), (8, 1))


def many(heads: tuple[tuple[int, int], ...] = SHAPES) -> list[dict[str, object]]:
    return [cell("fa4:bands", n, 500.0, heads_q=q, heads_kv=kv) for n in LENGTHS for q, kv in heads if n * q >= 65536]


@pytest.mark.parametrize(
    ("heads", "seqlen", "tiles"), [("1:1", 8192, 64), ("8:1", 8192, 512), ("64:8", 1000, 504), ("64:8", 1024, 512), ("2:2", 129, 4)]
)
def test_tiles_have_128_rows_of_the_query_heads_of_one_kv_head(heads: str, seqlen: int, tiles: int) -> None:
    assert row_tiles(Question.parse("causal", seqlen, heads=heads)) == tiles


@pytest.mark.parametrize(
    ("heads", "seqlen", "is_known"),
    [("1:1", "8K", False), ("4:1", "8K", False), ("64:8", "512", False), ("64:8", "9K", True), ("8:8", "9K", True)],
)
def test_fewer_tiles_than_any_measured_cell_have_an_unknown_error(write: Write, heads: str, seqlen: str, is_known: bool) -> None:
    found = answer(write("made", many()), seqlen, heads=heads)
    assert found.best is not None
    assert found.nearest is not None
    tiles = row_tiles(found.question)
    assert (tiles < FILLED) is not is_known
    why = f"the call has {tiles} tiles of 128 rows and the measured cells have 512 or more, so part of the GPU may be idle"
    assert found.nearest.unknown == (() if is_known else (f"{why} and the times too short",))
    assert (found.best.ms_range is not None) is is_known


def test_cells_as_small_as_the_question_tell_its_error(write: Write) -> None:
    """The same question has a range where such cells were measured, and on a CPU, which few tiles fill."""
    small = [cell("fa4:bands", n, 500.0, heads_q=q, heads_kv=1) for n in LENGTHS for q in (1, 2)]
    known = answer(write("small", [*many(), *small]), "9K", heads="1:1").best
    assert known is not None
    assert known.ms_range is not None
    cpu = {"device": "Some CPU", "device_kind": "cpu"}
    found = answer(write("cpu", [record | {"kernel": "torch", "variant": "plain"} for record in many()], cpu), "8K", heads="4:1")
    assert found.nearest is not None
    assert found.nearest.unknown == ()


def test_the_shipped_records_do_not_tell_the_time_of_one_head(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--mask", "causal", "--heads", "1:1", "--seqlen", "8K"]) == 0
    (
        first,
        *_,
    ) = said = capsys.readouterr().out.splitlines()
    assert first.endswith("scaled from other measurements, error unknown.")
    assert any(line.startswith("the error of these times is unknown: the call has 64 tiles of 128 rows") for line in said)
    assert "likely range" not in "\n".join(said)
