"""The axis of a setting's charts."""

from longca.results.frames import frame_of
from longca.results.naming import rows
from report.made import Record, blocks, kernel, results_of


def layout(records: list[Record]) -> tuple[str, list[tuple[str, float]]]:
    named = rows(results_of(records))
    frame = frame_of(named)
    return frame.axis, sorted({frame.place(row) for row in named})


def test_masks_of_bands_stand_over_tokens() -> None:
    made = [kernel("a", [1.0], "fwd", mask=mask, seqlen=n) for mask in ("causal", "full") for n in (1024, 2048)]
    assert layout(made) == ("seqlen", [("causal", 1024), ("causal", 2048), ("full", 1024), ("full", 2048)])


def test_patterns_stand_over_their_share_where_there_are_more_shares_than_lengths() -> None:
    made = [
        blocks("a", [1.0], seqlen=n) | {"params": {"b": 64, "ratio": ratio, "heads": 8}} for n in (1024, 2048) for ratio in (0.1, 0.5, 0.9)
    ]
    assert layout(made[:3]) == ("ratio", [("uniform_block b=64", 0.1), ("uniform_block b=64", 0.5), ("uniform_block b=64", 0.9)])
    axis, places = layout(made)
    assert axis == "ratio"
    assert {panel for panel, _ in places} == {"uniform_block b=64, 1K", "uniform_block b=64, 2K"}
    assert layout([record for record in made if record["params"]["ratio"] == 0.5])[0] == "seqlen"


def split(ranks: int, seqlen: int) -> Record:
    return kernel("a", [1.0], "fwd", level="cp", method="ring", ranks=ranks, grid=f"1x{ranks}", seqlen=seqlen)


def test_methods_stand_over_gpus_with_as_many_tokens_in_all_or_on_each() -> None:
    assert layout([split(n, 8192 * n) for n in (8, 16)]) == ("ranks", [("causal", 8), ("causal", 16)])
    assert layout([split(n, 65536) for n in (8, 16)]) == ("ranks", [("causal", 8), ("causal", 16)])
    mixed = [split(n, tokens * n) for tokens in (4096, 8192) for n in (8, 16, 32)]
    assert {panel for panel, _ in layout(mixed)[1]} == {"causal, 4K per GPU", "causal, 8K per GPU"}
    assert layout([split(8, n) for n in (8192, 16384)]) == ("seqlen", [("causal ×8", 8192), ("causal ×8", 16384)])
