"""A packed copy of a journal for publication, without folders of paths and private words, and the texts that its owner should read."""

from __future__ import annotations

import getpass
import platform
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from longca.errors import BadInput
from longca.results import files
from longca.results.journal import CannotWrite, Journal
from longca.results.merge import pack
from longca.results.ranking import SETTLED_S
from longca.results.reading import Results, history, read
from longca.results.record import AT_FAULT, Environment, MaskEntry, Record, Status
from longca.text import plural

NEEDED = ("device", "device_kind", "cpu", "cores", "system", "python", "longca", "packages", "clock", "date")
NEEDED_ON_GPU = ("driver", "gpu_memory_mib", "power_limit_w")
FAILED = (*AT_FAULT, Status.OOM)
NOBODY = ("admin", "debian", "localhost", "nobody", "root", "runner", "ubuntu", "user", "vm")  # names that many machines share
REMOVED = "…"
FREE_TEXTS = ("reason", "system", "plugins")  # what a library, a system or a user wrote; other texts are names
REVIEWED = ("device", "cpu", "driver", "system", "plugins", "packages", "kernel", "asked", "variant", "mask", "distribution", "reason")
NUMBER = re.compile(r"(?<![\w.:])\d+(?:\.\d+)?[KMG]?(?![\w:]|\.\d)")  # 8192, 3.5 and 8K, not node17 and 10.1.2.3
START = r"(?:~[\w.-]*[/\\]|(?:\.\.[/\\])+|[A-Za-z]:[/\\]|[/\\])"  # of a path: ~ada/, ../, C:\ and /
PATH = re.compile(  # in quotes it may have spaces; -I/usr/include is an option and a path
    rf"""(?P<quote>['"`])(?P<quoted>{START}[^'"`\n]+)(?P=quote)"""
    rf"""|(?P<option>(?<![\w-])-[A-Za-z]{{1,8}}|(?<![\w.~/\\)\]]))(?P<bare>{START}[^\s'"`:,;()<>|\[\]{{}}]+)"""
)
FILE_END = re.compile(r"\.[A-Za-z]\w{0,4}$")
T = TypeVar("T", Record, MaskEntry, Environment)


class Submission(NamedTuple):
    """What was written where, how many cells have a time, and how many failed, by status; of how many cells with a time the warm-up is
    short, samples are noisy, or LongCA had uncommitted changes; and the texts that will be public."""

    folder: Path
    home: str  # where it goes in the repository
    exists: bool  # whether LongCA has a journal there
    timed: int
    failed: dict[Status, int]
    short_warmup: int
    noisy: int
    changed: int
    texts: dict[str, list[str]]  # by field; of those that differ only in numbers the first


class Unpublishable(BadInput):
    """A journal that is not complete, or holds what was not measured."""

    exit_code = 1


def problems(folder: str | Path) -> list[str]:
    """Why a journal cannot be published, one sentence each; empty where it can."""
    if (below := files.journals_below(Path(folder))) and Path(folder) not in below:
        raise BadInput(f"{folder} is no journal but holds {plural(len(below), 'journal')}, and submit takes one; give {below[0]}, say.")
    results = read(folder)
    records, environments = results.records, results.environments
    if not any(record.ok or record.status is Status.DOUBTFUL for record in records):
        return ["no cell has a time; offer a journal in which something was measured."]
    found = []
    if simulated := sum(record.simulated is not None for record in records):
        found.append(f"{plural(simulated, 'record')} {'is' if simulated == 1 else 'are'} simulated; offer what was measured.")
    for record in records:
        if record.status is Status.DOUBTFUL:
            place = f"{record.label} on {record.problem.mask}, {record.problem.seqlen} tokens, {record.problem.pass_}"
            found.append(f"the record of {place} cannot be believed: {record.reason}; measure it again.")
    digests = {digest for digest, _ in results.masks}
    if lacking := sorted({record.problem.mask for record in records if record.ok and record.built.digest not in digests}):
        found.append(f"masks.jsonl lacks the masks of some records ({', '.join(lacking)}); copy the file from the folder of the run.")
    if forged := sorted({entry.mask for entry in results.masks.values() if entry.bands and _digest(entry) != entry.digest}):
        found.append(f"masks.jsonl has other pairs than the digest says for {', '.join(forged)}; offer the file that `longca run` wrote.")
    for name in dict.fromkeys(record.env for record in records):
        if name not in environments:
            found.append(f"env.json does not hold the environment {name} of some records; offer the folder as `longca run` wrote it.")
        elif missing := _missing(environments[name]):
            found.append(f"the environment {name} does not say {', '.join(missing)}; measure with this longca, on a machine that tells it.")
    if len(devices := {results.environment(record).name for record in records}) > 1:
        found.append(f"it holds figures of {len(devices)} devices ({', '.join(sorted(devices))}); offer one journal for each.")
    return found


def _digest(entry: MaskEntry) -> str:
    mask = entry.rebuilt()
    return mask.digest if mask is not None else ""


def _missing(environment: Environment) -> list[str]:
    needed = NEEDED if environment.on_cpu else NEEDED + NEEDED_ON_GPU
    return [name for name in needed if getattr(environment, name) in (None, "", {})]


def own_names() -> list[str]:
    """The names of this host and this user. A single letter, and a name that many machines share, identifies nobody."""
    host = platform.node()
    names = [host, host.partition(".")[0]]
    with suppress(OSError, KeyError):  # a container may have no name for its user
        names.append(getpass.getuser())
    return [name for name in names if len(name) > 1 and name.lower() not in NOBODY]


