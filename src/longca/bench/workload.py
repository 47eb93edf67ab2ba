"""What a user really trains on: a file with one JSON object per training step; and the shapes of well-known models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longca import masks
from longca.bench.suite import Suite, folder, names, read_toml
from longca.errors import BadInput, LongcaError, unknown

STEP_FIELDS = ("mask", "seqlen", "documents", "params", "seed")


def read_workload(path: str | Path) -> list[dict[str, Any]]:
    """The steps of a workload as the mask part of cells. Equal steps are measured once.

    A line: {"mask": "causal_document", "seqlen": 8192, "documents": [353, 7839]}; `params` and `seed` may follow.
    """
    path = Path(path)
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the workload {path}: {getattr(error, 'strerror', None) or 'it is not a text file'}.") from error
    steps = [_step(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not steps:
        raise BadInput(f"the workload {path} has no steps; write one JSON object per training step.")
    return steps


def _step(line: str, where: str) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise BadInput(f"{where} is not JSON: {error}.") from error
    if not isinstance(given, dict) or not isinstance(given.get("mask"), str):
        raise BadInput(f"{where} must be an object with a mask, such as " + '{"mask": "causal", "seqlen": 8192}.')
    for name in given:
        if name not in STEP_FIELDS:
            raise unknown(f"field in {where}:", name, list(STEP_FIELDS))
    documents = given.get("documents")
    sound = isinstance(documents, list) and documents and all(type(n) is int and n > 0 for n in documents)
    if "documents" in given and not sound:  # null too: whoever writes it has lost the lengths, and others would be drawn
        found = json.dumps(documents)
        raise BadInput(f"{where}: documents must be a list of lengths of 1 or more, not {found}; without the field they are drawn.")
    seqlen = given.get("seqlen", sum(documents or []))
    if type(seqlen) is not int or seqlen < 1:
        raise BadInput(f"{where} needs a seqlen of 1 or more, not {seqlen!r}.")
    params, seed = given.get("params", {}), given.get("seed", 0)
    if not isinstance(params, dict):
        raise BadInput(f"{where}: params must be an object such as " + '{"w": 512}' + f", not {params!r}.")
    if type(seed) is not int or seed < 0:
        raise BadInput(f"{where}: seed must be a whole number of 0 or more, not {seed!r}.")
    try:
        masks.find(given["mask"]).check(params)
        masks.build(given["mask"], seqlen, seed=seed, documents=documents, **params)
    except LongcaError as error:  # what the mask says knows nothing of the file
        raise BadInput(f"{where}: {error}") from error
    step = {"mask": given["mask"], "seqlen": seqlen, "seed": seed, "params": tuple(params.items())}
    return step | ({"documents": tuple(documents)} if documents is not None else {})


def with_model(suite: Suite, name: str) -> Suite:
    """The suite in the shape of a model: its heads, head sizes and, where it has one, its sliding window."""
    if name not in names("models"):
        raise unknown("model", name, names("models"))
    model: Mapping[str, Any] = read_toml(folder("models") / f"{name}.toml")
    params = dict(suite.params)
    if "window" in model:  # models count their own key; w does not
        for mask in ("sliding_window", "sliding_window_causal"):
            params[mask] = {"w": model["window"] - 1}
    return suite.changed(heads=(model["heads"],), head_dims=(str(model["head_dim"]),), params=params)
