"""Sizes, settings and shapes that are read and written, and texts that are shortened."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.errors import BadInput
from longca.text import (
    LONGEST_WORD,
    format_dims,
    format_duration,
    format_heads,
    format_lead,
    format_memory,
    format_shape,
    format_size,
    parse_axes,
    parse_dims,
    parse_heads,
    parse_number,
    parse_settings,
    parse_size,
    shape_options,
    short,
    with_remark,
)


@pytest.mark.parametrize("longest", range(5, 60))
def test_a_short_text_ends_with_a_whole_word(longest: int) -> None:
    text = "out is off by 0.0123456789 at most, where 0.0000012345 is allowed"
    cut = short(text, longest)
    assert len(cut) <= longest
    assert text.startswith(cut.removesuffix("…"))
    assert text[len(cut) - 1] == " " or len(text[: len(cut) - 1].split()[-1]) >= longest // 4, cut


def test_a_long_word_is_cut() -> None:
    assert short("a " + "b" * 500) == "a " + "b" * 397 + "…"
    assert short("b" * LONGEST_WORD, 20) == "b" * 19 + "…"


def test_a_remark_stays_whole_beside_a_long_reason() -> None:
    line = with_remark("0.0123456789 " * 60, "in a later call it raises ValueError")
    assert len(line) <= 400
    assert line.endswith("0.0123456789…; in a later call it raises ValueError")


@pytest.mark.parametrize(
    ("text", "size"),
    [("997", 997), ("8K", 8192), ("8k", 8192), ("1M", 1 << 20), ("2G", 1 << 31), (" 1.5K ", 1536), ("0", 0), ("-3", -3), ("1e3", 1000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 1 << 62))
def test_a_size_survives_being_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


HUGE = ["1e30", "1e200", "1e308", "-1e30", "9223372036854775808", "9" * 400, "9" * 4000, "1e300K", "8589934592G"]


@pytest.mark.parametrize("text", HUGE)
def test_numbers_beyond_64_bits_are_refused_in_a_short_sentence(text: str) -> None:
    for parse in (parse_size, parse_number, lambda text: parse_settings([f"w={text}"]), lambda text: parse_axes([f"w=1,{text}"])):
        with pytest.raises(BadInput, match="is too large; write a number of at most 9223372036854775807") as refusal:
            parse(text)  # type: ignore[operator]
        assert len(str(refusal.value)) < 130


def test_numbers_may_be_fractions() -> None:
    assert [parse_number(text) for text in ("0.5", "1K", "2.0", "-1")] == [0.5, 1024, 2, -1]
    for text in ("x", "nan", "-inf", ""):
        with pytest.raises(BadInput, match="is not a number"):
            parse_number(text)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 256), st.integers(1, 256))
def test_a_shape_survives_being_written(group: int, heads_kv: int, size: int, size_v: int) -> None:
    shape = {"heads_q": group * heads_kv, "heads_kv": heads_kv, "head_dim": size, "head_dim_v": size_v}
    assert parse_heads(format_heads(shape)) == (group * heads_kv, heads_kv)
    assert parse_dims(format_dims(shape)) == (size, size_v)


def test_figures_are_said_in_the_unit_that_suits_them() -> None:
    assert [format_lead(ratio) for ratio in (1.004, 1.06, 2.0)] == ["as fast as", "6 % ahead of", "2.0 times as fast as"]
    assert [format_duration(seconds) for seconds in (119, 120, 7200)] == ["119 s", "2 minutes", "2 hours"]
    assert [format_memory(size) for size in (512, 999 << 30, 1023 << 30)] == ["512 bytes", "999 GiB", "0.999 TiB"]


def test_a_shape_in_words_and_as_options() -> None:
    shape = {"heads_q": 64, "heads_kv": 8, "head_dim": 128, "head_dim_v": 128, "dtype": "bf16"}
    assert format_shape(shape) == "64:8 heads of 128"
    assert shape_options(shape | {"head_dim": 192}) == ["--heads", "64:8", "--head-dim", "192/128", "--dtype", "bf16"]
