"""What is asked: attention of which mask, length, shape and pass, on how many GPUs; and which records answer that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longca import lengths, masks
from longca.bench.metrics import BYTES, PASSES
from longca.bench.suite import DTYPES
from longca.errors import BadInput, LongcaError, unknown
from longca.lengths.packers import PACKERS
from longca.masks.pattern import check_seqlen, refuse_documents
from longca.report.evidence import Evidence
from longca.report.reading import Record
from longca.text import format_dims, format_heads, format_shape, format_size

MOST_GIB = 1024  # of q, k and v on one GPU: far more than any has, so the length is a slip


@dataclass(frozen=True)
class Question:
    mask: str
    seqlen: int
    heads_q: int = 64
    heads_kv: int = 8
    head_dim: int = 128
    head_dim_v: int = 128
    dtype: str = "bf16"
    which: str = "fwd+bwd"
    params: Mapping[str, int | float] = field(default_factory=dict)  # not given: the mask's own, or drawn ones
    source: str = "random"  # of block patterns
    distribution: str | None = None
    packing: str | None = None
    own_documents: bool = False  # lengths of a workload instead of drawn ones
    deterministic: bool = False
    gpus: int = 1
    cluster: str | None = None  # only what was simulated for it; None: only what was measured
    memory_gib: float | None = None  # per GPU, inputs included
    device: str = ""  # words of its name, or its kind: cpu, cuda

    def __post_init__(self) -> None:
        masks.find(self.mask).check(self.params)
        for kind, value, known in (
            ("pass", self.which, PASSES),
            ("dtype", self.dtype, DTYPES),
            ("source of block patterns", self.source, masks.SOURCES),
        ):
            if value not in known:
                raise unknown(kind, value, list(known))
        check_seqlen(self.seqlen)
        if self.gpus < 1:
            raise BadInput(f"a question needs at least one GPU, not {self.gpus}.")

    @property
    def input_gib(self) -> float:
        """q, k and v, and for a backward dout: what `peak_gib` of one device leaves out."""
        per_token = self.heads_q * self.head_dim + self.heads_kv * (self.head_dim + self.head_dim_v)
        per_token += 0 if self.which == "fwd" else self.heads_q * self.head_dim_v
        return self.seqlen * per_token * BYTES[self.dtype] / 2**30

    @property
    def has_documents(self) -> bool:
        return bool(getattr(masks.find(self.mask), "has_documents", False))

    @property
    def all_params(self) -> dict[str, Any]:
        """Every parameter of the mask: as given, else the mask's own, or a function that draws it; a pattern per KV head."""
        usual: dict[str, Any] = dict(masks.find(self.mask).defaults)
        usual |= {"heads": self.heads_kv} if "heads" in usual else {}
        return usual | dict(self.params)

    def words(self, unit: str = "GPU") -> str:
        params = f" of {self.source}" if self.source != "random" else ""
        params += "".join(f", {name} drawn" if callable(value) else f", {name}={value}" for name, value in self.all_params.items())
        split = f", {self.gpus} {unit}s" if self.gpus > 1 else ""
        split += f", simulated on {self.cluster}" if self.cluster else ""
        return f"{self.mask}{params}, {format_size(self.seqlen)} tokens, {format_shape(vars(self))}, {self.dtype}, {self.which}{split}"


def check_drawing(distribution: str | None, packing: str | None) -> None:
    """Refuse names that nobody knows. A file need not be here: records of it may."""
    if distribution and not Path(distribution).suffix:
        lengths.find(distribution)
    if packing and packing not in PACKERS:
        raise unknown("packing", packing, list(PACKERS))


def check_together(question: Question) -> None:
    """Refuse what no run could ever answer, rather than advise one."""
    if question.source != "random" and question.mask not in masks.block_names():
        blocks = " or ".join(masks.block_names())
        raise BadInput(f"the source {question.source} is for block patterns, and none is asked for; give --mask {blocks}.")
    if not question.has_documents:
        refuse_documents(question.mask, question.distribution, question.packing, question.own_documents or None)
    if question.own_documents and (question.distribution or question.packing):
        raise BadInput("--own-documents are lengths of a workload, which no distribution or packing draws; leave out one of them.")
    if question.gpus > question.seqlen:
        raise BadInput(f"{question.gpus} GPUs cannot share {question.seqlen} tokens; ask for fewer GPUs.")
    each = question.input_gib / question.gpus
    if each > MOST_GIB:
        raise BadInput(
            f"q, k and v of {format_size(question.seqlen)} tokens take {each:.3g} GiB on each GPU, more than any has; ask for fewer tokens."
        )


def aspects(record: Record) -> dict[str, Any]:
    """What must agree between a question and a record, by the flag that asks for it. The device is looked at apart."""
    given = record.get("given") or {}
    return {
        "--seqlen": format_size(record["seqlen"]),
        "--heads": format_heads(record),
        "--head-dim": format_dims(record),
        "--dtype": record["dtype"],
        "--gpus": record.get("ranks") or 1,
        "--cluster": record.get("simulated"),
        "--source": record.get("source") or "random",
        "--distribution": given.get("distribution"),
        "--packing": given.get("packing"),
        "--own-documents": bool(given.get("documents")),
        "--deterministic": bool(record.get("deterministic")),
    }


def asked_aspects(question: Question) -> dict[str, Any]:
    given = {"distribution": question.distribution, "packing": question.packing, "documents": question.own_documents}
    return aspects({**vars(question), "given": given, "ranks": question.gpus, "simulated": question.cluster})


def misses(question: Question, one: Evidence) -> dict[str, Any] | None:
    """The flags in which a record differs from the question, with the record's values: {} answers it. None: of no use at all."""
    record = one.record
    if record["mask"] != question.mask or (record["level"] == "cp" and record.get("ranks") == 1):
        return None
    wanted = asked_aspects(question)
    differing = {flag: value for flag, value in aspects(record).items() if value != wanted[flag]}
    other = other_params(question, record)
    if other:
        differing["--set"] = other
    if not is_device(question.device, one):
        differing["--device"] = one.device
    return differing


def is_device(asked: str, one: Evidence) -> bool:
    """Whether all words of `asked` are words of the device's name: an H20 is no H200. Or what `longca run --device` takes: cpu, cuda."""
    wanted, words = (set(re.findall(r"\w+", name.lower())) for name in (asked, one.device))
    return wanted <= words or asked.lower() == one.facts.get("device_kind")


def other_params(question: Question, record: Record) -> str:
    """Parameters that are neither those asked for, nor the mask's own, nor drawn from the seed: as --set would take them."""
    given = (record.get("given") or {}).get("params", {})
    try:
        usual: dict[str, Any] = dict(masks.find(question.mask).defaults)
    except LongcaError:  # a mask of somebody's plugin
        usual = {}
    usual |= {"heads": record["heads_kv"]} if "heads" in usual else {}  # a pattern per KV head, unless somebody says otherwise
    other = {}
    for name, value in record["params"].items():
        wanted = question.params.get(name, usual.get(name))
        drawn = callable(wanted) and name not in given
        if not drawn and value != wanted:
            other[name] = value
    return ",".join(f"{name}={value}" for name, value in other.items())
