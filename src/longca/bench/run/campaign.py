"""A whole run: plan the cells of a level, resume the journal, measure what is left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import asdict

from longca import devices, masks
from longca.bench.plan import jobs
from longca.bench.plan.cell import key
from longca.bench.plan.cells import Planned, mask_entry, mask_outline, plan
from longca.bench.plan.estimate import estimates_s, refuse_hopeless
from longca.bench.plan.workload import Step
from longca.bench.run import environment, runner
from longca.bench.run.health import busy
from longca.bench.run.level import Level
from longca.bench.run.progress import Progress, Show, TimeLeft
from longca.bench.run.slow import SlowKernels
from longca.errors import BadInput
from longca.results.doubts import without_doubtful
from longca.results.files import by_name, read_environments, read_masks, read_results
from longca.results.journal import Journal
from longca.results.reading import Results, latest, replaced
from longca.results.record import Environment, Environments, Masks, Record
from longca.results.settings import ClockSettings
from longca.text import format_duration, plural

LONG_S = 60.0  # a run that takes longer is announced


@dataclass(frozen=True)
class Finished:
    """What a run leaves: the records of its cells, how many cells are left, and where the time went."""

    results: Results
    left: int
    interrupted: bool
    measured: int  # cells that this call set out to measure
    seconds: float
    by_phase: Mapping[str, float]


def plan_level(level: Level, steps: Sequence[Step] = (), *, dry: bool = False) -> list[Planned]:
    """The planned cells of a level. A dry plan is for counting: block patterns are not made, so keys are not those of a journal, and what
    would take too long here, or cannot start here, is not refused."""
    if not level.catalogue.entries:
        raise BadInput("no kernel runs here; `longca doctor` says what to install.")
    model, versions = devices.model(level.device), level.catalogue.versions
    cells = level.cells(steps)
    if not dry:
        refuse_hopeless(cells, level.suite.limits)
    planned = plan(cells, model, versions, mask_outline if dry else mask_entry)
    level.admit(planned, dry)
    return planned


def measure(
    level: Level,
    planned: list[Planned],
    out: Path,
    *,
    retry: bool = False,
    full: bool = False,
    stop_after: float | None = None,
    show: Show = Progress,
) -> Finished:
    """Measures what the journal in `out` does not hold yet."""
    machine = describe(level)
    name = environment.name_of(machine)
    executor = level.executor(devices.model(level.device), out / runner.CACHE, full)
    with Journal(out) as journal:
        is_unknown = bool(journal.history) and not journal.environments
        journal.add_environment(name, environment.dated(machine))
        believed = _believed(journal.records, journal.environments, journal.masks)
        todo = jobs.left_to_do(planned, believed, retry=retry, full=full)
        for entry in planned:
            if entry.key in believed:
                journal.add_mask(entry.mask)  # the file of masks may have lost a line since
        for record in replaced(journal.history, journal.environments, {entry.key for entry in planned}):
            journal.add(record)  # the user went back to code that a later version had replaced: the last record counts
        runner.make_cache(journal.folder)
        todo_jobs, left = jobs.make_jobs(todo, level.suite.limits.workers), TimeLeft(estimates_s(todo, level.suite, full, level.compile_s))
        with show(todo, left) as watcher:
            executor.say = watcher.say
            measured_now = {entry.key for entry in todo}
            kept = [believed[entry.key] for entry in planned if entry.key not in measured_now]
            notes = resume_notes(journal, is_unknown, len(kept), len(planned))
            disturbing = busy(level.device) if todo else []
            for note in [*notes, *other_clocks(kept, journal.environments, level.suite.clock), *disturbing]:
                watcher.say(note)
            if left.seconds > LONG_S:
                watcher.say(f"{plural(len(todo), 'cell')} to measure: about {format_duration(left.seconds)}.")
            if level.device == "cuda":
                executor.start(todo_jobs)
            start = time.monotonic()
            slow = None if full else SlowKernels(planned, believed)
            ended = runner.execute(todo_jobs, executor, journal, name, watcher, stop_after, slow)
            seconds = time.monotonic() - start
        written, environments, known = journal.written(), dict(journal.environments), dict(journal.masks)
    latest_ones = latest((written[entry.key] for entry in planned if entry.key in written), environments)
    records = without_doubtful(latest_ones, environments, known)
    return Finished(Results(records, environments), ended.left, ended.interrupted, len(todo), seconds, executor.spent_s)


def resume_notes(journal: Journal, is_unknown: bool, done: int, cells: int) -> list[str]:
    """Sentences on a journal that is resumed: what it lost, and how many of the cells it holds."""
    notes = [f"dropped a torn last line of {journal.torn} bytes; its cell is measured again."] if journal.torn else []
    if is_unknown:
        notes.append(f"{journal.folder}/env.json is missing: the device and the settings of earlier records there are unknown.")
    if done:
        notes.append(f"resuming {journal.folder}: {done} of {plural(cells, 'cell')} {'is' if cells == 1 else 'are'} done.")
    return notes


def other_clocks(kept: Sequence[Record], environments: Environments, clock: ClockSettings) -> list[str]:
    """A sentence on times that are kept though they were measured with other settings of the clock, where there are any."""
    clocks = [environments[record.env].clock for record in kept if record.ok and record.env in environments]
    changed = [was for was in clocks if was and (asdict(clock) | was) != asdict(clock)]
    if not changed:
        return []
    values = {(name, old, new) for was in changed for name, new in asdict(clock).items() if (old := was.get(name, new)) != new}
    words = ", ".join(f"{name} {old}, now {new}" for name, old, new in sorted(values, key=str))
    cells = f"{plural(len(changed), 'cell')} of it {'was' if len(changed) == 1 else 'were'}"
    return [f"{cells} measured with other settings of the clock ({words}); another --out measures everything again."]


def left_in_journal(level: Level, planned: list[Planned], out: Path, *, retry: bool = False, full: bool = False) -> list[Planned]:
    """The cells of a dry plan that the journal in `out` does not hold yet; nothing is written there. Block patterns are not made in a dry
    plan, so the keys of their cells are made with the digests that the journal has."""
    own = {record.key: record for record in read_results(out).entries}
    records = _believed(own, read_environments(out), by_name(read_masks(out).entries))
    model, digests = devices.model(level.device), defaultdict[tuple[str, int], set[str]](set)
    for record in records.values():
        digests[record.problem.mask, record.problem.seqlen].add(record.built.digest)

    def as_written(entry: Planned) -> Planned:
        cell = entry.cell
        keys = (key(cell, digest, model, entry.versions) for digest in digests[cell.problem.mask, cell.problem.seqlen])
        return replace(entry, key=next((name for name in keys if name in records), entry.key))

    written = [as_written(entry) if masks.has_blocks(entry.cell.problem.mask) else entry for entry in planned]
    return jobs.left_to_do(written, records, retry=retry, full=full)


def _believed(records: Mapping[str, Record], environments: Environments, known: Masks) -> dict[str, Record]:
    """The records that are not measured again, by key; doubtful ones have another status."""
    return {record.key: record for record in without_doubtful(records.values(), environments, known)}


def describe(level: Level) -> Environment:
    labels = [label for label, entry in level.catalogue.entries.items() if entry.plugin is None]
    return environment.describe(level.device, level.suite, labels, level.catalogue.plugin_files)
