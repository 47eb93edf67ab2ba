"""The problem: what is computed, whatever kernel or method does it. A cell is a problem with a kernel, a record a cell with its outcome.

Kernels and methods are compared on equal problems.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from longca import masks
from longca.errors import unknown
from longca.kernels import block_selection
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.text import format_extras, format_shape

Size = Annotated[int, Meta(ge=1, le=1 << 40)]
Ranks = Annotated[int, Meta(ge=1, le=1 << 20)]
Natural = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0, le=1e18)]
TENSORS = ("out", "lse", "dq", "dk", "dv", "dsinks")


class Pass(StrEnum):
    FWD = "fwd"
    BWD = "bwd"
    BOTH = "fwd+bwd"

    @property
    def parts(self) -> tuple[Pass, ...]:
        """The passes that it consists of."""
        return (Pass.FWD, Pass.BWD) if self is Pass.BOTH else (self,)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that it computes."""
        return {"fwd": ("out", "lse"), "bwd": TENSORS[2:], "fwd+bwd": TENSORS}[self.value]


def parse_pass(name: str) -> Pass:
    """The pass that a user typed."""
    if name not in [pass_.value for pass_ in Pass]:
        raise unknown("pass", name, [pass_.value for pass_ in Pass])
    return Pass(name)


class Operator(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attention operator without its mask: heads, head sizes, dtype, and what is done to the scores."""

    heads_q: Size
    heads_kv: Size
    head_dim: Size
    head_dim_v: Size
    dtype: str
    deterministic: bool = False
    softcap: NotNegative = 0.0  # scores s become softcap * tanh(s / softcap); 0: they stay
    sinks: bool = False
    scale: float = 0.0  # 0: 1/sqrt(head_dim)
    cudagraph: bool = False  # calls are captured in a CUDA graph, and what is timed is its replay

    def __post_init__(self) -> None:
        if self.heads_q % self.heads_kv:
            raise ValueError(f"{self.heads_q} query heads are not a multiple of {self.heads_kv} KV heads")

    @property
    def operator(self) -> Operator:
        """The operator of a problem."""
        return Operator(**{name: getattr(self, name) for name in Operator.__struct_fields__})

    @property
    def title(self) -> str:
        values = {name: getattr(self, name) for name in Operator.__struct_fields__}
        parts = [format_shape(values), self.dtype, *format_extras(values)]
        return " · ".join([*parts, *["deterministic"] * self.deterministic, *["CUDA graph"] * self.cudagraph])


class Sharing(Struct, frozen=True, omit_defaults=True):
    """How ranks share GPUs: so many per GPU, through MPS, or else in time slices, with so many CTAs of NCCL for a transfer. `nodes`: how
    many nodes the ranks of one machine pretend to be."""

    ranks: Ranks = 1
    mps: bool = True
    ctas: Annotated[int, Meta(ge=1)] = 2
    nodes: Ranks = 1

    @property
    def percent(self) -> int:
        """The share of a GPU's multiprocessors that each rank gets from MPS."""
        return 100 // self.ranks

    def __str__(self) -> str:
        slices = "" if self.mps else " in time slices"
        shared = [f"{self.ranks} ranks per GPU{slices}, {self.ctas} CTAs"] if self.ranks > 1 else []
        return ", ".join(shared + ([f"as {self.nodes} nodes"] if self.nodes > 1 else []))


class Problem(Operator, frozen=True, kw_only=True, omit_defaults=True):
    """One mask of one length for one operator, the pass that is computed, and how many ranks share the sequence.

    `sharing` is part of it: what ranks do that share a GPU says nothing about whole GPUs.
    """

    mask: str
    seqlen: Size
    pass_: Pass = field(name="pass")
    seed: Natural = 0
    params: tuple[tuple[str, int | float], ...] = ()  # as asked for; others have their defaults, or are drawn from the seed
    source: str = "random"  # where a block pattern comes from
    documents: tuple[Natural, ...] | None = None  # given lengths; None: drawn from the seed
    distribution: str | None = None
    packing: str | None = None
    ranks: Ranks = 1
    sharing: Sharing | None = None  # of GPUs; None: a GPU for each rank

    @property
    def every_pass(self) -> Problem:
        """The problem without its pass and its ranks: one mask and one reference serve all of these."""
        return replace(self, pass_=Pass.BOTH, ranks=1, sharing=None)

    @property
    def is_pattern(self) -> bool:
        """Whether the mask is a block pattern."""
        return masks.has_blocks(self.mask)

    @property
    def patterns(self) -> int:
        """How many patterns the mask has; its area is that of all of them together."""
        blocks = masks.blocks_of(self.mask, dict(self.params)) if self.is_pattern else None
        return int(blocks[1].get("heads", self.heads_kv)) if blocks else 1

    @property
    def mask_title(self) -> str:
        """The mask with its source and the parameters that were asked for."""
        source = [] if self.source == "random" else [self.source]
        return " ".join([self.mask, *source, *(f"{name}={value}" for name, value in self.params)])

    @property
    def documents_title(self) -> str:
        """How its documents were drawn, as far as that was asked for."""
        words = self.distribution, self.packing, "own documents" if self.documents is not None else ""
        return "".join(f" {word}" for word in words if word)

    @property
    def token_shape(self) -> block_selection.Heads:
        """The shape of q and k of one token, on which the blocks that they select depend."""
        return block_selection.Heads(self.heads_q, self.heads_kv, self.head_dim)

    def build_mask(self) -> AnyMask:
        params: dict[str, Any] = dict(self.params)
        if self.is_pattern and "heads" in masks.find(self.mask).defaults:
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

    def case(self, mask: AnyMask, device: str, grad: bool) -> Case:
        """What a kernel is asked for; `grad`: whether a forward keeps what a backward needs."""
        return Case(
            mask.seqlen_q,
            mask.seqlen_k,
            self.heads_q,
            self.heads_kv,
            self.head_dim,
            self.head_dim_v,
            self.dtype,
            device,
            self.scale,
            backward=grad,
            deterministic=self.deterministic,
            numbers=block_selection.numbers_of(self.source),
            softcap=self.softcap,
            sinks=self.sinks,
        )


class Split(Struct, frozen=True, omit_defaults=True):
    """How context parallelism splits a problem over its ranks."""

    method: str
    grid: str
    options: Annotated[str, Meta(pattern=r"^([^=,]+=-?\d{1,18}(,|$))*$")] = (
        ""  # of the method, where they differ from its defaults: stages=4
    )

    @property
    def shape(self) -> str:
        """The grid and the options, as people read them."""
        return f"{self.grid} {self.options}".strip()
