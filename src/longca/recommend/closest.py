"""Where no record answers: what the records lack, why there is no nearest answer, and which records come closest."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Sequence

from longca.recommend.basis import EXTRAS
from longca.recommend.geometry import FARTHEST
from longca.recommend.matching import Near, asked_value
from longca.recommend.nearest import unbuildable
from longca.recommend.nearest_error import VARYING
from longca.recommend.neighbours import distance, shape_of
from longca.recommend.question import Question
from longca.recommend.simulated import OPEN_FLAGS
from longca.results.points import grouped
from longca.text import format_size, format_tokens, parse_size

SHOWN = 3  # sentences on records, the closest first


def closest(question: Question, others: Sequence[Near], simulated: Sequence[str] = ()) -> list[str]:
    """What is lacking, then what the closest records have instead: the sentences on `simulated` ones that answer, records that differ in
    one flag only, or else by shape. Simulated records are named only where a cluster is asked for, or where nothing but the cluster is
    lacking."""
    near = [one for one in others if question.cluster or not one.record.simulated or [*one.differences] == ["--cluster"]]
    if not near:
        return [f"there is no {'measured ' if others else ''}record of {question.mask} at all.", *simulated]
    apart = [one for one in near if not (simulated and one.differences.keys() <= OPEN_FLAGS)]  # commands with these flags are named
    flags = dict.fromkeys(flag for one in apart if len(one.differences) == 1 for flag in one.differences)
    instead = [_instead(flag, apart, "simulated" if question.cluster else "measured") for flag in flags]
    shapes = [] if instead or simulated else _shapes(question, near)
    return [_lacking(question, near), *simulated, *(instead or shapes)[:SHOWN], *_too_far(question, near)]


def _lacking(question: Question, near: Sequence[Near]) -> str:
    """The flags that no record has, or not together, and why no nearest answer does without them."""
    counting = [one for one in near if question.cluster or not one.record.simulated] or near
    missing = [flag for flag in counting[0].differences if all(flag in one.differences for one in counting)]
    fewest = min(len(one.differences) for one in counting)
    apart = dict.fromkeys(flag for one in counting if len(one.differences) == fewest for flag in one.differences)
    flags = sorted(missing or _several(apart, counting), key=lambda flag: flag in VARYING)
    values = [asked_value(question, flag) for flag in flags]
    what = _joined(values, "or") if missing else f"{_joined(values, 'and')} together"
    kind = "simulated" if question.cluster else "measured"
    lacking = f"there is no {kind} record of {question.mask} {what}"
    free = {*VARYING, *(flag for flag in EXTRAS if asked_value(question, flag).startswith("with "))}  # what records without it answer
    fixed = [value for flag, value in zip(flags, values, strict=True) if flag not in free and flag in (missing or apart)]
    if question.exact:
        return f"{lacking}, and --exact excludes nearest answers."
    if reason := unbuildable(question):
        return f"{lacking}, and {reason}."
    scaled = "it is scaled over lengths, heads, head sizes and parameters of the mask only"
    return f"{lacking}; a nearest answer needs one {_joined(fixed, 'and')}, as {scaled}." if fixed else f"{lacking}."


def _several(apart: Iterable[str], near: Sequence[Near]) -> list[str]:
    """These flags; where it is only one, then also those that the closest records with its value lack."""
    flags = [*apart]
    others = [one.differences for one in near if flags[0] not in one.differences]
    if len(flags) > 1 or not others:
        return flags
    fewest = min(map(len, others))
    return list(dict.fromkeys([*flags, *(flag for differences in others if len(differences) == fewest for flag in differences)]))


def _joined(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _shapes(question: Question, near: Sequence[Near]) -> list[str]:
    """The lengths of each shape; those with as many GPUs first, then those that differ in the fewest flags, then the nearest shapes."""

    def order(group: Sequence[Near]) -> tuple[object, ...]:
        is_other_level = bool(group[0].record.problem.ranks) != (
            question.gpus > 1
        )  # of one GPU where many are asked for, or the other way round
        return is_other_level, min(len(one.differences.keys() - VARYING) for one in group), distance(question, group)

    groups = sorted(grouped(near, lambda one: (bool(one.record.problem.ranks), _shape(one))).values(), key=order)
    return [f"there are records of {question.mask} at {_sizes(group)} with {_shape(group[0])}." for group in groups]


def _sizes(group: Iterable[Near]) -> str:
    """Lengths, each with its number of GPUs: '64K on 8 GPUs, 128K on 16 GPUs'."""
    sizes = sorted({(one.record.problem.seqlen, one.record.problem.ranks or 0) for one in group})
    return ", ".join(f"{format_size(seqlen)}{f' on {ranks} GPUs' if ranks else ''}" for seqlen, ranks in sizes)


def _shape(near: Near) -> str:
    simulated = f" (simulated on {near.record.simulated})" if near.record.simulated else ""
    return f"{shape_of(near.record)}, {near.record.problem.dtype}, {near.environment.name}{simulated}"


def _too_far(question: Question, others: Sequence[Near]) -> list[str]:
    """Says how far a nearest answer reaches, where the length alone rules it out."""
    one_device = [near for near in others if near.differences.keys() <= set(VARYING) and not near.record.method]
    lengths = [near.record.problem.seqlen for near in one_device]
    if question.exact or question.gpus > 1 or not lengths:
        return []
    least, most = math.ceil(min(lengths) / FARTHEST), int(max(lengths) * FARTHEST)
    if least <= question.seqlen <= most:
        return []
    return [f"a nearest answer reaches from {format_size(least)} to {format_tokens(most)}: {FARTHEST:g} times the measured lengths."]


def _by_numbers(value: object) -> list[str | int]:
    """A key that sorts 8:8 before 64:8."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(value))]


def _instead(flag: str, others: Sequence[Near], how: str) -> str:
    """What the records that differ in this flag only have instead."""
    values = {near.differences[flag] for near in others if list(near.differences) == [flag]}
    if flag == "--seqlen":
        lengths = sorted(map(parse_size, values))
        return f"{how} lengths are {', '.join(map(format_size, lengths))}."
    shown = []
    for value in sorted(values, key=_by_numbers):
        is_switch = not value or isinstance(value, bool)
        shown.append(f"with{'' if value else 'out'} {flag}" if is_switch else f"with {flag} {shlex.quote(str(value))}")
    return f"there are records {' or '.join(shown)}."