class Cleaner:
    """Removes private parts from all texts of a journal: folders of absolute paths and the words in `private`; from free texts also those
    in `own`, the names of this host and user, which elsewhere may be the name of a kernel. `texts` holds what its owner should read."""

    def __init__(self, private: Sequence[str] = (), own: Sequence[str] = ()) -> None:
        self._private, self._all = _any_of(private), _any_of([*private, *own])
        self._originals: dict[str, str] = {}
        self.texts: dict[str, dict[str, str]] = {field: {} for field in REVIEWED}  # by field, then by the text without numbers

    def __call__(self, value: T) -> T:
        try:
            return msgspec.convert(self._parts(value), type(value))
        except msgspec.ValidationError as error:
            raise BadInput(f"a private word cannot be removed from the journal: {error}; give it without --private.") from error

    def _parts(self, value: msgspec.Struct) -> dict[str, Any]:
        """The fields of a struct and of those nested in it, cleaned; their names stay."""
        parts = {name: getattr(value, field) for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)}
        return {
            name: self._parts(part) if isinstance(part, msgspec.Struct) else self._clean(msgspec.to_builtins(part), name)
            for name, part in parts.items()
        }

    def _clean(self, value: Any, field: str) -> Any:
        if isinstance(value, str):
            return self.text(value, field)
        if isinstance(value, dict):
            return {self.text(name, field): self._clean(item, field) for name, item in value.items()}
        return [self._clean(item, field) for item in value] if isinstance(value, list) else value

    def text(self, text: str, field: str) -> str:
        words = self._all if field in FREE_TEXTS else self._private
        cleaned = words.sub(REMOVED, PATH.sub(_without_folders, text))
        if field not in FREE_TEXTS and (other := self._originals.setdefault(cleaned, text)) != text:
            raise BadInput(f"the names {other!r} and {text!r} would both be {cleaned!r} in the copy; rename one and measure again.")
        if field in REVIEWED and cleaned:
            self.texts[field].setdefault(NUMBER.sub("0", cleaned), cleaned)
        return cleaned


def _any_of(words: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds these words, in capitals or not; in ada_kernel, ada is a word. Of no words it finds nothing."""
    longest_first = sorted(filter(None, words), key=len, reverse=True)
    return re.compile(rf"(?i)(?<![^\W_])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?![^\W_])")


def _without_folders(match: re.Match[str]) -> str:
    """The name of the file at the end of a path; `…` where it may be a folder, which may be named after its owner."""
    path = match["quoted"] or match["bare"]
    name = re.split(r"[/\\]", path.rstrip("."))[-1]
    quote = match["quote"] or ""
    return f"{match['option'] or ''}{quote}{name if FILE_END.search(name) else REMOVED}{path[len(path.rstrip('.')) :]}{quote}"


def home(device: str) -> str:
    """The folder of a device below results/: NVIDIA H200 is h200."""
    words = re.findall(r"[a-z0-9]+", device.lower().replace("(r)", " ").replace("(tm)", " "))
    return "-".join(word for word in words if word not in ("nvidia", "amd", "intel", "cpu", "processor")) or "other"


def prepare(folder: str | Path, out: str | Path, private: Sequence[str] = (), name: str | None = None) -> Submission:
    """Writes a packed copy of a journal to `out`/<device>/<name>, as `Cleaner` leaves it."""
    if found := problems(folder):
        raise Unpublishable(f"{folder} cannot be published: {'; '.join(problem.rstrip('.') for problem in found)}.")
    own = own_names()
    clean, results = Cleaner(private, own), read(folder)
    name = name or Path(folder).resolve().name
    if not re.fullmatch(r"\w[\w.+-]*", name) or _any_of([*private, *own]).search(name):
        raise BadInput(f"{name!r} is no name for the copy, or a private one; give --name with letters, digits, '-' and '_'.")
    place = home(results.environment(results.records[-1]).name)
    target = Path(out) / place / name
    if target.exists():
        raise BadInput(f"{target} exists; remove it, or give another --name or --out.")
    try:
        with Journal(target) as journal:
            for label, environment in results.environments.items():
                journal.add_environment(clean.text(label, "env"), clean(environment))
            for entry in files.read_masks(folder).entries:
                journal.add_mask(clean(entry))
            for record in history(folder):
                journal.add(clean(record))
        pack(target)
    except (CannotWrite, BadInput):
        _remove(target)
        raise
    exists = any((known / place / name).exists() for known in (Path("results"), *files.SHIPPED))
    return _described(read(target), target, place, exists, clean)


def _described(copy: Results, target: Path, place: str, exists: bool, clean: Cleaner) -> Submission:
    timed = [record for record in copy.records if record.ok]
    environments = [copy.environment(record) for record in timed]
    return Submission(
        folder=target,
        home=f"results/{place}/{target.name}",
        exists=exists,
        timed=len(timed),
        failed=dict(Counter(record.status for record in copy.records if record.status in FAILED)),
        short_warmup=sum(map(_is_short, environments)),
        noisy=sum(bool(record.noisy) for record in timed),
        changed=sum(bool(environment.changed) for environment in environments),
        texts={field: list(texts.values()) for field, texts in clean.texts.items() if texts},
    )


def _is_short(environment: Environment) -> bool:
    """Whether there was too little warm-up. A CPU needs less than a GPU, whose clock falls under load, but it needs some."""
    warmup_s = environment.warmup_s
    return warmup_s is not None and warmup_s < SETTLED_S and not (environment.on_cpu and warmup_s)


def _remove(target: Path) -> None:
    """Removes a copy, and the folders above that were made for it."""
    shutil.rmtree(target, ignore_errors=True)
    with suppress(OSError):  # they hold other copies
        target.parent.rmdir()
        target.parent.parent.rmdir()
