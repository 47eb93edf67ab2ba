"""One kernel against the best other of its journal."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from journals import Record
from longca.compare.standing import positions, tables
from longca.results.groups import Groups, groups_of
from longca.results.reading import Results, read
from longca.results.schema import decode_record
from longca.results.tables import TFLOPS
from report.made import kernel, line

FLOPS = kernel("any", [1.0])["flops"]


def measured(name: str, digest: str, tflops: float | None, mask: str = "share_question", **fields: object) -> Record:
    """A record with this speed, or one that is out of memory."""
    if tflops is None:
        return kernel(name, None, "fwd", mask=mask, mask_digest=digest, status="oom", reason="out of memory", **fields)
    return kernel(name, [FLOPS / tflops / 1e9] * 5, "fwd", mask=mask, mask_digest=digest, **fields)


def results(records: Sequence[Record]) -> Groups:
    return groups_of(Results([decode_record(line(record).encode()) for record in records]))


def test_a_kernel_stands_against_the_best_other_on_the_masks_they_share() -> None:
    mine = [measured("mine", "x", 200), measured("mine", "long", None, seqlen=16384)]
    mine += [measured("mine:a", "y", 90, "causal"), measured("mine:b", "y", 100, "causal")]
    others = [measured("fa4", "x", 250), measured("flex", "x", 100), measured("flex", "long", 50, seqlen=16384)]
    (table,) = tables(results([*mine, *others]), "mine")
    assert table.columns == ["mask", "8K", "16K"]
    assert table.rows == [["share_question", "200 0.80x of fa4", "oom"], ["causal", "b 100", ""]], "of several variants the best is named"
    assert tables(results(mine), "mine") == []
    assert tables(results([*mine, *others]), "fa4")[0].rows == [["share_question", "250 1.25x of mine"]], "no row or column without it"
    (variant,) = tables(results([*mine, *others]), "mine:a")  # against its siblings too
    assert variant.rows == [["causal", "90 0.90x of mine:b"]]


def test_noise_of_either_is_marked() -> None:
    for noisy, text in (("mine", "200~ 2.00x~ of flex"), ("flex", "200 2.00x~ of flex")):
        both = [measured(name, "x", speed, noisy=name == noisy) for name, speed in (("mine", 200), ("flex", 100))]
        assert tables(results(both), "mine")[0].rows == [["share_question", text]]


def test_a_kernel_that_failed_on_a_seed_is_out_and_the_other_masks_do_not_count() -> None:
    records = [measured("mine", "x", 300, seed=0), measured("mine", "y", None, seed=1)]
    records += [measured("flex", digest, 100, seed=seed) for seed, digest in enumerate("xy")]
    records += [measured("fa4", "x", 150, seed=0)]
    (position,) = positions(results(records), "mine").values()
    assert (position.own, position.ratio, position.text(TFLOPS)) == (None, None, "oom")
    (table,) = tables(results(records), "flex")
    assert table.rows == [["share_question", "100 0.67x of fa4"]]


@pytest.mark.parametrize("name", ["fa4", "flex", "cudnn"])
def test_it_is_the_ranking_of_the_shipped_results(name: str) -> None:
    """The fastest of all is the kernel itself or its best other."""
    shipped = groups_of(read(Path(__file__).parents[2] / "results" / "h200" / "paper-kernel"))
    stands = positions(shipped, name)
    for group in shipped.measured:
        contest, best = group.contest, group.ranking.best
        if best is not None:
            assert best in (stands[contest].own, stands[contest].other)
            ratio = stands[contest].ratio
            assert ratio is None or ratio <= 1 or best == stands[contest].own
            assert ratio is None or ratio >= 1 or best == stands[contest].other
