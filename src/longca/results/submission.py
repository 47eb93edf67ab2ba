"""Journals for publication: what is missing in one, and a packed copy of it without paths and names."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from longca.errors import BadInput
from longca.results import files
from longca.results.journal import CannotWrite, Journal
from longca.results.merge import pack
from longca.results.reading import history, read
from longca.results.record import AT_FAULT, Environment, Record, Status
from longca.text import plural

NEEDED = ("device", "device_kind", "cpu", "cores", "system", "python", "longca", "packages", "clock", "date")
NEEDED_ON_GPU = ("driver", "gpu_memory_mib", "power_limit_w")
FOLDERS_OF_A_PATH = re.compile(r"""(?<![\w:/.\\])(?:~|[A-Za-z]:)?[/\\](?:[^\s'"`:,;()<>|/\\]+[/\\])+""")
FREE_TEXTS = ("reason", "system", "plugins")  # a private word may be a kernel's name elsewhere
FAILED = (*AT_FAULT, Status.OOM)
REMOVED = "…"
T = TypeVar("T", Record, Environment)


class Submission(NamedTuple):
    """What was written where, how many cells have a time, how many are wrong or failed, by status, and in how many texts folders and names
    were removed."""

    folder: Path
    home: str  # where it goes in the repository
    timed: int
    failed: dict[Status, int]
    cleaned: int


def problems(folder: str | Path) -> list[str]:
    """Why a journal cannot be published, one sentence each; empty where it can."""
    results = read(folder)
    records, environments = results.records, results.environments
    if not any(record.ok or record.status is Status.DOUBTFUL for record in records):
        return ["no cell has a time; offer a journal in which something was measured."]
    found = []
    if simulated := sum(record.simulated is not None for record in records):
        found.append(f"{plural(simulated, 'record')} are simulated; offer what was measured.")
    for record in [record for record in records if record.status is Status.DOUBTFUL][:3]:
        place = f"{record.label} on {record.mask}, {record.seqlen} tokens, {record.pass_}"
        found.append(f"the record of {place} cannot be believed: {record.reason}; measure it again.")
    for name, count in Counter(record.env for record in records if record.env not in environments).items():
        found.append(
            f"env.json does not hold the environment {name} of {plural(count, 'record')}; offer the folder as `longca run` wrote it."
        )
    for name in dict.fromkeys(record.env for record in records if record.env in environments):
        if missing := _missing(environments[name]):
            found.append(f"the environment {name} does not say {', '.join(missing)}; measure with this longca, on a machine that tells it.")
    if len(devices := {environments[record.env].name for record in records if record.env in environments}) > 1:
        found.append(f"it holds figures of {len(devices)} devices ({', '.join(sorted(devices))}); offer one journal for each.")
    return found


def _missing(environment: Environment) -> list[str]:
    needed = NEEDED if environment.on_cpu else NEEDED + NEEDED_ON_GPU
    return [name for name in needed if getattr(environment, name) in (None, "", {})]


def home(device: str) -> str:
    """The folder of a device below results/: NVIDIA H200 is h200."""
    words = re.findall(r"[a-z0-9]+", device.lower().replace("(r)", " ").replace("(tm)", " "))
    return "-".join(word for word in words if word not in ("nvidia", "amd", "intel", "cpu", "processor")) or "other"


def prepare(folder: str | Path, out: str | Path, private: Sequence[str] = ()) -> Submission:
    """Writes a packed copy of a journal to `out`/<device>/<name>, without folders of paths and without the words in `private`."""
    if found := problems(folder):
        raise BadInput(f"{folder} cannot be submitted: {found[0]}")
    environments = files.read_environments(folder)
    records = history(folder)
    place = home(environments[records[-1].env].name)
    target = Path(out) / place / (Path(folder).resolve().name)
    if target.exists():
        raise BadInput(f"{target} exists; remove it, or give another --out.")
    clean = Cleaner(private)
    try:
        with Journal(target) as journal:
            for name, environment in environments.items():
                journal.add_environment(name, clean(environment))
            for entry in files.read_masks(folder).entries:
                journal.add_mask(entry)
            for record in records:
                journal.add(clean(record))
        pack(target)
    except CannotWrite:
        shutil.rmtree(target, ignore_errors=True)
        raise
    written = read(target).records
    failed = Counter(record.status for record in written if record.status in FAILED)
    return Submission(target, f"results/{place}/{target.name}", sum(record.ok for record in written), dict(failed), clean.changed)


class Cleaner:
    """Removes the folders of absolute paths from every text, and private words from free texts; counts the texts that change."""

    def __init__(self, private: Iterable[str]) -> None:
        words = "|".join(sorted((re.escape(word) for word in private if len(word) > 2), key=len, reverse=True))
        self._words = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])") if words else None
        self.changed = 0

    def __call__(self, value: T) -> T:
        fields = msgspec.to_builtins(value)
        return msgspec.convert({name: self._clean(text, name in FREE_TEXTS) for name, text in fields.items()}, type(value))

    def _clean(self, value: Any, free: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, free)
        if isinstance(value, dict):
            return {key: self._clean(item, free) for key, item in value.items()}
        return [self._clean(item, free) for item in value] if isinstance(value, list) else value

    def _text(self, text: str, free: bool) -> str:
        cleaned = FOLDERS_OF_A_PATH.sub("", text)
        if self._words and free:
            cleaned = self._words.sub(REMOVED, cleaned)
        self.changed += cleaned != text
        return cleaned
