"""`longca.plan`: what each context-parallel method sends, holds and computes per GPU; exact, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from longca.api.takes import takes
from longca.bench.plan.plugins import load_carefully, load_masks
from longca.bench.plan.request import Number, Request, Texts, suite_of, texts
from longca.bench.plan.suite import Suite
from longca.bench.plan.workload import Step, model, read_workload
from longca.errors import BadInput
from longca.lengths import cut_note
from longca.parallel.grid import divisors
from longca.results.record import LevelName
from longca.results.settings import Limits
from longca.simulate.answers import Plan
from longca.simulate.request import MOST_GPUS
from longca.simulate.request import Request as Splits
from longca.simulate.table import rows
from longca.text import parse_heads, say


@dataclass(frozen=True)
class SplitRequest(Request):
    """What to plan or simulate."""

    methods: Texts | None = None
    masks: Texts | None = None
    gpus: Texts | None = None  # numbers of GPUs that share the sequence; 8 by default
    _: KW_ONLY
    seqlens: Texts | None = None  # tokens of all GPUs together
    per_gpu: Texts | None = None  # tokens of each GPU instead; 8K by default
    kernels: Texts | None = None  # the kernel that every rank runs
    heads: Texts | None = None
    head_dims: Texts | None = None
    dtypes: Texts | None = None
    passes: Texts | None = None
    source: str | None = None  # of block patterns
    grid: str | None = None
    options: Mapping[str, Number | Iterable[Number]] | None = None  # of the methods that have them
    seed: int | None = None  # of the documents
    seeds: Texts | None = None  # how many packs of documents, or which
    workload: str | Path | None = None  # a file with your own packs, in place of masks and lengths
    tp: int = 1  # GPUs that share the heads
    total_gpus: int | None = None  # in all: every number of them may share the sequence, in place of `gpus`


@dataclass(frozen=True)
class PlanRequest(SplitRequest):
    _: KW_ONLY
    per_node: int = 8
    all_grids: bool = False


@takes(PlanRequest)
def plan(request: PlanRequest) -> Plan:
    """Returns what each context-parallel method sends, holds and computes per GPU, exactly and without a GPU.

    >>> longca.plan("ulysses,magi", "causal_document", gpus=64, seqlens="512K")
    """
    if request.per_node < 1:
        raise BadInput(f"--per-node must be 1 or more, not {request.per_node}.")
    if request.grid and request.all_grids:
        raise BadInput("--grid gives one grid, and --all-grids asks for all of them; give one of the two.")
    splits = splits_of(request, per_node_of(request, request.per_node), all_grids=request.all_grids)
    return Plan(list(rows(splits)), splits)


def splits_of(
    request: SplitRequest, per_node: int, device: str = "cuda", all_grids: bool = False, all_options: bool = False, packs: int = 1
) -> Splits:
    """The cells that a request asks for. Documents are drawn with the seeds from 0 on, `packs` of them where no seeds are given."""
    load_masks(request.plugin_files)
    for path in request.plugin_files:
        load_carefully(path, Limits().start_s)
    if request.seqlens is not None and request.per_gpu is not None:
        raise BadInput("--seqlen and --per-gpu both set the length of the sequence; give one of them.")
    kernels = [] if request.kernels is None else texts("kernels", request.kernels)
    if len(kernels) > 1:
        raise BadInput(f"methods are compared on one kernel, and --kernels has {len(kernels)}; give one.")
    per_gpu = tuple(texts("per_gpu", "8K" if request.per_gpu is None else request.per_gpu))
    usual = Suite(masks=("causal",), level=LevelName.CP, seqlens=per_gpu, per_rank=request.seqlens is None)
    steps = _steps(request) if request.workload is not None else ()
    layers = {} if steps or not request.model else _layers(request.model, texts("masks", request.masks or usual.masks))
    suite = suite_of(replace(request, masks=tuple(layers) or request.masks), usual.changed(seeds=packs))
    suite, gpus = _per_tensor_rank(suite, request.tp), _gpus(request)
    totals = {length * (count if suite.per_rank else 1) for length in suite.lengths for count in gpus}
    for note in cut_note(suite.document_lengths, totals) if suite.documents else []:
        say(f"note: {note}.")
    return Splits(suite, gpus, per_node, device, all_grids, all_options, steps, layers, request.tp, request.total_gpus)


def per_node_of(request: SplitRequest, per_node: int) -> int:
    """The GPUs of a node that may share a sequence: one of each group that shares heads."""
    if request.tp < 1 or per_node % request.tp:
        raise BadInput(f"--tp must divide the {per_node} GPUs of a node, and {request.tp} does not.")
    return per_node // request.tp


def _layers(name: str, given: Sequence[str]) -> dict[str, int]:
    """The masks of a model's layers, and how many layers have each; nothing where all have one, or where windows were asked for."""
    shape = model(name)
    if len(given) != 1 or shape.window is None or shape.params_of(given[0]):
        return {}
    whole = given[0] if given[0].isidentifier() else f"({given[0]})"
    counts = {given[0]: shape.count("global"), f"{whole} & sliding_window_causal": shape.count("local")}
    return {mask: count for mask, count in counts.items() if count}


def _per_tensor_rank(suite: Suite, ranks: int) -> Suite:
    """The suite with the heads of one of the GPUs that share them."""
    heads = [parse_heads(str(entry)) for entry in suite.heads]
    for query, keys in heads:
        if query % ranks or keys % ranks:
            raise BadInput(f"{query}:{keys} heads cannot be divided over --tp {ranks}; give a divisor of both.")
    return suite.changed(heads=tuple(f"{query // ranks}:{keys // ranks}" for query, keys in heads)) if ranks > 1 else suite


def _steps(request: SplitRequest) -> tuple[Step, ...]:
    for name in ("masks", "seqlens", "per_gpu", "seed", "seeds", "documents", "distribution", "packing"):
        if getattr(request, name) is not None:
            raise BadInput(f"a workload has masks, lengths and documents of its own; leave out {name}.")
    return tuple(read_workload(request.workload or ""))


def _gpus(request: SplitRequest) -> tuple[int, ...]:
    value, total = request.gpus, request.total_gpus
    if total is not None:
        if value is not None or request.seqlens is None:
            raise BadInput("--total-gpus tries every number of GPUs that may share a sequence: give --seqlen beside it, and no --gpus.")
        if total < request.tp or total % request.tp:
            raise BadInput(f"--total-gpus {total} cannot be divided by --tp {request.tp}.")
        return tuple(divisors(total // request.tp))
    entries = texts("gpus", 8 if value is None else value)
    if not all(entry.isdecimal() for entry in entries):
        raise BadInput(f"--gpus must be numbers such as 8,16,64, not {value}.")
    if any(len(entry) > len(str(MOST_GPUS)) for entry in entries):
        raise BadInput(f"--gpus must be from 1 to {MOST_GPUS}, not {value}.")
    return tuple(dict.fromkeys(map(int, entries)))
