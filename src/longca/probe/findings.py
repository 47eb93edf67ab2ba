"""Facts about a probed model: what it sees against its mask, and which mistakes explain the difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longca.probe.expected import Bools, Ints, Setting, direct, mistakes, mistakes_of_one_layer, reach, through
from longca.probe.losses import EXPECTED, loss_mistakes
from longca.probe.reading import Floats, Reading

FP32_LOSS = 2.0**-17  # frameworks compute a loss in fp32 also where outputs are fp64
FAR = 1e4  # times nothing, from which on what several layers make of a token is expected to show
SURE = 16  # times the largest change that rounding explains
LEAK, BLIND, RANKS, POSITIONS, LOSS, SINKS = "leak", "blind", "ranks", "positions", "loss", "sinks"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `pairs`: (row, token) in question; `causes`: names of the mistakes that explain all of it."""

    kind: str
    ranks: int
    pairs: tuple[tuple[int, int], ...] = ()
    causes: tuple[str, ...] = ()
    backward: bool = False  # seen in gradients, not in outputs
    value: float = 0.0  # of `ranks` and `positions` the largest difference, of `loss` the reported one
    expected: float = 0.0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """Of some pairs of a row and a token, how much the row depends on it, and the certain ones: `yes` depends on it, `no` does not."""

    rows: Ints
    tokens: Ints
    size: Floats
    floor: float  # up to here a size is nothing
    yes: Bools
    no: Bools

    def required(self, layers: Sequence[Bools]) -> Bools:
        """The pairs that must not be `no`: those that some layer shows, and those that are reached by a hop in each layer, where such a
        product of dependences is well above nothing."""
        cut = np.ix_(self.rows, self.tokens)
        shown = direct(layers)[cut]
        usual = float(np.median(self.size[shown & self.yes])) if (shown & self.yes).any() else 0.0
        return shown | through(layers)[cut] if usual ** len(layers) > FAR * self.floor else shown


def forward_pairs(reading: Reading, probes: Sequence[int]) -> Seen:
    """What changed outputs show."""
    floor = max(reading.noise * 4, reading.epsilon * 4)
    change = reading.change
    return Seen(reading.tokens, np.array(probes), change, floor, ~(change <= SURE * floor), change <= floor)


def backward_pairs(reading: Reading, rows: Sequence[int]) -> Seen | None:
    """What gradients show. A hidden key gets exactly nothing; much less than rounding counts as nothing."""
    if reading.gradient is None:
        return None
    floor = reading.epsilon**2
    size = reading.gradient
    return Seen(np.array(rows), reading.tokens, size, floor, ~(size <= reading.epsilon), size <= floor)


def visibility(setting: Setting, seen: Seen, backward: bool) -> list[Finding]:
    """Leaks (a row depends on a token that it must not see) and blindness (it does not depend on one that some layer shows it)."""
    cut = np.ix_(seen.rows, seen.tokens)
    findings = []
    for kind, wrong in ((LEAK, seen.yes & ~reach(setting.layers)[cut]), (BLIND, seen.no & seen.required(setting.layers))):
        if wrong.any():
            pairs = [(int(seen.rows[row]), int(seen.tokens[token])) for row, token in np.argwhere(wrong)]
            findings.append(Finding(kind, setting.ranks, tuple(pairs), tuple(causes(setting, seen)), backward))
    return findings


def causes(setting: Setting, seen: Seen) -> list[str]:
    """The mistakes that explain every certain pair, those of all layers before those of one."""
    cut = np.ix_(seen.rows, seen.tokens)
    for suspected in (mistakes(setting), mistakes_of_one_layer(setting)):
        named = [
            name for name, layers in suspected if not (seen.yes & ~reach(layers)[cut]).any() and not (seen.no & seen.required(layers)).any()
        ]
        if named:
            return list(dict.fromkeys(named))
    return []


def rank_difference(setting: Setting, alone: Reading, together: Reading) -> list[Finding]:
    """Rows whose output depends on the number of ranks by more than rounding."""
    difference, scale = np.abs(together.outputs - alone.outputs).max(1), float(alone.outputs.std()) or 1.0
    wrong = np.flatnonzero(~(difference <= _rounding(alone) * scale))
    if not len(wrong):
        return []
    pairs = tuple((int(row), int(row)) for row in wrong)
    first = int(wrong[0])
    borders = np.flatnonzero(np.diff(setting.owner)) + 1
    causes = ("positions or order are wrong from a rank's border on",) if first in borders else ()
    return [Finding(RANKS, setting.ranks, pairs, causes, value=float(np.nanmax(difference) / scale))]


def _rounding(reading: Reading) -> float:
    """How far outputs may differ because sums have another order."""
    return max(64 * reading.noise, 2.0**10 * reading.epsilon)


def repeated_prefixes(setting: Setting) -> list[tuple[int, int, int]]:
    """(start, start, length) of beginnings of two documents that see nothing else and have the same mask: the same ids must give the same
    outputs there, if positions begin anew with each document."""
    starts = np.cumsum([0, *setting.documents])[:-1].tolist()
    first, found = 0, []
    for start, length in zip(starts[1:], setting.documents[1:], strict=True):
        size = min(setting.documents[0], length)
        one, other = slice(first, first + size), slice(start, start + size)
        same = all(
            np.array_equal(layer[one, one], layer[other, other])
            and layer[one].sum() == layer[one, one].sum()
            and layer[other].sum() == layer[other, other].sum()
            for layer in setting.layers
        )
        if same and size > 1:
            found.append((first, start, size))
    return found


def share_prefixes(ids: Ints, prefixes: Iterable[tuple[int, int, int]]) -> Ints:
    """The ids with those of the first document repeated at the beginning of the others."""
    ids = ids.copy()
    for one, other, size in prefixes:
        ids[other : other + size] = ids[one : one + size]
    return ids


def positions(setting: Setting, reading: Reading) -> list[Finding]:
    """Whether documents that begin with the same ids have the same outputs there."""
    scale, worst, pairs = float(reading.outputs.std()) or 1.0, 0.0, []
    for one, other, size in repeated_prefixes(setting):
        difference = np.abs(reading.outputs[one : one + size] - reading.outputs[other : other + size]).max(1) / scale
        wrong = np.flatnonzero(~(difference <= _rounding(reading)))
        pairs += [(other + int(place), one + int(place)) for place in wrong]
        worst = max(worst, float(difference.max()))
    causes = ("positions do not begin anew with each document",)
    return [Finding(POSITIONS, setting.ranks, tuple(pairs), causes, value=worst)] if pairs else []


def loss(setting: Setting, reading: Reading, ids: NDArray[np.int64], logits: Floats) -> list[Finding]:
    """Compares the reported loss with the mean over all tokens that have a label, computed from the logits of one rank."""
    if reading.loss is None or logits.shape[1] <= int(ids.max()):
        return []
    reported = reading.loss
    known = list(loss_mistakes(logits, ids, setting.documents, setting.owner))
    expected = known[0][1]

    def fits(value: float) -> bool:
        return abs(value - reported) <= max(_rounding(reading), FP32_LOSS) * max(1.0, abs(value))

    if fits(expected):
        return []
    named = tuple(dict.fromkeys(name for name, value in known if name != EXPECTED and fits(value)))
    return [Finding(LOSS, setting.ranks, causes=named, value=reported, expected=expected)]
