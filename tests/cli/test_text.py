import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.errors import BadInput
from longca.text import (
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
    parse_memory,
    parse_number,
    parse_settings,
    parse_size,
    plural,
    shape_options,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("997", 997), ("8K", 8192), ("8k", 8192), ("1M", 1 << 20), ("2G", 1 << 31), (" 1.5K ", 1536), ("0", 0), ("-3", -3), ("1e3", 1000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 1 << 62))
def test_a_size_survives_being_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "K", "8Q", "eight", "1.5", "nan", "inf", "1.0001K", "8 8", "infK"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadInput, match="is not a size; write a whole number"):
        parse_size(text)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.0, "as fast as"), (1.004, "as fast as"), (1.06, "6 % ahead of"), (1.99, "99 % ahead of"), (2.0, "2.0 times as fast as"),
     (4.04, "4.0 times as fast as"), (33.6, "33.6 times as fast as")],
)  # fmt: skip
def test_a_lead_of_100_percent_or_more_is_a_factor(ratio: float, words: str) -> None:
    assert format_lead(ratio) == words


HUGE = ["1e30", "1e200", "1e308", "-1e30", "9223372036854775808", "9" * 400, "9" * 4000, "1e300K", "8589934592G"]


@pytest.mark.parametrize("text", HUGE)
def test_numbers_beyond_64_bits_are_refused_in_a_short_sentence(text: str) -> None:
    for parse in (parse_size, parse_number, lambda text: parse_settings([f"w={text}"]), lambda text: parse_axes([f"w=1,{text}"])):
        with pytest.raises(BadInput, match="is too large; write a number of at most 9223372036854775807") as refusal:
            parse(text)  # type: ignore[operator]
        assert len(str(refusal.value)) < 130


@pytest.mark.parametrize("text", ["1e400", "9" * 5000, "-1e400", "9" * 5000 + "K"])
def test_numbers_beyond_floats_are_refused_in_a_short_sentence(text: str) -> None:
    for parse in (parse_size, parse_number, parse_heads, parse_dims):
        with pytest.raises(BadInput) as refusal:
            parse(text)  # type: ignore[operator]
        assert len(str(refusal.value)) < 130


def test_the_largest_number_is_read_exactly() -> None:
    assert parse_size("9223372036854775807") == parse_number("9223372036854775807") == 2**63 - 1
    assert parse_settings(["w=9223372036854775807"]) == {"w": 2**63 - 1}


@pytest.mark.parametrize("text", ["1e300G", "1e30M", "0G", "nanG", "80", ""])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(BadInput, match="is not an amount of memory"):
        parse_memory(text)


def test_numbers_may_be_fractions() -> None:
    assert [parse_number(text) for text in ("0.5", "1K", "2.0", "-1")] == [0.5, 1024, 2, -1]
    for text in ("x", "nan", "-inf", ""):
        with pytest.raises(BadInput, match="is not a number"):
            parse_number(text)


def test_settings() -> None:
    assert parse_settings(["w=1K", " p = 3 ,g=0.5"]) == {"w": 1024, "p": 3, "g": 0.5}
    assert parse_settings([]) == {}


@pytest.mark.parametrize("entry", ["w", "=3", "w=", "1=2", "w w=2"])
def test_what_is_no_setting(entry: str) -> None:
    with pytest.raises(BadInput, match="is not a setting; write name=value"):
        parse_settings([entry])
    with pytest.raises(BadInput, match="w is set twice"):
        parse_settings(["w=1", "w=2"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 minutes"), (7000, "117 minutes"), (7200, "2 hours"), (172800, "2 days"), (1597286, "18 days")],
)
def test_durations_are_said_in_the_unit_that_suits_them(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (512, "512 bytes"),
        (1 << 20, "1 MiB"),
        (int(1.5 * 2**30), "1.5 GiB"),
        (999 << 30, "999 GiB"),
        (4000 << 30, "3.91 TiB"),
        (1023 << 30, "0.999 TiB"),
        (1 << 46, "64 TiB"),
        (5000 << 60, "5,000 EiB"),
    ],
)
def test_memory_is_said_in_the_unit_that_suits_it(size: int, words: str) -> None:
    assert format_memory(size) == words


def test_one_is_no_plural() -> None:
    assert [plural(count, "cell") for count in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 256), st.integers(1, 256))
def test_a_shape_survives_being_written(group: int, heads_kv: int, size: int, size_v: int) -> None:
    shape = {"heads_q": group * heads_kv, "heads_kv": heads_kv, "head_dim": size, "head_dim_v": size_v}
    assert parse_heads(format_heads(shape)) == (group * heads_kv, heads_kv)
    assert parse_dims(format_dims(shape)) == (size, size_v)


def test_a_shape_in_words_and_as_options() -> None:
    shape = {"heads_q": 64, "heads_kv": 8, "head_dim": 128, "head_dim_v": 128, "dtype": "bf16"}
    assert format_shape(shape) == "64:8 heads of 128"
    assert shape_options(shape | {"head_dim": 192}) == ["--heads", "64:8", "--head-dim", "192/128", "--dtype", "bf16"]
