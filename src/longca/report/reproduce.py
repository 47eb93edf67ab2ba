"""The command that measures a record's cell again: the same mask, shape, pass, seed and ranks, hence the same key where versions agree;
with the same clock and as many threads, so that `longca compare` takes the two."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from longca import masks
from longca.bench.catalogue import MINIATURE
from longca.bench.clock import Settings
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.base import Case, Yes
from longca.report.reading import Drawn, Record
from longca.text import format_size, parse_size, shape_options

STEP = "step.jsonl"  # where a mask with given document lengths is written before it is measured


def command(record: Record, environments: Mapping[str, Record], drawn: Drawn, seeds: Sequence[int] = ()) -> str:
    """What to type. In `drawn` stand the document lengths that were given. `seeds` are those of several
    records that differ in nothing else.

    Empty for a simulated record, which nobody measured, and where the lengths that were given are not known.
    """
    if record.get("simulated"):
        return ""
    given = _given(record)
    facts = environments.get(record["env"], {})
    kernel = [*_split(record), "--kernels", str(record["asked"])]
    shape = [*shape_options(record), "--passes", _passes(record, given), *_conditions(record, facts)]
    if given.get("documents"):
        step = {"mask": record["mask"], "seqlen": record["seqlen"], "seed": record["seed"], "params": given.get("params", {})}
        step["documents"] = documents_of(record, drawn)
        if step["documents"] is None:  # others would be drawn in their place
            return ""
        written = shlex.quote(json.dumps(step, separators=(",", ":")))
        return f"echo {written} > {STEP} && {_run([*kernel, '--workload', STEP, *shape], facts)}"
    return _run([*kernel, *_mask(record, given, seeds or [record["seed"]]), *shape], facts)


def _run(words: Sequence[str], facts: Record) -> str:
    threads = f"OMP_NUM_THREADS={shlex.quote(str(facts['threads']))} " if facts.get("threads") else ""
    return threads + shlex.join(["longca", "run", *words])


def documents_of(record: Record, drawn: Drawn) -> list[int] | None:
    """The lengths of the record's documents; None for a mask without any, or where the journal does not have them."""
    return drawn.get((record["mask_digest"], record["mask"]), {}).get("documents")


def _mask(record: Record, given: Mapping[str, Any], seeds: Sequence[int]) -> list[str]:
    chosen = ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")  # a number alone would be how many
    words = ["--masks", str(record["mask"]), "--seqlens", format_size(record["seqlen"]), "--seeds", chosen]
    words += [word for name, value in given.get("params", {}).items() for word in ("--set", f"{name}={value}")]
    words += ["--source", record["source"]] if record.get("source") not in (None, "random") else []
    return words + [word for name in ("distribution", "packing") if given.get(name) for word in (f"--{name}", given[name])]


def _split(record: Record) -> list[str]:
    if record["level"] != "cp":
        return []
    return ["--level", "cp", "--methods", record["method"], "--nproc", str(record["ranks"]), "--grid", record["grid"]]


def _passes(record: Record, given: Mapping[str, Any]) -> str:
    """The forward of training is one beside which a backward is planned."""
    return "fwd,bwd" if given.get("grad") and record["pass"] == "fwd" else str(record["pass"])


def _conditions(record: Record, facts: Record) -> list[str]:
    words = ["--deterministic"] if record.get("deterministic") else []
    words += ["--device", "cpu"] if facts.get("device_kind") == "cpu" else []
    longest = parse_size((facts.get("limits") or {}).get("quadratic") or "8K")
    if record["seqlen"] > longest and not record.get("limited") and _quadratic(record["asked"], record["mask"]):
        words.append("--full")
    return [*words, *_clock(facts.get("clock")), *(word for file in plugins_of(record, facts) for word in ("--plugin", file))]


def plugins_of(record: Record, facts: Record) -> list[str]:
    """The files that a record's kernel or method was loaded from, as the user typed them; for journals that do not keep them, words that
    are no file's name. A file without names is one that every rank loaded."""
    kept = facts.get("plugins")
    files = {str(file): names for file, names in kept.items() if isinstance(names, list)} if isinstance(kept, dict) else {}
    found = [file for file, names in files.items() if record["kernel"] in names or (record["level"] == "cp" and not names)]
    return found or [f"FILE_WITH_{name}.py" for name in _foreign(record)]


def _foreign(record: Record) -> list[str]:
    """Names of kernels and methods that do not come with LongCA."""
    names = [] if record["kernel"] in registry.classes() else [str(record["kernel"])]
    if record.get("method"):
        from longca.parallel import registry as methods

        names += [] if record["method"] in methods.names() else [str(record["method"])]
    return names


def _clock(recorded: Any) -> list[str]:
    """What a run does not do by itself. Journals may be somebody else's: what is no setting is none of ours."""
    found = recorded if isinstance(recorded, dict) else {}
    usual = {entry.name: entry.default for entry in fields(Settings)}
    other = [f"{name}={found[name]}" for name in usual if isinstance(found.get(name), int | float) and found[name] != usual[name]]
    return ["--clock", ",".join(other)] if other else []


@lru_cache(maxsize=1024)
def _quadratic(label: str, mask: str) -> bool:
    try:
        small = masks.build(mask, MINIATURE)
        answers = [kernel.supports(small, Case(MINIATURE, MINIATURE, 1, 1, 64, 64)) for kernel in registry.choices(label)]
    except LongcaError:  # a kernel or a mask that is not here
        return False
    return any(isinstance(answer, Yes) and answer.quadratic for answer in answers)


def _given(record: Record) -> dict[str, Any]:
    """What was asked for. Records written before they said it: parameters that are neither the mask's own nor what its seed draws."""
    if isinstance(record.get("given"), dict):
        return dict(record["given"])
    shown = json.dumps(record["params"], sort_keys=True)
    params = _unusual(record["mask"], record["seqlen"], record["seed"], record["heads_kv"], shown)
    return {"params": params, "grad": bool(record.get("grad"))}


@lru_cache(maxsize=1024)
def _unusual(mask: str, seqlen: int, seed: int, heads: int, shown: str) -> dict[str, Any]:
    params = json.loads(shown)
    try:
        usual = dict(masks.find(mask).defaults)
    except LongcaError:  # somebody's own mask
        return dict(params)
    usual |= {"heads": heads} if "heads" in usual else {}
    fixed = {name: value for name, value in params.items() if not callable(usual.get(name)) and usual.get(name) != value}
    if any(callable(usual.get(name)) for name in params):
        try:
            usual |= masks.build(mask, seqlen, seed=seed, **fixed).params
        except LongcaError:
            return dict(params)
    return {name: value for name, value in params.items() if usual.get(name) != value or name in fixed}
