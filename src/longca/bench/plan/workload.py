"""A user's own training steps, one JSON object per line; and the shapes of well-known models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from longca import masks
from longca.bench.plan.suite import Seed, Suite, convert, folder, names, read_toml
from longca.errors import BadInput, LongcaError, unknown
from longca.masks.by_name import Named
from longca.masks.expression import Expression, Leaf
from longca.results.problem import Size
from longca.results.record import Params

Count = Annotated[int, Meta(ge=1)]
EXAMPLE = '{"mask": "causal_document", "documents": [353, 7839]}'


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """The mask part of cells: what one training step attends with. Without `documents` their lengths are drawn from the seed, by the
    distribution and the packing."""

    mask: str
    seqlen: Size = 0
    documents: Annotated[tuple[Count, ...], Meta(min_length=1)] | None = None
    distribution: str | None = None
    packing: str | None = None
    params: Params = {}
    seed: Seed = 0

    @property
    def cell_fields(self) -> dict[str, Any]:
        """The fields of a cell that the step says."""
        mask, params = masks.find(self.mask).name, tuple(self.params.items())
        return {"mask": mask, "seqlen": self.tokens, "seed": self.seed, "params": params, **self.drawing}

    @property
    def drawing(self) -> dict[str, Any]:
        """The lengths of documents, or how they are drawn; without what is not said."""
        said = {"documents": self.documents} if self.documents else drawing(masks.find(self.mask), self.distribution, self.packing)
        return {name: value for name, value in said.items() if value is not None}

    @property
    def tokens(self) -> int:
        return self.seqlen or sum(self.documents or ())


def read_workload(path: str | Path) -> list[Step]:
    """The steps of a workload. Equal steps are measured once."""
    path = Path(path)
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the workload {path}: {getattr(error, 'strerror', None) or 'it is not a text file'}.") from error
    steps = [_step(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not steps:
        raise BadInput(f"the workload {path} has no steps; write one JSON object per training step, such as {EXAMPLE}.")
    return steps


def _step(line: str, where: str) -> Step:
    try:
        values = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{where} is not JSON: {error}; write an object such as {EXAMPLE}.") from error
    step = convert(values, Step, where)
    if not step.tokens:
        raise BadInput(f"{where} needs a seqlen of 1 or more, or documents.")
    try:
        masks.find(step.mask).check(step.params)
        masks.build(step.mask, step.tokens, seed=step.seed, **{**step.drawing, **step.params})
    except LongcaError as error:  # the mask's message does not name the file
        raise BadInput(f"{where}: {error}") from error
    return step


def drawing(pattern: Named, distribution: str | None, packing: str | None) -> dict[str, Any]:
    """How documents are drawn. `draw` is the default except for masks with their own lengths: the same work has one key."""
    if packing == "draw" and (distribution or pattern.own_lengths is None):
        packing = None
    return {"distribution": distribution, "packing": packing}


WINDOWED = {"sliding_window", "sliding_window_causal", "sliding_window_causal_document"}


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """The attention of a well-known model, as its published configuration has it."""

    about: str
    heads: str
    head_dim: str
    layers: Count
    pattern: str = "global"  # one word per layer, repeated: local layers have the window, global ones do not
    window: Count | None = None  # keys that a token of a local layer sees, its own included
    softcap: Annotated[float, Meta(ge=0)] = 0.0
    sinks: bool = False
    scale: float = 0.0  # 0: 1/sqrt(head size)

    def params_of(self, mask: str) -> dict[str, int | float]:
        """Returns the window as the parameter w of a mask with a sliding window, by its name or expression; of other masks nothing. Models
        count a token's own key in the window, w does not."""
        named = masks.find(mask)
        leaves = named.leaves.values() if isinstance(named, Expression) else (Leaf(named, {}),)
        parts = [leaf.part.name for leaf in leaves if "w" in leaf.free]
        return {"w": self.window - 1} if self.window is not None and parts and set(parts) <= WINDOWED else {}

    def layers_of(self, mask: str) -> int:
        """Returns how many layers have this mask: the local ones if it has the model's window, otherwise the global ones, or all."""
        return self.count("local" if self.params_of(mask) else "global") or self.layers

    def count(self, word: str) -> int:
        """Returns how many layers are `local` or `global`."""
        return list(islice(cycle(self.pattern.split()), self.layers)).count(word)

    @property
    def layer_pattern(self) -> str:
        """The pattern in words, such as '5 local, 1 global'."""
        words = [f"{len(list(same))} {word}" for word, same in groupby(self.pattern.split())]
        return f"all {self.pattern}" if len(words) == 1 else ", ".join(words)


def model(name: str) -> Model:
    if name not in names("models"):
        raise unknown("model", name, names("models"), command="longca ls models")
    return read_toml(folder("models") / f"{name}.toml", Model)


def with_model(suite: Suite, name: str, wanted: Sequence[str] = ()) -> Suite:
    """The suite in the shape of a model: its heads, head sizes, softcap, sinks, scale and, where it has one, its sliding window. `wanted`
    are the masks that will be measured instead of the suite's."""
    shape = model(name)
    windows = {mask: window for mask in masks.expand(wanted or suite.masks) if (window := shape.params_of(mask))}
    extras: dict[str, Any] = {"softcap": shape.softcap, "sinks": shape.sinks, "scale": shape.scale}
    return suite.changed(heads=(shape.heads,), head_dims=(shape.head_dim,), params={**suite.params, **windows}, **extras)
