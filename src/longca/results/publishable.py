"""Whether a journal can be published: what is missing in it, and what a reviewer will ask about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from longca.errors import BadInput
from longca.results import files
from longca.results.packing import stored
from longca.results.ranking import SETTLED_S
from longca.results.reading import Results, read
from longca.results.record import Environment, Record, Status
from longca.text import plural

NEEDED = ("device", "device_kind", "cpu", "cores", "system", "python", "longca", "packages", "clock", "date")
NEEDED_ON_GPU = ("driver", "gpu_memory_mib", "power_limit_w")
LISTED = 10  # journals in a message


def problems(folder: str | Path) -> list[str]:
    """Why a journal cannot be published, one sentence each; empty where it can."""
    results = read(_one_journal(folder))
    records, environments = results.records, results.environments
    if not any(record.ok or record.status is Status.DOUBTFUL for record in records):
        return ["no cell has a time; offer a journal in which something was measured."]
    found = []
    if simulated := sum(record.simulated is not None for record in records):
        found.append(f"{plural(simulated, 'record')} {'is' if simulated == 1 else 'are'} simulated; offer what was measured.")
    for record in [record for record in records if record.status is Status.DOUBTFUL][:3]:
        place = f"{record.label} on {record.problem.mask}, {record.problem.seqlen} tokens, {record.problem.pass_}"
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


def _one_journal(folder: str | Path) -> Path:
    """The folder, if it is that of a journal; raises BadInput with the journals below it where there are some."""
    path = Path(folder)
    below = files.journals_below(path)
    if not below or path in below:
        return path
    more = f" and {len(below) - LISTED} more" if len(below) > LISTED else ""
    names = ", ".join(map(str, below[:LISTED])) + more
    raise BadInput(f"{folder} is no journal but holds {plural(len(below), 'journal')}, and submit takes one; give one of: {names}.")


def _missing(environment: Environment) -> list[str]:
    needed = NEEDED if environment.on_cpu else NEEDED + NEEDED_ON_GPU
    return [name for name in needed if getattr(environment, name) in (None, "", {})]


def cautions(folder: str | Path) -> list[str]:
    """What a reviewer will ask about, one sentence with advice each; such a journal can be published nevertheless."""
    results = read(folder)
    timed = [record for record in results.records if record.ok]
    return [
        sentence for caution in (_short_warmup, _lacking_masks, _noisy, _changed) if (sentence := caution(timed, results, Path(folder)))
    ]


def _short_warmup(timed: Sequence[Record], results: Results, folder: Path) -> str:
    """A CPU needs less than a GPU, whose clock falls under load, but it needs some."""
    warmups = [(environment.warmup_s, environment.on_cpu) for environment in map(results.environment, timed)]
    too_short = [warmup_s for warmup_s, on_cpu in warmups if warmup_s is not None and warmup_s < SETTLED_S and not (on_cpu and warmup_s)]
    if not too_short:
        return ""
    asked = f"shorter than the {1e3 * SETTLED_S:g} ms that reviewers ask for (the shortest: {1e3 * min(too_short):g} ms)"
    return (
        f"the warm-up of {plural(len(too_short), 'cell')} is {asked}; measure again with --clock warmup_s={SETTLED_S:g} and another --out."
    )


def _lacking_masks(timed: Sequence[Record], results: Results, folder: Path) -> str:
    advice = "without which nobody can build them again; copy the file from the folder of the run"
    if not stored(folder / files.MASKS).exists():
        return f"{folder} lacks {files.MASKS}, the file of the masks, {advice}."
    lacking = sum((record.built.digest, record.problem.mask) not in results.masks for record in timed)
    return f"{files.MASKS} in {folder} lacks the masks of {plural(lacking, 'cell')}, {advice}." if lacking else ""


def _noisy(timed: Sequence[Record], results: Results, folder: Path) -> str:
    noisy = sum(bool(record.noisy) for record in timed)
    advice = "measure again on an idle machine, or with more time (--clock budget_s=2), and with another --out"
    return f"the times of {noisy} of {plural(len(timed), 'cell')} are noisy; {advice}." if 2 * noisy > len(timed) else ""


def _changed(timed: Sequence[Record], results: Results, folder: Path) -> str:
    changed = sum(bool(results.environment(record).changed) for record in timed)
    advice = "measure again with committed code, or describe the changes in the pull request"
    return f"LongCA had uncommitted changes in the run of {plural(changed, 'cell')}; {advice}." if changed else ""
