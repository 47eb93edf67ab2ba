"""Masks as a Python user names them: names, files and expressions as on the command line, patterns such as longca.masks.causal, and Mask
objects, which are written into files: workers are other processes, and a record must be able to name its mask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from longca import masks
from longca.api.files import make_folder
from longca.bench.plan.cells import refuse_large_pattern
from longca.bench.plan.request import MaskSettings, Texts, document_lengths, texts
from longca.errors import BadInput
from longca.kernels import block_selection
from longca.kernels.block_selection import Heads
from longca.lengths import cut_note, read_lengths
from longca.masks import AnyMask, BlockMask, BlockPattern, Mask, Pattern, write_mask
from longca.plugins import NAME
from longca.text import say


@dataclass(frozen=True)
class NamedMasks:
    """Masks by their names, the lengths to use them at, and by the name of a file what the mask in it is called."""

    masks: list[str] | None
    seqlens: Texts | None
    titles: dict[str, str]

    def title(self, text: str) -> str:
        """The text with masks by their titles in the place of their files."""
        for file, title in self.titles.items():
            text = text.replace(file, title)
        return text


def name_masks(given: Any, seqlens: Texts | None, folder: Path) -> NamedMasks:
    """Names masks; Mask objects are written into the folder. Where all are objects, the length is theirs unless another one is given."""
    if given is None:
        return NamedMasks(None, seqlens, {})
    names, titles, sizes = list[str](), dict[str, str](), set[int]()
    for entry in _entries(given):
        if isinstance(entry, BlockMask):
            raise BadInput("give a block pattern by its name, with parameters and seed; Mask objects must be masks of bands.")
        if isinstance(entry, Mask):
            file = str(_write(entry, folder))
            names.append(file)
            titles[file] = entry.name or f"mask {len(titles) + 1}"
            sizes.add(entry.seqlen_q)
        elif isinstance(entry, Pattern | BlockPattern):
            names.append(entry.name)
        else:
            names += texts("masks", entry if isinstance(entry, str) else [entry])
    if not names:
        raise BadInput("masks is empty; give a value, or leave it out.")
    if len(sizes) > 1 or (sizes and seqlens is None and len(titles) < len(names)):
        raise BadInput("Mask objects have their own length, so all masks of a call must have the same length; make one call per length.")
    return NamedMasks(names, sizes.pop() if sizes and seqlens is None else seqlens, titles)


def _entries(given: Any) -> list[Any]:
    single = isinstance(given, str | Mask | BlockMask | Pattern | BlockPattern) or not isinstance(given, Iterable)
    return [given] if single else list(given)


def _write(mask: Mask, folder: Path) -> Path:
    name = f"{mask.name}-" if NAME.fullmatch(mask.name) else ""
    make_folder(folder)
    return write_mask(mask, folder / f"{name}{mask.digest[:12]}.json")


def given_mask(mask: Any) -> str | AnyMask:
    """The name of a mask or of a pattern, or a Mask; raises BadInput for anything else."""
    if isinstance(mask, Pattern | BlockPattern):
        return mask.name
    if isinstance(mask, str | PathLike):
        return str(fspath(mask))
    if isinstance(mask, Mask | BlockMask):
        return mask
    raise BadInput(f"a mask must be a name, a file, an expression, a pattern or a Mask, not {mask!r}.")


def build_mask(settings: MaskSettings, name: str, seqlen: int, shape: Heads, seed: int, source: str = "random") -> AnyMask:
    """One mask by its name. A block pattern has a pattern per KV head of the shape, unless its parameters say how many."""
    named, given = masks.find(name), dict[str, Any](settings.params or {})
    named.check(given)
    if masks.has_blocks(name):
        given |= {"heads": given.get("heads", shape.kv)} if "heads" in named.defaults else {}
        refuse_large_pattern(name, seqlen, given)
    lengths = document_lengths(settings.documents)
    lengths = tuple(read_lengths(lengths)) if isinstance(lengths, str) else lengths
    for note in cut_note(lengths, [seqlen]) if lengths else []:
        say(f"note: {note}.")
    drawing = {"documents": lengths, "distribution": settings.distribution, "packing": settings.packing}
    return block_selection.build(name, seqlen, source, shape, seed=seed, **drawing, **given)
