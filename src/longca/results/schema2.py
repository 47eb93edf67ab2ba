"""Records of schema 2, which had all fields side by side, as schema 3 nests them. `longca merge` rewrites such journals."""

from __future__ import annotations

from typing import Any

from longca.results.problem import Problem
from longca.results.record import BuiltMask, Energy, Memory, RankFigures, Times

Fields = dict[str, Any]
SCHEMA = 2
RENAMED: dict[Any, dict[str, str]] = {BuiltMask: {"digest": "mask_digest"}, Memory: {"ranks": "peak_gib_ranks"}}
KEPT = (
    *("key", "env", "level", "kernel", "asked", "status", "reason", "variant", "backward_kind", "chose", "grad", "check", "versions"),
    *("simulated", "build_ms", "plan_ms", "compile_ms"),
)


def converted(old: Fields) -> Fields:
    """A record of schema 2 in the fields of schema 3. Lengths of documents that were given are in masks.jsonl: `documents` is empty."""
    given, times = _object(old, "given"), _object(old, "ms")
    if times and times.get("n", len(times.get("samples", ()))) != len(times.get("samples", ())):
        raise ValueError(f"it has {len(times.get('samples', ()))} samples and says that they are {times['n']}")
    problem = _part(Problem, old | given | {"params": list(map(list, given.get("params", {}).items()))})
    problem["documents"] = [] if given.get("documents") else None
    built = _part(BuiltMask, old)
    built["area"] = built.get("area") or 0
    new = {name: old[name] for name in KEPT if old.get(name) is not None} | {
        "schema": 3,
        "problem": problem,
        "built": {"seqlen_q": old["seqlen"], "seqlen_k": old["seqlen"]} | built,
        "flops": 1 if old.get("flops") is None else old["flops"],
        "planned_grad": given.get("grad", False),
        "memory": _part(Memory, old) or None,
        "energy": _part(Energy, old) or None,
        "over_ranks": _part(RankFigures, old) or None,
    }
    if times and old.get("status") == "ok":
        new["timed"] = _part(Times, old | times)
    if old.get("method") is not None:
        new["split"] = {"method": old["method"], "grid": old["grid"], "options": old.get("options") or ""}
    return new


def _object(old: Fields, name: str) -> Fields:
    """A nested object; empty where there is none."""
    value = old.get(name)
    if not isinstance(value, dict | None):
        raise TypeError(f"Expected `object`, got `{type(value).__name__}` - at `$.{name}`")
    return value or {}


def _part(kind: type[Any], old: Fields) -> Fields:
    """The fields of one struct, as far as the record has them."""
    former = RENAMED.get(kind, {})
    return {name: old[before] for name in kind.__struct_encode_fields__ if old.get(before := former.get(name, name)) is not None}
