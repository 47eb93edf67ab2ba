"""Texts that are shortened."""

import pytest

from longca.text import LONGEST_WORD, short, with_remark


@pytest.mark.parametrize("longest", range(5, 60))
def test_a_short_text_ends_with_a_whole_word(longest: int) -> None:
    text = "out is off by 0.0123456789 at most, where 0.0000012345 is allowed"
    cut = short(text, longest)
    assert len(cut) <= longest
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    whole = text[len(cut) - 1] == " "
    assert whole or len(text[: len(cut) - 1].split()[-1]) >= longest // 4, cut


def test_a_long_word_is_cut() -> None:
    assert short("a " + "b" * 500) == "a " + "b" * 397 + "…"
    assert short("b" * LONGEST_WORD, 20) == "b" * 19 + "…"


def test_what_fits_stays() -> None:
    assert short("one two", 7) == "one two"
    assert short("one two three", 8) == "one two…"


def test_a_remark_stays_whole_beside_a_long_reason() -> None:
    line = with_remark("0.0123456789 " * 60, "in a later call it raises ValueError")
    assert len(line) <= 400
    assert line.endswith("0.0123456789…; in a later call it raises ValueError")
