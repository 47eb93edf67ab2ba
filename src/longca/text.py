"""Reads what a user types: sizes such as 8K, settings such as w=512, shapes such as 64:8; and writes text and progress for people."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from unicodedata import category

from longca.errors import BadInput

LONGEST_REASON = 400  # characters
LONGEST_WORD = 40  # letters that a text is cut before its longest length, to end with a whole word
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # as compilers put them into their messages
LARGEST = (1 << 63) - 1  # of all numbers that are read: records hold 64-bit numbers
ASKED_GPU = re.compile(r"Tried to allocate ([\d.]+ \w+)(?:.*? of which ([\d.]+ \w+) is free)?", re.DOTALL)  # as torch tells it
ASKED_CPU = re.compile(r"DefaultCPUAllocator.* tried to allocate (\d+) bytes", re.DOTALL)
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LINE = 79  # letters of a line that is written over; one that wraps cannot be
NOTEBOOK_LINE = 110
MEMORY_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "KB": 10**3}


def short(text: str, longest: int = LONGEST_REASON) -> str:
    """The text as one line of bounded length that can be shown and written anywhere. It is cut between words, so that no number loses
    digits; a long word is cut itself."""
    line = printable(" ".join(COLOURS.sub("", text).split()))
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    whole_words = cut.rpartition(" ")[0] if line[longest - 1] != " " else cut
    return (whole_words if len(cut) - len(whole_words) <= min(LONGEST_WORD, longest // 4) else cut) + "…"


def with_remark(reason: str, remark: str) -> str:
    """The reason and the remark as one line of bounded length; where both are too long together, the reason is cut more than the remark."""
    remark = short(remark, LONGEST_REASON // 2)
    return f"{short(reason, LONGEST_REASON - len(remark) - 2)}; {remark}"


def printable(text: str) -> str:
    """The text without what disturbs a terminal or cannot be written as UTF-8: control characters, halves of surrogate pairs."""
    if text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if category(letter) in ("Cc", "Cs") else letter for letter in text)


@cache
def parse_size(text: str) -> int:
    """A whole number, with K, M or G for 1024, 1024² and 1024³: '8K' is 8192, '1.5K' is 1536, '997' is 997."""
    digits, unit = text.strip(), 1
    if digits[-1:].upper() in UNITS:
        digits, unit = digits[:-1], UNITS[digits[-1].upper()]
    try:
        value = int(digits) * unit
    except ValueError:
        value = _whole(digits, unit, text)
    if abs(value) > LARGEST:
        raise _too_large(text)
    return value


def _whole(digits: str, unit: int, text: str) -> int:
    try:
        value = float(digits) * unit
    except ValueError:
        value = math.nan
    if math.isfinite(value) and abs(value) > LARGEST:
        raise _too_large(text)
    if not math.isfinite(value) or value != int(value):
        raise BadInput(f"{_short(text)} is not a size; write a whole number such as 8192, 8K or 1M.")
    return int(value)


class TooLarge(BadInput):
    """A number that 64 bits do not hold."""


def _too_large(text: str) -> TooLarge:
    return TooLarge(f"{_short(text)} is too large; write a number of at most {LARGEST} (64 bits).")


def _short(text: str) -> str:
    """The text in quotes, cut where it would fill the screen."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


@cache
def format_size(size: int) -> str:
    """The short form of a size where it is exact: 8192 is '8K', 997 stays '997'."""
    for letter, unit in reversed(UNITS.items()):
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def format_tokens(count: int) -> str:
    """'1 token', '8K tokens'."""
    return f"{format_size(count)} token{'' if count == 1 else 's'}"


def slug(name: str) -> str:
    """A name as a part of a file's name or of a label: small letters, digits and single hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()


def plural(count: int, noun: str) -> str:
    """'1 cell', '2 cells'."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def part_of(count: int, total: int, noun: str) -> str:
    """'1 of 3 cells is', '2 of 3 cells are'."""
    return f"{count} of {plural(total, noun)} {'is' if count == 1 else 'are'}"


def format_lead(ratio: float) -> str:
    """How far one kernel is ahead of another that takes `ratio` times as long: '6 % ahead of', '4.0 times as fast as'."""
    percent = round(100 * (ratio - 1))
    if percent >= 100:
        return f"{ratio:.1f} times as fast as"
    return f"{percent} % ahead of" if percent else "as fast as"


