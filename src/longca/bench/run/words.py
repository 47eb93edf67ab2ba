"""The sentences of `longca run`, its table of planned cells, and the lines of `longca doctor`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import asdict

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, equal_masks
from longca.bench.plan.suite import Suite
from longca.bench.plan.workload import Step
from longca.bench.run.level import Level
from longca.kernels import registry
from longca.lengths import cut_note
from longca.processes.lost import PHASES
from longca.results.record import AT_FAULT, NEVER_RAN, Environment, Record, Status
from longca.results.tables import Table
from longca.text import format_dims, format_duration, format_extras, format_heads, format_size, plural


def cell_table(cells: Sequence[Cell]) -> Table:
    """One row per planned cell."""
    split = any(cell.split for cell in cells)
    columns = [*(["method", "ranks", "grid"] if split else []), "kernel", "mask", "length", "heads", "head size", "dtype", "pass", "seed"]
    rows = []
    for cell in cells:
        names = (cell.split.method, cell.problem.ranks, cell.split.shape) if cell.split else ()
        fields = asdict(cell.problem)
        shape = (
            format_heads(fields),
            ", ".join([format_dims(fields), *format_extras(fields)]),
            cell.problem.dtype,
            cell.problem.pass_.value,
            cell.problem.seed,
        )
        rows.append(list(map(str, (*names, cell.kernel, cell.problem.mask_title, format_size(cell.problem.seqlen), *shape))))
    return Table("", columns, rows)


def planned_time(cells: int, left: int, seconds: float, folder: object) -> str:
    """How many cells there are, how many of them the journal has, and how long the others take."""
    done, about = cells - left, f"about {format_duration(seconds)}"
    if not done:
        return f"{plural(cells, 'cell')}, {about}"
    if left:
        return f"{plural(cells, 'cell')}, {done} of them done in {folder}; {about} for the {left} left"
    return f"{plural(done, 'cell')}, {'done' if done == 1 else 'all done'} in {folder}"


def left_out(level: Level) -> list[str]:
    """A sentence for each reason why kernels or plugin files are not measured here."""
    by_reason: dict[str, list[str]] = {}
    for label, reason in level.catalogue.left_out.items():
        by_reason.setdefault(reason, []).append(label)
    return [f"not measured: {', '.join(labels)} ({reason})" for reason, labels in by_reason.items()]


def empty_shard(shard: str, problems: int) -> str:
    """Why a shard holds no cell."""
    why = f"there is only {plural(problems, 'problem')} (mask, length, shape, seed) to share, and none is split"
    return f"shard {shard} holds no cell: {why}."


def about_masks(suite: Suite, planned: Sequence[Planned], steps: Sequence[Step]) -> list[str]:
    """A note on documents that do not end with the sequence, those of the suite or of a workload's steps; and one on each equal mask."""
    cut = [step for step in steps if step.documents and sum(step.documents) > step.tokens]
    notes = cut_note(suite.document_lengths, {entry.cell.problem.seqlen for entry in planned}) if suite.documents and not steps else []
    if cut:
        have = f"{plural(len(cut), 'step')} of the workload {'has' if len(cut) == 1 else 'have'}"
        notes = [f"{have} more tokens of documents than its seqlen, and what is beyond is cut off"]
    equal = [f"{note}; each is measured" for note in equal_masks(planned)]
    if equal and not steps:
        equal[-1] += "; smaller windows, blocks and documents may tell them apart (--set w=64, --set B=64, --packing short)"
    return [f"note: {note}" for note in [*notes, *equal]]


def where_the_time_went(all_s: float, by_phase: Mapping[str, float]) -> str:
    """One line, the largest part first; what no phase counts is mostly keeping the journal."""
    titles = PHASES | {"build": "building and compiling", "reference": "references"}
    parts = {titles.get(phase, phase): seconds for phase, seconds in by_phase.items()}
    parts["the rest"] = max(0.0, all_s - sum(by_phase.values()))
    shown = [f"{title} {seconds:.0f} s" for title, seconds in sorted(parts.items(), key=lambda part: -part[1]) if seconds >= 0.5]
    return f"it took {format_duration(all_s)}" + (f": {', '.join(shown)}" if shown else "")


def nothing_ran(records: Sequence[Record]) -> str:
    """One line where no cell of a run was even tried, which is exit code 1: who asked for figures has none. Empty where one was."""
    if not records or any(record.status not in NEVER_RAN for record in records):
        return ""
    first, kinds = records[0], " or ".join(dict.fromkeys(record.status for record in records))
    cells = "the only cell is" if len(records) == 1 else f"all {len(records)} cells are"
    return f"nothing was measured, so the exit code is 1: {cells} {kinds}; {first.asked}: {first.reason.rstrip('.')}."


def faults(statuses: Mapping[Status, int], failing: Collection[Status]) -> str:
    """One line on failed cells: why the exit code is 1, or how to make it 1. Empty if none failed."""
    seen = [status for status in (*AT_FAULT, *sorted(set(failing) - set(AT_FAULT))) if statuses.get(status)]
    if not seen:
        return ""
    total = sum(statuses[status] for status in seen)
    many = f"{plural(total, 'cell')} {'is' if total == 1 else 'are'} {seen[0]}" if len(seen) == 1 else ""
    words = many or f"{plural(total, 'cell')} failed ({', '.join(f'{statuses[status]} {status}' for status in seen)})"
    if asked := [status for status in seen if status in failing]:
        return f"{words}: exit code 1, as --fail-on {','.join(asked)} asks."
    return f"{words}; --fail-on {','.join(seen)} makes that exit code 1."


def diagnosis(facts: Environment, kernels: Mapping[str, str], findings: Iterable[str]) -> list[str]:
    """The machine, its kernels (each with the reason why it does not run, or an empty text), and what disturbs measurements."""
    gpu = f"{facts.device}, driver {facts.driver}, {facts.gpu_memory_mib} MiB" if facts.driver else "no GPU was found by nvidia-smi"
    packages = ", ".join(f"{name} {number}" for name, number in (facts.packages or {}).items())
    lines = [
        f"device    {gpu if facts.device_kind == 'cuda' else facts.device}",
        f"host      {facts.cpu}, {facts.cores} cores, {facts.system}, Python {facts.python}",
        f"packages  {packages or 'torch is missing: pip install torch'}",
        f"kernels   {', '.join(label for label, why in kernels.items() if not why) or 'none'}",
    ]
    missing: dict[str, list[str]] = {}
    for label, why in kernels.items():
        if why:
            kinds = registry.get(label).devices  # on a CPU, what to install for a GPU is left out
            missing.setdefault(why if facts.device_kind in kinds else f"runs on {' and '.join(kinds)} only", []).append(label)
    lines += [f"  not here: {', '.join(labels)} ({why})" for why, labels in missing.items()]
    lines += ["  `longca ls kernels NAME` shows how to install one."] if missing else []
    return lines + ([f"warning   {finding}" for finding in findings] or ["no problems for measurements were found."])
