"""A cell: one measurement to be made. Everything upstream makes cells, everything downstream reads the records made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from longca import masks
from longca.kernels import block_selection
from longca.kernels.base import Case
from longca.masks import AnyMask

SCHEMA = 1  # of records; raise it when a field changes its meaning, and keep the old form readable (docs/results.md)


@dataclass(frozen=True)
class Cell:
    """One kernel, mask, length, shape, dtype, pass and seed. `which` is the pass; it is called `pass` in records."""

    kernel: str  # as asked for: fa4, or fa4:bands
    mask: str
    seqlen: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    dtype: str
    which: str  # fwd, bwd, fwd+bwd
    seed: int = 0
    params: tuple[tuple[str, int | float], ...] = ()
    documents: tuple[int, ...] | None = None  # given lengths; None: drawn from the seed
    distribution: str | None = None
    packing: str | None = None
    deterministic: bool = False
    grad: bool = True  # whether the forward keeps what a backward needs: true as soon as a backward pass is planned beside it
    device: str = "cpu"
    level: str = "kernel"
    source: str = "random"  # where a block pattern comes from
    extra: tuple[tuple[str, Any], ...] = ()  # what only some levels have, such as ranks

    def build_mask(self) -> AnyMask:
        params = dict(self.params)
        if self.mask in masks.block_names():
            params["heads"] = self.patterns  # one per KV head, unless the user says otherwise
        return block_selection.build(
            self.mask,
            self.seqlen,
            self.source,
            self.token,
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
            backward=self.grad,
            deterministic=self.deterministic,
            numbers=block_selection.numbers_of(self.source),
        )

    @property
    def token(self) -> block_selection.Heads:
        """What q and k of a seed depend on, and the blocks that they select."""
        return block_selection.Heads(self.heads_q, self.heads_kv, self.head_dim)

    @property
    def patterns(self) -> int:
        """How many patterns the mask has: its area is that of all of them together."""
        return int(dict(self.params).get("heads", self.heads_kv)) if self.mask in masks.block_names() else 1

    @property
    def mask_title(self) -> str:
        """The mask with its source and the parameters that were asked for."""
        source = [] if self.source == "random" else [self.source]
        return " ".join([self.mask, *source, *(f"{name}={value}" for name, value in self.params)])

    @property
    def job(self) -> Cell:
        """What the passes of one kernel on one problem share: they are prepared and checked once."""
        return replace(self, which="")

    @property
    def problem(self) -> Cell:
        """What all kernels that are compared share: mask, length, shape and seed, hence the reference too."""
        return replace(self, which="", kernel="", extra=())

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["pass"] = fields.pop("which")
        if self.source == "random":  # keys of what was measured before there were sources stay what they are
            del fields["source"]
        fields["params"], fields["extra"] = dict(self.params), dict(self.extra)
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Cell:
        given = dict(fields)
        given["which"] = given.pop("pass")
        given["params"], given["extra"] = tuple(given["params"].items()), tuple(given["extra"].items())
        given["documents"] = None if given["documents"] is None else tuple(given["documents"])
        return cls(**given)


def fingerprint(*parts: Any) -> str:
    """A short stable hash of anything JSON can say."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def key(cell: Cell, digest: str, device_model: str, versions: Mapping[str, str]) -> str:
    """What makes two measurements the same: not the host and not the commit, so that journals of many machines can be joined."""
    return fingerprint(SCHEMA, cell.to_json(), digest, device_model, dict(versions))
