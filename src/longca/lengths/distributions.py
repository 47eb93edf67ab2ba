"""Where document lengths come from: buckets of lengths with a probability each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

import msgspec

from longca.errors import BadInput, unknown
from longca.lengths.files import Length, converted, problem, read_text

K = 1024
TOLERANCE = 0.01  # how far from 1 the sum of the probabilities may be; they are normalised
Pairs = list[tuple[Length, float]]

_TABLES = {
    "pile": """32:.029931 64:.063955 96:.064939 128:.070109 160:.071745 192:.070039 224:.067682 256:.059416 288:.053688 320:.038126
        352:.030705 384:.025864 416:.022355 448:.019422 480:.017154 512:.015142 544:.013648 576:.012338 608:.011102 640:.010029
        704:.017699 768:.015366 832:.013425 896:.011622 960:.010074 1056:.01299 1152:.010747 1280:.011763 1440:.012227 1600:.010025
        1792:.010877 2016:.010893 2304:.0106 2720:.010606 3264:.01054 3904:.010051 4704:.010083 5792:.010228 7584:.010093
        14208:.010011 9323168:.002246""",
    "prolong64k": """64:.041225 96:.05438 128:.057541 160:.055729 192:.052027 224:.04831 256:.044587 288:.041382 320:.038608 352:.035
        384:.032118 416:.030124 448:.028552 480:.026684 512:.026249 544:.024683 576:.021875 608:.019907 640:.018437 672:.016788
        704:.015729 736:.014684 768:.013679 800:.012685 832:.011853 864:.010844 928:.019182 992:.016678 1056:.015301 1120:.012752
        1184:.010927 1280:.013861 1376:.011269 1504:.012483 1632:.010406 1792:.010112 2016:.010995 2304:.010428 2720:.010183
        3392:.010054 4768:.010122 8928:.010019 50272:.010008 61920:.001531""",
    "prolong512k": """32:.010066 64:.03596 96:.058496 128:.062776 160:.060632 192:.05615 224:.051602 256:.046961 288:.043527 320:.039809
        352:.035857 384:.032632 416:.0305 448:.028518 480:.026541 512:.026257 544:.02424 576:.021284 608:.019171 640:.017614
        672:.015991 704:.014906 736:.01386 768:.012765 800:.0118 832:.010991 896:.019169 960:.016308 1024:.014782 1088:.012799
        1152:.010717 1248:.013402 1344:.010878 1472:.01175 1632:.011866 1824:.010432 2080:.010402 2464:.010383 3104:.010364
        4544:.010031 10912:.010011 475872:.007308""",
    "chatqa2": """2048:.16 4096:.05 8192:.04 16384:.06 32768:.08 65536:.21 131072:.4 262144:.2 524288:.05 1048576:.04 2097152:.01
        4194304:.01""",
}


@dataclass(frozen=True)
class Distribution:
    """Contiguous buckets: bucket n holds lengths from uppers[n-1] (0 for the first) to uppers[n], both ends included, and has the
    probability weights[n]."""

    name: str
    uppers: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.uppers or any(high <= low for low, high in zip((0, *self.uppers), self.uppers, strict=False)):
            raise BadInput(f"distribution {self.name}: upper bounds must be positive and rising, not {list(self.uppers[:5])}.")
        if len(self.weights) != len(self.uppers):
            raise BadInput(
                f"distribution {self.name}: {len(self.uppers)} upper bounds need as many probabilities, not {len(self.weights)}."
            )
        if wrong := [weight for weight in self.weights if not 0 <= weight < float("inf")]:
            raise BadInput(f"distribution {self.name}: probabilities must be 0 or more, not {wrong[0]}.")
        if abs(sum(self.weights) - 1) > TOLERANCE:
            raise BadInput(f"distribution {self.name}: probabilities must sum to 1 (within {TOLERANCE}), not {sum(self.weights):.6g}.")


class Sampler:
    """Draws lengths from a distribution; the cumulative weights are computed once for all draws."""

    def __init__(self, distribution: Distribution, rng: Random) -> None:
        total = sum(distribution.weights)
        self._cumulative = list(accumulate(weight / total for weight in distribution.weights))
        self._lows = (0, *distribution.uppers[:-1])
        self._highs, self._buckets, self._rng = distribution.uppers, range(len(distribution.uppers)), rng

    def __call__(self) -> int:
        bucket = self._rng.choices(self._buckets, cum_weights=self._cumulative)[0]
        return max(1, self._rng.randint(self._lows[bucket], self._highs[bucket]))


def names() -> list[str]:
    """The distributions of the package."""
    return list(_TABLES)


@cache
def named(name: str) -> Distribution:
    if name not in _TABLES:
        raise unknown("length distribution", name, names())
    pairs = [entry.split(":") for entry in _TABLES[name].split()]
    weights = [float(weight) for _, weight in pairs]
    total = sum(weights) if name == "chatqa2" else 1.0  # as published, chatqa2 sums to 1.31
    return Distribution(name, tuple(int(high) for high, _ in pairs), tuple(weight / total for weight in weights))


def default_for(seqlen: int) -> Distribution:
    """The paper's choice by length."""
    return named("pile" if seqlen <= 12 * K else "prolong64k" if seqlen <= 64 * K else "prolong512k")


def find(name_or_file: str) -> Distribution:
    """A distribution by name, or from a CSV or JSON file with pairs of upper bound and probability."""
    path = Path(name_or_file)
    if name_or_file in _TABLES or not name_or_file.strip() or not (path.suffix or _exists(path)):
        return named(name_or_file)
    return from_file(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # such as a name that is too long for a file
        return False


def from_file(path: Path) -> Distribution:
    """A distribution from CSV lines 'upper bound, probability', or from JSON: a list of such pairs, or an object."""
    text = read_text(path, "a length distribution")
    given = None if path.suffix == ".json" else _rows(text, path)
    try:
        buckets = msgspec.json.decode(text, type=Pairs | dict[Length, float]) if given is None else converted(given, Pairs)
    except msgspec.DecodeError as error:
        wanted = "give pairs of a whole upper bound and a probability, as CSV or JSON"
        raise BadInput(f"{path} is no length distribution; {wanted}, but {problem(error, given)}.") from error
    pairs = list(buckets.items()) if isinstance(buckets, dict) else buckets
    return Distribution(path.name, tuple(high for high, _ in pairs), tuple(weight for _, weight in pairs))


def _rows(text: str, path: Path) -> list[list[str]]:
    """The fields of CSV lines without comments, as JSON writes numbers: .5 is 0.5."""
    try:
        rows = [[field.strip() for field in row] for row in csv.reader(text.splitlines())]
    except csv.Error as error:
        raise BadInput(f"{path} is no length distribution; it is not CSV: {error}.") from error
    return [[f"0{field}" if field.startswith(".") else field for field in row] for row in rows if row and not row[0].startswith("#")]
