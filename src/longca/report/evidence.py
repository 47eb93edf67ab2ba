"""The records that an answer may stand on: the journals that come with LongCA, or the user's own, each record with where it is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from longca.bench import journal
from longca.report.gather import read_masks
from longca.report.reading import Drawn, Record, journals, journals_below, read, read_environments
from longca.report.reproduce import command

PACKAGE = Path(__file__).parents[1]
# in an installed package; in a source checkout
SHIPPED = (PACKAGE / "results", PACKAGE.parents[1] / "results")


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """A record, the journal it stands in, and the machine it was measured on."""

    record: Record
    folder: Path
    facts: Record
    drawn: Drawn  # the journal's masks

    def __repr__(self) -> str:
        """Which record it is: a journal's masks alone would fill a terminal."""
        return f"Evidence({str(self.file)!r}, key={self.record['key']!r}, pass={self.record['pass']!r}, seed={self.record['seed']!r})"

    @property
    def device(self) -> str:
        return str(self.facts.get("device") or "unknown device")

    @property
    def on_cpu(self) -> bool:
        return self.facts.get("device_kind") == "cpu"

    @property
    def file(self) -> Path:
        plain = self.folder / journal.RESULTS
        return plain if plain.exists() else plain.with_name(journal.RESULTS + ".gz")

    def again(self, seeds: Sequence[int] = ()) -> str:
        """The command that measures it again, or all that differ from it in their seed."""
        return command(self.record, {self.record["env"]: self.facts}, self.drawn, seeds)

    def to_json(self) -> Record:
        facts = {name: self.facts.get(name) for name in ("date", "commit", "longca")}
        names = {name: self.record.get(name) for name in ("key", "pass", "seed", "mask_digest", "simulated", "noisy")}
        return {"file": str(self.file), "device": self.device, **facts, **names, "command": self.again()}


def shipped() -> list[Path]:
    """The journals that come with LongCA, wherever it runs from. What lies beside an installed package is somebody else's."""
    package, checkout = SHIPPED
    places = [package, checkout] if (checkout.parent / "pyproject.toml").is_file() else [package]
    return next((found for place in places if (found := journals_below(place))), [])


def load(folders: Sequence[str | Path] | None = None) -> list[Evidence]:
    """All records of these folders, in order, or of the shipped ones; of two with one key the last counts."""
    found: dict[str, Evidence] = {}
    for folder in journals(folders) if folders else shipped():
        for one in _journal(folder, _stamp(folder)):
            found.pop(one.record["key"], None)  # a later one also stands later
            found[one.record["key"]] = one
    return list(found.values())


def _stamp(folder: Path) -> tuple[int, ...]:
    """Changes when a journal does: a program that asks often should not read often."""
    return tuple(path.stat().st_mtime_ns for name in (journal.RESULTS, f"{journal.RESULTS}.gz") if (path := folder / name).exists())


@lru_cache(maxsize=16)
def _journal(folder: Path, stamp: tuple[int, ...]) -> list[Evidence]:
    environments, drawn = read_environments(folder), read_masks(folder)
    return [Evidence(record, folder, environments.get(record["env"], {}), drawn) for record in read(folder)]
