"""The words of `longca verify`: its table, its reasons, and what was not checked."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from pathlib import Path

from msgspec.structs import asdict

from longca import devices
from longca.bench.check.sampled_rows import ALL_ROWS, sample_rows
from longca.bench.one_device.verify import Finding
from longca.bench.plan.cells import Planned, equal_masks, mask_of
from longca.bench.plan.suite import Suite
from longca.lengths import cut_note
from longca.results.problem import TENSORS
from longca.results.record import TensorError
from longca.results.shown import Part
from longca.results.tables import Table
from longca.text import format_extras

MANY = 10.0  # times the tolerance, from which on a share is no percentage
REPORTED = ("wrong", "error", "timeout", "oom", "unavailable", "unsupported", "skipped")  # statuses with a sentence below the table


def title(suite: Suite, device: str) -> str:
    """The device, the shapes and the seed."""
    heads, dims, dtypes = (", ".join(map(str, values)) for values in (suite.heads, suite.head_dims, suite.dtypes))
    extras = "".join(f", {extra}" for extra in format_extras(asdict(suite)))
    return f"{devices.model(device)}, {heads} heads of {dims}, {dtypes}{extras}, seed {suite.seed_list[0]}"


def notes(suite: Suite, planned: Sequence[Planned], sampled: bool) -> list[str]:
    """Sentences on documents that are cut, on masks that are equal, and on lengths of which not all rows are compared."""
    cut = cut_note(suite.document_lengths, suite.lengths) if suite.documents else []
    return [*cut, *(f"{note}; checked once" for note in equal_masks(planned)), *(_compared_rows(planned) if sampled else [])]


def _compared_rows(planned: Sequence[Planned]) -> list[str]:
    counts = defaultdict[int, list[int]](list)
    for problem in {entry.cell.problem.every_pass for entry in planned if entry.cell.problem.seqlen > ALL_ROWS}:
        if not problem.is_pattern:  # which may take long to make
            counts[problem.seqlen].append(len(sample_rows(mask_of(problem), problem.seed).rows))
    return [f"of {length} rows {max(own)} at most are compared; --rows all compares all" for length, own in sorted(counts.items())]


def dumped(folder: Path) -> str:
    """A line on the tensors of a failure."""
    return f"wrote {folder}: `python reproduce.py` there calls the kernel on the same tensors."


def verification(findings: Sequence[Finding]) -> list[Part]:
    """The errors of what was checked, the reasons, and how many there are of each status."""
    varying = _varying(findings)
    tensors = [name for name in TENSORS if name != "dsinks" or any(name in finding.errors for finding in findings)]
    rows = []
    for finding in findings:
        if finding.errors:
            shape = [getattr(finding, name) for name in varying]
            note = finding.reason if finding.status == "ok" else ""  # why something is wrong stands below the table
            errors = [_error(finding.errors.get(tensor)) for tensor in tensors]
            rows.append([finding.kernel, finding.place, str(finding.seqlen), *shape, finding.status.value, *errors, note])
    columns = ["kernel", "mask", "seqlen", *varying, "status", *tensors, "note"]
    table: list[Part] = [Table("error of the worst token, as a share of its tolerance:", columns, rows)] if rows else []
    counts = Counter(finding.status for finding in findings)
    return [*table, *reasons(findings), ", ".join(f"{count} {status}" for status, count in counts.items())]


def reasons(findings: Sequence[Finding]) -> list[str]:
    """A sentence for each kernel and reason why it is wrong, failed or was not checked."""
    sentences, varying = [], _varying(findings)
    trials = {finding.place for finding in findings if finding.trial}
    for status in REPORTED:
        places: dict[tuple[str, str], list[str]] = {}
        for finding in findings:
            if finding.status == status:
                shape = " ".join(getattr(finding, name) for name in varying)
                where = f"{finding.place} ({shape})" if shape else finding.place
                places.setdefault((finding.kernel, finding.reason), []).append(where)
        sentences += [f"{status}: {kernel} on {_joined(where, trials)}: {why}" for (kernel, why), where in places.items()]
    return sentences


def _joined(places: Sequence[str], trials: Set[str]) -> str:
    return "all trials" if len(trials) > 1 and set(places) == trials else ", ".join(dict.fromkeys(places))


def _varying(findings: Sequence[Finding]) -> list[str]:
    """The parts of the shape in which findings differ."""
    return [name for name in ("heads", "head_dim", "dtype") if len({getattr(finding, name) for finding in findings}) > 1]


def unchecked(findings: Sequence[Finding], named: Sequence[str]) -> str:
    """A sentence on named kernels of which nothing was checked; empty where there is none."""
    checked = {finding.kernel for finding in findings if finding.checked}
    if not checked:
        return "nothing was checked: no kernel supports any of this here."
    known = checked | {kernel.partition(":")[0] for kernel in checked}
    if missing := [label for label in named if label.removesuffix(":*") not in known and label != "all"]:
        return f"no case of {' and '.join(missing)} was checked (the reason is above); remove it from --kernels, or fix the reason."
    return ""


def _error(error: TensorError | None) -> str:
    """The error as a share of the tolerance: up to 100 % passes."""
    if error is None:
        return "-"
    if not error.passes and error.share < MANY:  # a wrong one is never "100 %"
        return f"{max(101, round(100 * error.share))} %"
    return f"{100 * error.share:.0f} %" if error.share < MANY else f"{error.share:.0e}x" if error.share < math.inf else "inf"