def format_duration(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two: '45 s', '12 minutes', '18 days'."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return plural(round(seconds / size), unit)
    return f"{seconds:.0f} s"


def parse_memory(text: str) -> int:
    """Bytes: '80GiB', '80G' or '0.3g', in units of 1024; '80GB', in units of 1000. A number without a unit is refused."""
    typed = text.strip().upper()
    digits = typed.rstrip("KMGIB")
    units = UNITS | {name.upper(): unit for name, unit in MEMORY_UNITS.items()}
    try:
        value = float(digits) * units.get(typed.removeprefix(digits), 0)
    except ValueError:
        value = math.nan
    if not 0 < value <= LARGEST:
        raise BadInput(f"{_short(text)} is not an amount of memory; write a number over 0 and its unit, such as 80GiB, 80G or 512M.")
    return int(value)


def format_memory(size: float) -> str:
    """Bytes with three digits in the largest unit of which there is one: '1.5 GiB', '512 MiB', '3.91 TiB'."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while value >= 999.5 and len(units) > 1:  # what three digits would round to 1000
        value, units = value / 1024, units[1:]
    return f"{value:.3g} {units[0]}" if value < 999.5 else f"{value:,.0f} {units[0]}"


def out_of_memory(message: str) -> str:
    """A short sentence from the message of an allocator."""
    asked = asked_memory(message)
    return f"out of memory: {asked}" if asked else short(message) or "out of memory"


def asked_memory(message: str) -> str:
    """'it asked for 24.00 GiB at once, and 13.37 GiB were free', from the message of an allocator; empty where it tells neither."""
    if asked := ASKED_GPU.search(message):
        return f"it asked for {asked[1]} at once{f', and {asked[2]} were free' if asked[2] else ''}"
    asked = ASKED_CPU.search(message)  # in a line of torch's source code
    return f"it asked for {format_memory(int(asked[1]))} at once" if asked else ""


def parse_number(text: str) -> int | float:
    """A whole number, a size such as 1K, or a fraction such as 0.5."""
    try:
        return parse_size(text)
    except TooLarge:
        raise
    except BadInput:
        pass
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{_short(text)} is not a number; write one such as 512, 1K or 0.5.")
    return value


def parse_settings(entries: Iterable[str]) -> dict[str, int | float]:
    """Settings from entries such as 'name=value' or 'name=value,name=value'."""
    settings: dict[str, int | float] = {}
    for entry in (part for text in entries for part in text.split(",") if part.strip()):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (equals and name.isidentifier() and value):
            raise BadInput(f"{entry.strip()!r} is not a setting; write name=value, such as w=512.")
        if name in settings:
            raise BadInput(f"{name} is set twice; give it once.")
        settings[name] = parse_number(value)
    return settings


def parse_axes(entries: Iterable[str]) -> dict[str, list[int | float]]:
    """Settings as `parse_settings` takes them, each with one or more values: 'ratio=.2,.5,b=64'."""
    settings: dict[str, list[int | float]] = {}
    for text in entries:
        name = ""
        for part in parse_list(text):
            if "=" in part or not name:
                ((name, value),) = parse_settings([part]).items()
                if name in settings:
                    raise BadInput(f"{name} is set twice; give it once, with all its values.")
                settings[name] = [value]
            else:
                settings[name].append(parse_number(part))
    return settings


def parse_list(text: str) -> list[str]:
    """The entries between commas; commas in parentheses or quotes belong to their entry."""
    entries, depth, quote = [""], 0, ""
    for letter in text:
        if letter in "'\"":
            quote = "" if quote == letter else quote or letter
        depth += 0 if quote else (letter == "(") - (letter == ")" and depth > 0)
        if letter == "," and depth == 0 and not quote:
            entries.append("")
        else:
            entries[-1] += letter
    return [entry.strip() for entry in entries if entry.strip()]


def parse_heads(text: str) -> tuple[int, int]:
    """'64:8' is 64 query heads and 8 KV heads; '8' is 8 of both."""
    query, colon, kv = text.partition(":")
    wanted = "heads such as 64:8"
    heads_q, heads_kv = _positive(query, text, wanted), _positive(kv if colon else query, text, wanted)
    refuse_heads(heads_q, heads_kv)
    return heads_q, heads_kv


def refuse_heads(heads_q: int, heads_kv: int) -> None:
    if not heads_q or not heads_kv or heads_q % heads_kv:
        raise BadInput(f"{heads_q}:{heads_kv}: the number of query heads must be a multiple of the number of KV heads.")


def parse_dims(text: str) -> tuple[int, int]:
    """'128' is the head size of q, k and v; '192/128' gives v its own."""
    size, slash, size_v = text.partition("/")
    wanted = "a head size such as 128 or 192/128"
    return _positive(size, text, wanted), _positive(size_v if slash else size, text, wanted)


def format_heads(shape: Mapping[str, Any]) -> str:
    """The heads of a record, or of anything with its fields, in the form that `parse_heads` reads."""
    return f"{shape['heads_q']}:{shape['heads_kv']}"


def format_dims(shape: Mapping[str, Any]) -> str:
    """The head size as `parse_dims` reads it; V's own follows where it differs."""
    size, size_v = shape["head_dim"], shape["head_dim_v"]
    return str(size) if size == size_v else f"{size}/{size_v}"


def format_shape(shape: Mapping[str, Any]) -> str:
    """Heads and head size in words: '64:8 heads of 128'."""
    return f"{format_heads(shape)} heads of {format_dims(shape)}"


def shape_options(shape: Mapping[str, Any]) -> list[str]:
    """The options that ask for this shape, with its softcap, sinks and scale where they are not the usual ones."""
    words = ["--heads", format_heads(shape), "--head-dim", format_dims(shape), "--dtype", str(shape["dtype"])]
    words += [word for name in ("softcap", "scale") if shape.get(name) for word in (f"--{name}", f"{shape[name]!r}")]
    return [*words, "--sinks"] if shape.get("sinks") else words


def format_extras(shape: Mapping[str, Any]) -> list[str]:
    """Softcap, sinks and scale in words, where they are not the usual ones."""
    words = [f"{name} {shape[name]:.6g}" for name in ("softcap", "scale") if shape.get(name)]
    return [*words, "sinks"] if shape.get("sinks") else words


def _positive(digits: str, text: str, wanted: str) -> int:
    digits = digits.strip()
    if not digits.isdecimal() or len(digits) > 9 or int(digits) < 1:
        raise BadInput(f"{_short(text)} is not understood; write {wanted}.")
    return int(digits)


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel: its output is no terminal, and yet somebody looks at it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def write_over(text: str) -> None:
    """Writes a line in the place of the last one, in a terminal or a notebook; an empty text clears it. A log gets nothing."""
    if in_notebook():
        print(f"\r{short(text, NOTEBOOK_LINE):<{NOTEBOOK_LINE}}", end="\r" if not text else "", flush=True)
    elif sys.stderr.isatty():
        print(f"\r{text:<{LINE}.{LINE}}", end="\r", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Prints a line that stays, below which the line that is written over goes on."""
    write_over("")
    print(text, file=sys.stderr, flush=True)
