"""Writes journals for tests, from records as plain objects."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from longca import masks
from longca.masks import Mask
from report.made import ENVIRONMENT, line

Record = dict[str, Any]
Write = Callable[..., Path]


def mask_line(mask: Mask) -> str:
    """A line of masks.jsonl."""
    bands = mask.table
    size = {"seqlen_q": mask.seqlen_q, "seqlen_k": mask.seqlen_k, "area": mask.area}
    names = {"digest": mask.digest, "mask": mask.name, "params": dict(mask.params), "seed": mask.seed}
    documents = None if mask.documents is None else list(mask.documents)
    return json.dumps({**names, **size, "bands": bands, "documents": documents}) + "\n"


def writer(home: Path) -> Write:
    """A function that writes a journal below `home` and returns its folder."""

    def write(name: str, records: Iterable[Record], environment: Record | None = None) -> Path:
        folder = home / name
        folder.mkdir()
        (folder / "results.jsonl").write_text("".join(map(line, records)))
        (folder / "env.json").write_text(json.dumps({"e": ENVIRONMENT | (environment or {})}))
        (folder / "masks.jsonl").write_text("".join(mask_line(masks.build(mask, 8192, seed=0)) for mask in ("causal", "causal_document")))
        return folder

    return write
