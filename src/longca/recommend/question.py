"""The question: a problem of any seed, and which records may answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import structs

from longca import lengths, masks
from longca.errors import BadInput, unknown
from longca.kernels.base import BYTES
from longca.lengths.packers import PACKERS
from longca.masks.pattern import check_seqlen, refuse_documents
from longca.results.metrics import DTYPES, GIB
from longca.results.problem import Pass, Problem, parse_pass
from longca.text import format_tokens, parse_dims, parse_heads, parse_memory, parse_size

USUAL: dict[str, Any] = {"heads_q": 64, "heads_kv": 8, "head_dim": 128, "head_dim_v": 128, "dtype": "bf16", "pass_": Pass.BOTH}
MOST_GIB = 1024  # of q, k and v on one GPU: far more than any has, so the length is a slip
DRAWN = "drawn"  # stands for a parameter that each mask draws from its seed
PARSERS: dict[str, Callable[[Any], object]] = {
    "mask": lambda name: masks.find(name).name,
    "pass_": parse_pass,
    "seqlen": lambda size: check_seqlen(parse_size(str(size))),
    "params": lambda given: tuple(given.items()),
    "documents": tuple,
}


@dataclass(frozen=True)
class Question:
    """What is asked. The seed of the problem says nothing: records of any seed answer, and as times do not depend on it, of any scale."""

    problem: Problem
    own_documents: bool = False  # records of any lengths that a user gave: those of a workload
    memory_gib: float | None = None  # per GPU, inputs included
    device: str = ""  # words of its name, or its kind: cpu, cuda
    calls_per_plan: int | None = None  # calls that one plan serves: its part of the planning counts in each; None: planning does not count
    exact: bool = False  # whether only records of this very question answer

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Question:
        """The question with these fields, its own and those of the problem."""
        problem = {name: value for name, value in fields.items() if name in Problem.__struct_fields__}
        return cls(Problem(**USUAL | problem), **{name: value for name, value in fields.items() if name not in problem})

    @classmethod
    def parse(cls, mask: str, seqlen: int | str, **typed: Any) -> Question:
        """The question from what a user types: heads='64:8', memory='80GiB'. None stands for the default."""
        fields = parse_fields(mask=mask, seqlen=seqlen, **typed)
        drawn_anyway = fields.get("distribution") or masks.find(fields["mask"]).own_lengths is None
        if fields.get("packing") == "draw" and drawn_anyway:  # the default, which records do not name
            del fields["packing"]
        question = cls.of(fields)
        question.check()
        return question

    def check(self) -> None:
        """Raises BadInput for combinations that no run could ever answer."""
        problem = self.problem
        masks.find(problem.mask).check(dict(problem.params))
        for file in masks.files_in(problem.mask):
            file.refuse_length(problem.seqlen)
        if problem.source != "random" and not problem.is_pattern:
            blocks = " or ".join(masks.block_names())
            raise BadInput(f"the source {problem.source} is for block patterns, and none is asked for; give --mask {blocks}.")
        drawing = problem.distribution, problem.packing
        if not self.has_documents:
            refuse_documents(problem.mask, *drawing, problem.documents, self.own_documents or None)
        if problem.documents and self.own_documents:
            raise BadInput("--lengths asks for these documents, and --own-documents for those of a workload; leave out one of them.")
        if (problem.documents or self.own_documents) and any(drawing):
            flag = "--lengths" if problem.documents else "--own-documents"
            raise BadInput(f"{flag} gives documents, which no distribution or packing draws; leave out one of them.")
        if problem.ranks > problem.seqlen:
            raise BadInput(f"{problem.ranks} GPUs cannot share {format_tokens(problem.seqlen)}; ask for fewer GPUs.")
        each = input_gib(problem) / problem.ranks
        if each > MOST_GIB:
            tokens = f"q, k and v of {format_tokens(problem.seqlen)}"
            raise BadInput(f"{tokens} take {each:.3g} GiB on each GPU, more than any has; ask for fewer tokens.")

    @property
    def has_documents(self) -> bool:
        return masks.find(self.problem.mask).has_documents

    @property
    def all_params(self) -> dict[str, Any]:
        """Every parameter of the mask: as given, else its default, or `DRAWN`."""
        given = default_params(self.problem) | dict(self.problem.params)
        return {name: DRAWN if callable(value) else value for name, value in given.items()}

    def build(self, seed: int) -> masks.AnyMask:
        """The mask that is asked for, with what it draws drawn from this seed."""
        return _built(structs.replace(self.problem.every_pass, seed=seed))

    def to_json(self) -> dict[str, Any]:
        """The fields for readers without LongCA: with every parameter of the mask."""
        fields = structs.asdict(self.problem) | {"params": self.all_params, "gpus": self.problem.ranks, "pass": self.problem.pass_}
        own = {name: value for name, value in asdict(self).items() if name != "problem"}
        return {name: value for name, value in fields.items() if name not in ("seed", "ranks", "sharing", "pass_")} | own


@lru_cache(maxsize=64)
def _built(problem: Problem) -> masks.AnyMask:
    return problem.build_mask()


def input_gib(problem: Problem) -> float:
    """The size of q, k and v, and for a backward of dout: `peak_gib` of one device does not include them."""
    per_token = problem.heads_q * problem.head_dim + problem.heads_kv * (problem.head_dim + problem.head_dim_v)
    per_token += 0 if problem.pass_ is Pass.FWD else problem.heads_q * problem.head_dim_v
    return problem.seqlen * per_token * BYTES[problem.dtype] / GIB


def default_params(problem: Problem) -> dict[str, Any]:
    """The parameters of a mask that nobody gives; a block pattern has one pattern per KV head, and a ratio where no `top` is given."""
    pattern = masks.find(problem.mask)
    defaults: dict[str, Any] = dict(pattern.defaults)
    if isinstance(pattern, masks.BlockPattern):
        defaults = pattern.known({name: value for name, value in problem.params if name == "top"}, problem.source)
    return defaults | ({"heads": problem.heads_kv} if "heads" in defaults and masks.has_blocks(problem.mask) else {})


def parse_fields(**typed: Any) -> dict[str, Any]:
    """Fields of a question and its problem from what a user types. What is None was not typed and is left out."""
    fields = {name: value for name, value in typed.items() if value is not None}
    if "heads" in fields:
        fields["heads_q"], fields["heads_kv"] = parse_heads(fields.pop("heads"))
    if "head_dim" in fields:
        fields["head_dim"], fields["head_dim_v"] = parse_dims(str(fields["head_dim"]))
    if "memory" in fields:
        fields["memory_gib"] = parse_memory(fields.pop("memory")) / GIB
    if "gpus" in fields:
        fields["ranks"] = fields.pop("gpus")
    fields |= {name: parse(fields[name]) for name, parse in PARSERS.items() if name in fields}
    _check_values(fields)
    return fields


def _check_values(fields: Mapping[str, Any]) -> None:
    """Raises BadInput for values that their field cannot have. A file of lengths need not be here: records measured with it may be."""
    known = {"dtype": ("dtype", DTYPES), "source": ("source of block patterns", masks.SOURCES), "packing": ("packing", PACKERS)}
    for name, (kind, names) in known.items():
        if fields.get(name) and fields[name] not in names:
            raise unknown(kind, fields[name], list(names))
    if fields.get("distribution") and not Path(fields["distribution"]).suffix:
        lengths.find(fields["distribution"])
    softcap, scale, calls = fields.get("softcap", 0.0), fields.get("scale", 0.0), fields.get("calls_per_plan", 1)
    if not (isfinite(softcap) and softcap >= 0):
        raise BadInput(f"a softcap must be a positive number, or 0 for none, not {softcap}.")
    if not isfinite(scale):
        raise BadInput(f"a scale must be a finite number, or 0 for 1/sqrt(head size), not {scale}.")
    if calls < 1:
        raise BadInput(f"--calls-per-plan is the number of calls that one plan serves, 1 or more, not {calls}.")
    if fields.get("ranks", 1) < 1:
        raise BadInput(f"a question needs at least one GPU, not {fields['ranks']}.")
