"""The question: attention with which mask, length, shape and pass, on how many GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from numbers import Integral
from pathlib import Path
from typing import Any

from longca import lengths, masks
from longca.errors import BadInput, unknown
from longca.kernels.base import BYTES
from longca.lengths.packers import PACKERS
from longca.masks.pattern import check_seqlen, refuse_documents
from longca.results.metrics import DTYPES, GIB
from longca.results.problem import Pass, parse_pass
from longca.text import format_tokens, parse_dims, parse_heads, parse_memory, parse_size

MOST_GIB = 1024  # of q, k and v on one GPU: far more than any has, so the length is a slip
# fields that are names, with an example
NAMES = {"mask": "causal", "dtype": "bf16", "pass_": "fwd+bwd", "cluster": "h100-ib", "device": "H200"}


@dataclass(frozen=True)
class Question:
    """What is asked. A parameter of the mask that is not given is the mask's default, or drawn."""

    mask: str
    seqlen: int
    heads_q: int = 64
    heads_kv: int = 8
    head_dim: int = 128
    head_dim_v: int = 128
    dtype: str = "bf16"
    pass_: Pass = Pass.BOTH
    params: Mapping[str, int | float] = field(default_factory=dict)
    source: str = "random"  # of block patterns
    distribution: str | None = None
    packing: str | None = None
    documents: tuple[int, ...] = ()  # lengths instead of drawn ones
    own_documents: bool = False  # records of any lengths that a user gave: those of a workload
    deterministic: bool = False
    softcap: float = 0.0
    sinks: bool = False
    scale: float = 0.0  # of scores; 0: 1/sqrt(head size). Times do not depend on it, so records of any scale answer
    gpus: int = 1
    cluster: str | None = None  # only records simulated for this cluster; None: only measured records
    memory_gib: float | None = None  # per GPU, inputs included
    device: str = ""  # words of its name, or its kind: cpu, cuda
    calls_per_plan: int | None = None  # calls that one plan serves: its part of the planning counts in each; None: planning does not count
    exact: bool = False  # whether only records of this very question answer

    def __post_init__(self) -> None:
        masks.find(self.mask).check(self.params)
        for kind, value, known in (("dtype", self.dtype, DTYPES), ("source of block patterns", self.source, masks.SOURCES)):
            if value not in known:
                raise unknown(kind, value, list(known))
        check_seqlen(self.seqlen)
        if not (isfinite(self.softcap) and self.softcap >= 0):
            raise BadInput(f"a softcap must be a positive number, or 0 for none, not {self.softcap}.")
        if not isfinite(self.scale):
            raise BadInput(f"a scale must be a finite number, or 0 for 1/sqrt(head size), not {self.scale}.")
        if self.calls_per_plan is not None and self.calls_per_plan < 1:
            raise BadInput(f"--calls-per-plan is the number of calls that one plan serves, 1 or more, not {self.calls_per_plan}.")
        if self.gpus < 1:
            raise BadInput(f"a question needs at least one GPU, not {self.gpus}.")

    def __hash__(self) -> int:
        return hash((self.mask, self.seqlen, self.pass_, self.gpus, self.device, tuple(sorted(self.params.items()))))

    @classmethod
    def parse(cls, mask: str, seqlen: int | str, **typed: Any) -> Question:
        """The question from what a user types: heads='64:8', memory='80GiB'. None stands for the default."""
        question = cls(**parse_fields(mask=mask, seqlen=seqlen, **typed))
        question.check_together()
        own_lengths = masks.find(question.mask).own_lengths is not None
        if question.packing == "draw" and (question.distribution or not own_lengths):  # the default, which records do not name
            return replace(question, packing=None)
        return question

    def check_together(self) -> None:
        """Raises BadInput for combinations that no run could ever answer."""
        for file in masks.files_in(self.mask):
            file.refuse_length(self.seqlen)
        if self.source != "random" and not self.is_pattern:
            blocks = " or ".join(masks.block_names())
            raise BadInput(f"the source {self.source} is for block patterns, and none is asked for; give --mask {blocks}.")
        if not self.has_documents:
            refuse_documents(self.mask, self.distribution, self.packing, self.documents or None, self.own_documents or None)
        if (self.documents or self.own_documents) and (self.distribution or self.packing):
            flag = "--lengths" if self.documents else "--own-documents"
            raise BadInput(f"{flag} gives documents, which no distribution or packing draws; leave out one of them.")
        if self.documents and self.own_documents:
            raise BadInput("--lengths asks for these documents, and --own-documents for those of a workload; leave out one of them.")
        if self.cluster and self.calls_per_plan is not None:
            raise BadInput("simulated records have no planning time; leave out --calls-per-plan, or --cluster for measured records.")
        if self.gpus > self.seqlen:
            raise BadInput(f"{self.gpus} GPUs cannot share {format_tokens(self.seqlen)}; ask for fewer GPUs.")
        each = self.input_gib / self.gpus
        if each > MOST_GIB:
            tokens = f"q, k and v of {format_tokens(self.seqlen)}"
            raise BadInput(f"{tokens} take {each:.3g} GiB on each GPU, more than any has; ask for fewer tokens.")

    @property
    def input_gib(self) -> float:
        """The size of q, k and v, and for a backward of dout: `peak_gib` of one device does not include them."""
        per_token = self.heads_q * self.head_dim + self.heads_kv * (self.head_dim + self.head_dim_v)
        per_token += 0 if self.pass_ is Pass.FWD else self.heads_q * self.head_dim_v
        return self.seqlen * per_token * BYTES[self.dtype] / GIB

    @property
    def has_documents(self) -> bool:
        return masks.find(self.mask).has_documents

    @property
    def is_pattern(self) -> bool:
        """Whether the mask is a block pattern."""
        return masks.has_blocks(self.mask)

    @property
    def drawing(self) -> tuple[str | None, str | None, bool]:
        """How documents are drawn: the distribution, the packing, and whether a user gave them."""
        return self.distribution, self.packing, self.own_documents

    @property
    def all_params(self) -> dict[str, Any]:
        """Every parameter of the mask: as given, else its default, or the function that draws it."""
        return default_params(self.mask, self.heads_kv) | dict(self.params)

    def build(self, seed: int) -> masks.AnyMask:
        """The mask that is asked for, with what it draws drawn from this seed."""
        return _built(replace(self, pass_=Pass.BOTH), seed)  # one mask for all passes

    def to_json(self) -> dict[str, Any]:
        fields = vars(self) | {"params": dict(self.params), "documents": list(self.documents)}
        fields["pass"] = fields.pop("pass_")
        return fields


