"""Sentences on choices of `best`: why a kernel runs, why it was not autotuned, and what no kernel can do."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from longca.kernels.base import Case
from longca.kernels.choice.choice import TIE, Choice, Obstacle, Option, Source, is_tie
from longca.masks import AnyMask, BlockMask
from longca.text import format_lead, format_size, plural

if TYPE_CHECKING:
    from longca.kernels.choice.chooser import Contest
    from longca.kernels.choice.records import ClassRecords

OBSTACLES: dict[Obstacle, str] = {
    "deterministic": "the choice must not depend on a clock where determinism is asked for",
    "ranks": "no autotuning in a job of several ranks",
    "graph": "nothing can be timed while a CUDA graph is captured",
    "torch.func": "nothing can be timed inside torch.func",
    "long": "no autotuning for a call of so much work",
    "memory": "there is no memory for the inputs of autotuning",
}
EQUAL = f"within {100 * TIE:g} %, with less workspace or the kernel of the forward"


def why(asked: Contest, choice: Choice | None, pass_: str, likely: str) -> str:
    """Returns why a kernel runs a pass, or which ones autotuning would time."""
    if choice is None:
        return _undecided(asked, pass_, likely)
    label = choice.by_pass[pass_]
    if choice.source == "autotuning":
        return _autotuned(label, choice.options[pass_])
    if len(choice.options[pass_]) == 1:
        return "no other kernel that is available here can do this"
    reason = f"; {OBSTACLES[choice.obstacle]}" if choice.obstacle else ""
    if choice.source == "preference":
        return f"first by preference{reason}"
    return (_lead(asked, pass_, label) or "no other kernel is left") + reason


def _undecided(asked: Contest, pass_: str, likely: str) -> str:
    labels, lead = [kernel.label for kernel in asked.entrants.of(pass_)], _lead(asked, pass_, likely)
    if len(labels) == 1:
        return lead or "no other kernel supports this"
    return f"{lead}; autotuning decides between {', '.join(labels)}" if lead else f"no records: autotuning would time {', '.join(labels)}"


def _lead(asked: Contest, pass_: str, label: str) -> str:
    """Returns how far ahead of the next one records show a kernel; empty where they do not."""
    known = asked.known[pass_]
    own = known.slower(label)
    others = [(option.slower, option.kernel) for option in asked.options(pass_) if option.slower is not None and option.kernel != label]
    if own is None or not others:
        return ""
    slower, second = min(others, key=itemgetter(0))
    ahead = f"as fast as {second} {EQUAL}" if slower < own else f"{format_lead(slower / own)} {second}"
    return f"{_described(known.entries[0], known.tuned)}: {ahead}"


def _described(entry: ClassRecords, tuned: bool) -> str:
    kind = entry.mask.replace(", 1/", ", density near 1/")
    source = f"`longca tune` on {entry.device}" if tuned else f"records of {entry.device}"
    return f"{source}, {kind}, about {format_size(entry.seqlen)} tokens, {entry.heads} heads of {entry.head_dim}"


def _autotuned(label: str, options: Sequence[Option]) -> str:
    own = next(option.ms for option in options if option.kernel == label)
    others = [(option.ms, option.kernel) for option in options if option.kernel != label and option.ms is not None]
    if own is None or not others:
        return f"autotuned: {label} runs, and no other kernel did"
    took, (ms, second) = f"autotuned: {label} takes {own:.3g} ms", min(others, key=itemgetter(0))
    if is_tie(max(own, ms), min(own, ms)):
        return f"{took}, as fast as {second} ({ms:.3g} ms) {EQUAL}"
    if ms < own:
        return f"{took}, and is the fastest in both passes together; {second} takes {ms:.3g} ms in this one"
    return f"{took}, {format_lead(ms / own)} {second}"


def not_autotuned(source: Source, obstacle: Obstacle, device: str) -> str:
    """Returns the line that says once which source decides in place of autotuning."""
    decides = f"records of {device} decide" if source == "records" else f"there are no records of {device}, and `preference` decides"
    return f"longca best: {OBSTACLES[obstacle]}; {decides}. `longca tune` measures beforehand."


def wrong(label: str, pass_: str, right: str) -> str:
    """Returns the line about a kernel whose result differs from that of others."""
    name = {"fwd": "forward", "bwd": "backward"}[pass_]
    return f"longca best: {label} is left out, its {name} differs from that of {right}; `longca verify --kernels {label}` shows where."


def missing(mask: AnyMask, case: Case) -> str:
    """Returns what no kernel can do, in a sentence."""
    if not fits(mask, case):
        patterns = f"{mask.name or 'this mask'} has {mask.heads} block patterns for {plural(case.heads_kv, 'KV head')}"
        return f"{patterns}; give one for all heads, or one per KV head."
    extras = [f"a softcap of {case.softcap:g}"] * bool(case.softcap) + ["attention sinks"] * case.sinks
    with_extras = f" with {' and '.join(extras)}" if extras else ""
    what = f"{mask.name or 'this mask'}{with_extras} on {case.device}"
    return f"no kernel that is available here can do {what}; `longca ls kernels` shows why."


def fits(mask: AnyMask, case: Case) -> bool:
    """Returns whether a mask has one pattern for all heads, or one per KV head."""
    return not isinstance(mask, BlockMask) or mask.heads in (1, case.heads_kv)
