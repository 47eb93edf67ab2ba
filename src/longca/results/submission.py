"""A packed copy of a journal for publication, without private texts, and the texts in it that its owner should read."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from longca.errors import BadInput
from longca.results import files
from longca.results.host_names import REMOVED
from longca.results.journal import CannotWrite, Journal
from longca.results.merge import pack
from longca.results.packing import read_bytes
from longca.results.private_text import Cleaner, PrivateText
from longca.results.publishable import problems
from longca.results.reading import history, read
from longca.results.record import AT_FAULT, Status
from longca.text import short

FAILED = (*AT_FAULT, Status.OOM)
NO_NAMES = ("backward_kind", "check", "clock", "cpu", "device", "device_kind", "dtype", "level", "limits", "ms", "pass", "status")
VERSIONS = ("packages", "versions")  # by package


class FreeText(NamedTuple):
    """A text that a library or a system wrote, where it stands, and how many cells have it, also with other numbers."""

    place: str
    text: str
    cells: int


class Submission(NamedTuple):
    """What was written where, how many cells have a time, how many are wrong or failed, by status, in how many texts private parts were
    removed, and the free texts that remain, the most likely to have more of them first."""

    folder: Path
    home: str  # where it goes in the repository
    timed: int
    failed: dict[Status, int]
    cleaned: int
    texts: list[FreeText]


def home(device: str) -> str:
    """The folder of a device below results/: NVIDIA H200 is h200."""
    words = re.findall(r"[a-z0-9]+", device.lower().replace("(r)", " ").replace("(tm)", " "))
    return "-".join(word for word in words if word not in ("nvidia", "amd", "intel", "cpu", "processor")) or "other"


def prepare(
    folder: str | Path, out: str | Path, private: Sequence[str] = (), keep: Sequence[str] = (), name: str | None = None
) -> Submission:
    """Writes a packed copy of a journal to `out`/<device>/<name>, without folders of paths, hosts, accounts and the words in `private`;
    words in `keep` stay. Raises BadInput, and leaves no copy, if something private remains in it."""
    if found := problems(folder):
        raise BadInput(f"{folder} cannot be submitted: {found[0]}")
    texts = PrivateText(private, keep)
    environments, masks, records = files.read_environments(folder), files.read_masks(folder).entries, history(folder)
    place = home(environments[records[-1].env].name)
    target = Path(out) / place / _checked_name(name or Path(folder).resolve().name, texts)
    if target.exists():
        raise BadInput(f"{target} exists; remove it, or give another --name or --out.")
    clean = Cleaner(texts, {name for record in records for name in (record.problem.mask, record.kernel, record.asked)})
    try:
        with Journal(target) as journal:
            for env, environment in environments.items():
                journal.add_environment(env, clean(environment))
            for entry in masks:
                journal.add_mask(clean(entry))
            for record in records:
                journal.add(clean(record))
        pack(target)
        refuse_private(target, texts)
    except (CannotWrite, BadInput):
        _remove(target)
        raise
    written = read(target).records
    failed = Counter(record.status for record in written if record.status in FAILED)
    timed = sum(record.ok for record in written)
    return Submission(target, f"results/{place}/{target.name}", timed, dict(failed), clean.changed, free_texts(target))


def _checked_name(name: str, texts: PrivateText) -> str:
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise BadInput(f"{name!r} is no name for the copy; give --name with letters, digits, '-' and '_'.")
    if remains := texts.remains(name):
        raise BadInput(f"the copy would be named {name!r}, which holds {remains}; give another one with --name.")
    return name


def _remove(target: Path) -> None:
    """Removes a copy, and the folders above that were made for it."""
    shutil.rmtree(target, ignore_errors=True)
    with suppress(OSError):  # they hold other copies
        target.parent.rmdir()
        target.parent.parent.rmdir()


def refuse_private(folder: Path, texts: PrivateText) -> None:
    """Raises BadInput if a text in the files of a journal, as they lie on the disk, holds a path, a host, an account or a private word."""
    passed: set[tuple[str, bool]] = set()
    for file, field, text in _all_texts(folder):
        words = field not in NO_NAMES
        if (text, words) in passed:
            continue
        if remains := texts.remains(text, words):
            advice = "rename it and measure again, or give --keep WORD if it is not private"
            raise BadInput(f"{field!r} in {file} still holds {short(remains, 100)}, so no copy was written; {advice}.")
        passed.add((text, words))


def _all_texts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Every text in a journal, keys included, with its file and field."""
    for name, environment in msgspec.json.decode((folder / files.ENVIRONMENTS).read_bytes()).items():
        yield files.ENVIRONMENTS, "name", name
        for field, value in environment.items():
            yield from ((files.ENVIRONMENTS, field, text) for text in _texts_of(field, value))
    for file in (files.RESULTS, files.MASKS):
        for line in msgspec.json.Decoder().decode_lines(read_bytes(folder / file)):
            for field, value in line.items():
                yield from ((file, field, text) for text in _texts_of(field, value))


def _texts_of(field: str, value: Any) -> Iterator[str]:
    """The texts of a field; a version is called one, since 10.3.9.90 alone is also an address."""
    if field in VERSIONS and isinstance(value, dict):
        yield from value
        value = [f"version {number}" for number in value.values()]
    yield from _texts(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, int | float):
                yield from _texts(item)


def free_texts(folder: Path) -> list[FreeText]:
    """The free texts of a journal, one of those that differ only in numbers: messages of what failed, the systems and the plugin files,
    and then the reasons why cells were not tried."""
    groups: dict[tuple[int, str, str], FreeText] = {}
    environments = files.read_environments(folder)
    lines = [(1, "system", environment.system or "", 0) for environment in environments.values()]
    lines += [(1, "plugin", file, 0) for environment in environments.values() for file in environment.plugins]
    lines += [
        (2 if record.status in (Status.SKIPPED, Status.UNSUPPORTED) else 0, record.status.value, record.reason, 1)
        for record in files.read_results(folder).entries
    ]
    for rank, place, text, cells in lines:
        if text.strip(REMOVED):
            group = (rank, place, re.sub(r"\d[\d.,]*", "0", text))
            known = groups.get(group, FreeText(place, text, 0))
            groups[group] = known._replace(cells=known.cells + cells)
    return [groups[group] for group in sorted(groups, key=lambda group: (group[0], -groups[group].cells))]