@lru_cache(maxsize=64)
def _built(question: Question, seed: int) -> masks.AnyMask:
    named = masks.find(question.mask)
    if isinstance(named, masks.MaskFile):
        return named.mask
    params: dict[str, Any] = {"heads": question.heads_kv} if question.is_pattern and "heads" in named.defaults else {}
    if question.has_documents:
        params |= {"documents": question.documents or None, "distribution": question.distribution, "packing": question.packing}
    return masks.build(question.mask, question.seqlen, seed=seed, **params | dict(question.params))


def default_params(mask: str, heads_kv: int) -> dict[str, Any]:
    """The parameters of a mask that nobody gives; a block pattern has one pattern per KV head."""
    defaults: dict[str, Any] = dict(masks.find(mask).defaults)
    return defaults | ({"heads": heads_kv} if "heads" in defaults and masks.has_blocks(mask) else {})


def parse_fields(**typed: Any) -> dict[str, Any]:
    """Fields of a question from what a user types. What is None was not typed and is left out."""
    fields = {name: value for name, value in typed.items() if value is not None}
    for name in NAMES.keys() & fields.keys():
        if not isinstance(fields[name], str):
            raise BadInput(f"{name} must be its name as a text, such as '{NAMES[name]}', not {fields[name]!r}.")
    if "mask" in fields:
        fields["mask"] = masks.find(fields["mask"]).name
    if "pass_" in fields:
        fields["pass_"] = parse_pass(fields["pass_"])
    if "seqlen" in fields:
        fields["seqlen"] = parse_size(str(fields["seqlen"]))
    if "heads" in fields:
        fields["heads_q"], fields["heads_kv"] = heads_of(fields.pop("heads"))
    for name in ("gpus", "calls_per_plan"):
        if not isinstance(fields.get(name, 1), Integral):
            raise BadInput(f"{name} must be a whole number, not {fields[name]!r}.")
    if "head_dim" in fields:
        fields["head_dim"], fields["head_dim_v"] = parse_dims(str(fields["head_dim"]))
    if not isinstance(fields.get("memory", ""), str):
        raise BadInput(f"memory must be a text with its unit, such as '80GiB', not {fields['memory']!r}.")
    if "memory" in fields:
        fields["memory_gib"] = parse_memory(fields.pop("memory")) / GIB
    _check_drawing(fields.get("distribution"), fields.get("packing"))
    return fields


def heads_of(given: Any) -> tuple[int, int]:
    """Query and KV heads, from a text or from numbers."""
    if isinstance(given, str):
        return parse_heads(given)
    numbers = given if isinstance(given, tuple | list) and len(given) == 2 else [given]
    if not all(isinstance(number, Integral) and not isinstance(number, bool) for number in numbers):
        raise BadInput(f"heads must be a text such as '64:8', two numbers such as (64, 8), or one for both, not {given!r}.")
    return parse_heads(":".join(map(str, numbers)))


def _check_drawing(distribution: str | None, packing: str | None) -> None:
    """Raises BadInput for unknown names. A file of lengths need not be here: records measured with it may be."""
    if distribution and not Path(distribution).suffix:
        lengths.find(distribution)
    if packing and packing not in PACKERS:
        raise unknown("packing", packing, list(PACKERS))
