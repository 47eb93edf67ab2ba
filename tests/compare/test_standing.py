"""One kernel against the best other of its journal."""

from collections.abc import Sequence

from journals import Record
from longca.compare.standing import tables
from longca.results.groups import Groups, groups_of
from longca.results.reading import Results
from longca.results.schema import decode_record
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
