"""Masks as JSON files: what `longca mask --json` prints, and `longca run --masks FILE` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from longca.errors import BadInput
from longca.lengths.files import read_text
from longca.masks.blocks import BlockMask
from longca.masks.mask import Mask
from longca.masks.pattern import Default, check_params, check_seed, check_seqlen, without_documents
from longca.text import format_size

SUFFIX = ".json"
Row = tuple[int, int, int, int, int, int]


class Content(msgspec.Struct):
    """What a file must hold of a mask; other fields are for people and programs."""

    seqlen: int
    bands: list[Row]
    documents: list[int] | None = None
    blocks: list[Any] | None = None


@dataclass(frozen=True)
class MaskFile:
    """A mask by the name of its file. It has one length and no parameters."""

    name: str  # the path as it was typed
    seqlen: int
    mask: Mask
    group: str = "file"
    about: str = "a mask from a file"
    has_documents: bool = False
    own_lengths: None = None

    @property
    def defaults(self) -> Mapping[str, Default]:
        return {}

    def check(self, params: Mapping[str, Any]) -> None:
        check_params(self.name, params, [])

    def refuse_length(self, seqlen: int) -> None:
        """Raises BadInput for another length than the mask has."""
        if seqlen != self.seqlen:
            sizes = f"{format_size(self.seqlen)} tokens, not of {format_size(seqlen)}"
            raise BadInput(f"the file {self.name} holds a mask of {sizes}; ask for that length.")

    def __call__(self, seqlen: int, *, seed: int = 0, **options: Any) -> Mask:
        self.check(without_documents(self.name, options))
        self.refuse_length(check_seqlen(seqlen))
        about: dict[str, Any] = {"name": self.name, "seed": check_seed(seed), "documents": self.mask.documents}
        return Mask(self.seqlen, self.seqlen, self.mask.bands, **about)


def read_mask(path: str | Path) -> Mask:
    """Returns the mask in a file."""
    file = Path(path)
    try:
        content = msgspec.json.decode(read_text(file, "a mask"), type=Content)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is no mask: {error}; `longca mask NAME --json` prints one.") from error
    if content.blocks is not None:
        raise BadInput(f"{path} holds a block pattern, and files hold masks of bands; give its name, parameters and seed instead.")
    if content.documents is not None and sum(content.documents) != content.seqlen:
        held = f"its documents hold {sum(content.documents)} tokens, and its sequence {content.seqlen}"
        raise BadInput(f"{path} is no mask: {held}; both must be equal.")
    try:
        return Mask.of(check_seqlen(content.seqlen), content.seqlen, content.bands, documents=content.documents)
    except (BadInput, OverflowError) as error:
        raise BadInput(f"{path}: {error}") from error


def mask_file(path: str) -> MaskFile:
    """Returns the mask in a file, to be used by the file's name."""
    mask = read_mask(path)
    return MaskFile(path, mask.seqlen_q, mask)


def write_mask(mask: Mask, path: str | Path) -> Path:
    """Writes a mask into a file that `read_mask` and the command line take."""
    target = Path(path)
    if target.suffix != SUFFIX:
        raise BadInput(f"a mask is written into a file whose name ends in {SUFFIX}, not {target.name!r}.")
    if mask.seqlen_q != mask.seqlen_k:
        raise BadInput(f"files hold masks with as many queries as keys, not {mask.seqlen_q} and {mask.seqlen_k}.")
    try:
        target.write_text(json.dumps(describe(mask)) + "\n")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}.") from error
    return target


def describe(mask: Mask | BlockMask) -> dict[str, Any]:
    """Returns everything about a mask as plain numbers and lists."""
    facts: dict[str, Any] = {
        "name": mask.name,
        "seqlen": mask.seqlen_q,
        "seed": mask.seed,
        "params": mask.params,
        "documents": None if mask.documents is None else list(mask.documents),
        "area": mask.area,
        "density": mask.density,
        "digest": mask.digest,
        "bands": [] if isinstance(mask, BlockMask) else mask.table,
    }
    if isinstance(mask, BlockMask):
        facts["source"], facts["bands"] = mask.source, [] if mask.band is None else mask.band.table  # on top of the blocks
        facts["heads"], facts["head_areas"] = mask.heads, mask.head_areas
        facts["row_edges"], facts["col_edges"] = mask.row_edges.tolist(), mask.col_edges.tolist()
        facts["blocks"] = [[row.nonzero()[0].tolist() for row in head] for head in mask.kept]  # kept key blocks per head and row block
    return facts
