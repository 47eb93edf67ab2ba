"""A cell: one measurement to be made. Everything upstream makes cells, everything downstream reads the records made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from longca import masks
from longca.kernels import block_selection
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.results.record import SCHEMA, LevelName, Pass

LATER_FIELDS = ("softcap", "sinks", "scale")  # that cells did not have when schema 2 began


class Split(msgspec.Struct, frozen=True, omit_defaults=True):
    """How context parallelism splits a cell. Keys of cells without options do not depend on that field."""

    method: str
    ranks: int
    grid: str
    options: str = ""  # of the method, where they differ from its defaults: stages=4

    @property
    def shape(self) -> str:
        """The grid and the options, as people read them."""
        return f"{self.grid} {self.options}".strip()


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, mask, length, shape, dtype, pass and seed."""

    kernel: str  # as asked for: fa4, or fa4:bands
    mask: str
    seqlen: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    dtype: str
    pass_: Pass
    seed: int = 0
    params: tuple[tuple[str, int | float], ...] = ()
    documents: tuple[int, ...] | None = None  # given lengths; None: drawn from the seed
    distribution: str | None = None
    packing: str | None = None
    deterministic: bool = False
    grad: bool = True  # whether the forward keeps what a backward needs: true as soon as a backward pass is planned beside it
    device: str = "cpu"
    level: LevelName = LevelName.KERNEL
    source: str = "random"  # where a block pattern comes from
    split: Split | None = None
    softcap: float = 0.0  # scores s become softcap * tanh(s / softcap); 0: they stay
    sinks: bool = False
    scale: float = 0.0  # 0: 1/sqrt(head_dim)

    def build_mask(self) -> AnyMask:
        params = dict(self.params)
        if masks.has_blocks(self.mask) and "heads" in masks.find(self.mask).defaults:
            params["heads"] = self.patterns  # one per KV head, unless the user asks for another number
        return block_selection.build(
            self.mask,
            self.seqlen,
            self.source,
            self.token_shape,
            seed=self.seed,
            documents=self.documents,
            distribution=self.distribution,
            packing=self.packing,
            **params,
        )

    def case(self, mask: AnyMask) -> Case:
        return Case(
            mask.seqlen_q,
            mask.seqlen_k,
            self.heads_q,
            self.heads_kv,
            self.head_dim,
            self.head_dim_v,
            self.dtype,
            self.device,
            self.scale,
            backward=self.grad,
            deterministic=self.deterministic,
            numbers=block_selection.numbers_of(self.source),
            softcap=self.softcap,
            sinks=self.sinks,
        )

    @property
    def token_shape(self) -> block_selection.Heads:
        """The shape of q and k of one token, on which the blocks that they select depend."""
        return block_selection.Heads(self.heads_q, self.heads_kv, self.head_dim)

    @property
    def patterns(self) -> int:
        """How many patterns the mask has; its area is that of all of them together."""
        if not masks.has_blocks(self.mask):
            return 1
        blocks = masks.blocks_of(self.mask, dict(self.params))
        return int(blocks[1].get("heads", self.heads_kv)) if blocks else 1

    @property
    def mask_title(self) -> str:
        """The mask with its source and the parameters that were asked for."""
        source = [] if self.source == "random" else [self.source]
        return " ".join([self.mask, *source, *(f"{name}={value}" for name, value in self.params)])

    @property
    def title(self) -> str:
        """What runs: the method where there is one, else the kernel."""
        return self.split.method if self.split else self.kernel

    @property
    def job(self) -> Cell:
        """The part that the passes of one kernel on one problem share: they are prepared and checked once."""
        return replace(self, pass_=Pass.BOTH)

    @property
    def problem(self) -> Cell:
        """The part that all compared kernels share, also where a forward runs alone: mask, length, shape and seed, hence the reference."""
        return replace(self, pass_=Pass.BOTH, kernel="", split=None, grad=True)


def fingerprint(*parts: Any) -> str:
    """A short stable hash of anything msgspec can encode."""
    return hashlib.blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=10).hexdigest()


def key(cell: Cell, digest: str, device_model: str, versions: Mapping[str, str]) -> str:
    """What makes two measurements the same. Host and commit are not part of it, so that journals of many machines can be joined.

    A field that cells got later is part of it only where it is not the default: cells of older journals keep their keys.
    """
    usual = {field.name: field.default for field in msgspec.structs.fields(Cell) if field.name in LATER_FIELDS}
    fields = {name: value for name, value in msgspec.to_builtins(cell).items() if name not in usual or value != usual[name]}
    return fingerprint(SCHEMA, fields, digest, device_model, dict(versions))
