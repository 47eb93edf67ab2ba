"""Expressions and files that show the same pairs as a mask by name are answered by its records."""

from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca.cli import main
from longca.recommend.question import Question
from longca.recommend.same_mask import plainer
from recommend.cells import answer, cell


@pytest.mark.parametrize(
    ("mask", "params", "same"),
    [
        ("causal & causal", {}, ("causal", {})),
        ("causal | ~causal", {}, ("full", {})),
        ("causal & sliding_window", {}, ("sliding_window_causal", {})),
        ("causal & sliding_window", {"w": 300}, ("sliding_window_causal", {"w": 300})),
        ("causal & sliding_window(w=1024)", {}, ("sliding_window_causal", {})),
        ("sliding_window_causal(w=1024)", {}, ("sliding_window_causal", {})),
        ("causal & sliding_window(w=300)", {}, None),
        ("causal & full_document", {}, ("causal_document", {})),
        ("causal - sliding_window", {}, None),
        ("causal_document & sliding_window(w=2000)", {}, None),  # equal only where all documents are short
        ("share_question & causal_document", {}, ("causal_document", {})),
        ("causal_document | share_question", {}, ("share_question", {})),
        ("sliding_window_causal", {"w": 2047}, ("causal", {})),
        ("sliding_window_causal", {"w": 2046}, None),
        ("causal", {}, None),
    ],
)
def test_the_mask_that_is_the_same(mask: str, params: dict[str, Any], same: tuple[str, dict[str, Any]] | None) -> None:
    found = plainer(Question.parse(mask, 2048, params=params))
    assert (found and (found.mask, dict(found.params))) == same


def test_the_records_of_the_same_mask_answer(write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write("made", [cell("fa4:bands", n, 500.0) for n in (8192, 16384)])
    file = str(longca.masks.write_mask(longca.masks.causal(8192), tmp_path / "mine.json"))
    for mask, seqlen in (("causal & causal", "8K"), ("causal & causal", "12K"), (file, "8K")):
        found = answer(folder, seqlen, mask)
        assert found.best is not None
        assert (found.best.tflops, found.same_as, found.nearest is None) == (pytest.approx(500.0), "causal", seqlen == "8K")
    words = ["recommend", "--seqlen", "8K", "--pass", "fwd", "--results", str(folder), "--mask", "causal & causal"]
    assert main(words) == 0
    assert "at this length the mask shows the same pairs as causal, whose records answer." in capsys.readouterr().out
    assert main([*words, "--code"]) == 0
    assert 'longca.masks.build("causal & causal", 8192, ' in capsys.readouterr().out
