"""`longca.probe`: does a model honour its mask, on one rank and on several?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from longca import devices
from longca.api.files import refuse_no_png, write_file
from longca.api.masks import build_mask, given_mask
from longca.api.takes import takes
from longca.bench.plan.request import MaskSettings
from longca.errors import BadInput
from longca.kernels.block_selection import Heads
from longca.masks import Mask, own_params
from longca.probe.probe import Probed, probe_model, probe_ranks
from longca.probe.words import sentences, table_rows
from longca.results.shown import Part, Shown
from longca.text import parse_size, plural

SEQLEN = 192
MOST_RANKS = 16  # that share a GPU


@dataclass(frozen=True)
class ProbeRequest(MaskSettings):
    """The model to probe, and the mask that it should honour."""

    model: Any  # a function of ids, a module, "FILE.py:function", which makes one, or "hf:TYPE[:ATTENTION]"
    mask: Any = "causal"  # a name, an expression, a Mask; or a list of them, one per layer
    seqlen: int | str | None = None  # 192, or the length of a Mask
    _: KW_ONLY
    layers: int = 1  # how often the model applies the mask
    ranks: int = 1  # for "FILE.py:function": also on this many ranks
    device: str = "cpu"  # gloo ranks on CPUs; or "cuda", NCCL ranks on GPUs
    ranks_per_gpu: int = 1  # NCCL ranks that share a GPU
    vocab: int = 64  # ids are smaller than this
    probes: int = 48  # tokens to change
    seed: int = 0
    png: str | Path | None = None


@dataclass(frozen=True, repr=False)
class ProbedModel(Shown):
    """What a probe saw, for each number of ranks."""

    results: tuple[Probed, ...]
    seqlen: int
    png: Path | None = None

    @property
    def ok(self) -> bool:
        return not any(result.findings for result in self.results)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per finding."""
        return table_rows(self.results)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": self.rows}

    def parts(self) -> list[Part]:
        told: list[Part] = [sentence for result in self.results for sentence in sentences(result, self.seqlen)]
        return told if self.png is None else [*told, f"wrote {self.png}"]


@takes(ProbeRequest)
def probe(request: ProbeRequest) -> ProbedModel:
    """Changes tokens one by one and compares which outputs change, and which gradients arrive, with the mask.

    A model is a function of the ids of the whole sequence [S] that returns outputs [S, C]; on several ranks it returns `(outputs, tokens)`,
    this rank's rows and which tokens they are, and with a loss `(outputs, tokens, loss)`. "FILE.py:function" names a function without
    arguments that makes the model; `ranks=4` probes it on one rank and on four, which are NCCL ranks with `device="cuda"`.
    "hf:qwen3:eager" is a tiny model of transformers on a packed batch.

    >>> longca.probe(model, "causal_document", 192).ok
    """
    refuse_no_png(request.png)
    if request.layers < 1 or request.ranks < 1:
        raise BadInput(f"layers and ranks must be at least 1, not {request.layers} and {request.ranks}.")
    _refuse_device(request)
    masks = _masks(request)
    results = _results(request, masks)
    if request.png is None:
        return ProbedModel(results, masks[0].seqlen_q)
    from longca.probe.picture import write_picture

    return ProbedModel(results, masks[0].seqlen_q, write_file(request.png, lambda path: write_picture(results, path)))


def _refuse_device(request: ProbeRequest) -> None:
    """Refuses GPUs that this machine does not have, and a device for a model that no rank makes."""
    device, per_gpu = devices.require(request.device), request.ranks_per_gpu
    if not 1 <= per_gpu <= MOST_RANKS:
        raise BadInput(f"a GPU is shared by 1 to {MOST_RANKS} ranks, not {per_gpu}.")
    if device == "cpu" and per_gpu > 1:
        raise BadInput("ranks share a GPU only on GPUs; use --device cuda with --ranks-per-gpu.")
    if device == "cpu":
        return
    if not isinstance(request.model, str) or request.model.startswith("hf:"):
        raise BadInput('a device is for the ranks of "FILE.py:function"; hf: models run on the CPU, and a function or module where it is.')
    gpus = len(devices.gpus())
    if request.ranks > per_gpu * gpus:
        needed, share = plural(-(-request.ranks // per_gpu), "GPU"), -(-request.ranks // gpus)
        raise BadInput(f"{request.ranks} ranks need {needed}, and this machine has {gpus}; use --ranks-per-gpu {share} or fewer ranks.")


def _results(request: ProbeRequest, masks: Sequence[Mask]) -> tuple[Probed, ...]:
    model, settings = request.model, (request.vocab, request.probes, request.seed)
    if isinstance(model, str) and model.startswith("hf:"):
        model = _tiny_model(model, masks, request.vocab)
    if isinstance(model, str):
        ranks = [1] if request.ranks == 1 else [1, request.ranks]
        return tuple(probe_ranks(model, masks, ranks, *settings, request.device, request.ranks_per_gpu))
    if not callable(model):
        raise BadInput(f'the model must be a function of ids, a module or "FILE.py:function", not {type(model).__name__}.')
    if request.ranks > 1:
        needed = 'give "FILE.py:function", or call probe in every process of your job'
        raise BadInput(f"ranks need a model that each of them can make; {needed}.")
    return tuple(probe_model(model, masks, *settings))


def _tiny_model(text: str, masks: Sequence[Mask], vocab: int) -> Any:
    """The model that hf:TYPE[:ATTENTION] names, with the documents of the mask and, if the mask has one, its window."""
    from longca.integrations.tiny_models import tiny_model

    _, name, attention = (*text.split(":", 2), "sdpa")[:3]
    documents = masks[0].documents or (masks[0].seqlen_q,)
    window = next((mask.params["w"] for mask in masks if "w" in mask.params), None)
    return tiny_model(name, attention, documents, len(masks), vocab, None if window is None else int(window) + 1)


def _masks(request: ProbeRequest) -> list[Mask]:
    listed = isinstance(request.mask, Sequence) and not isinstance(request.mask, str)
    if listed and not request.mask:
        raise BadInput("mask is empty; give one, or one for each layer.")
    given = [given_mask(mask) for mask in (request.mask if listed else [request.mask])]
    sizes = [mask.seqlen_q for mask in given if isinstance(mask, Mask)]
    seqlen = parse_size(str(request.seqlen or (sizes[0] if sizes else SEQLEN)))
    params, names = dict(request.params or {}), [str(mask) for mask in given if not isinstance(mask, Mask)]
    known = {key for name in names for key in own_params(name, params)}

    def build(name: str) -> Mask:
        own = own_params(name, params) | {key: params[key] for key in params if key not in known}
        return _built(name, seqlen, replace(request, params=own))

    built = [mask if isinstance(mask, Mask) else build(str(mask)) for mask in given]
    return built * request.layers if len(built) == 1 else built


def _built(name: str, seqlen: int, request: ProbeRequest) -> Mask:
    mask = build_mask(request, name, seqlen, Heads(1, 1, 64), request.seed)
    if not isinstance(mask, Mask):
        raise BadInput(f"{name} is a block pattern, which a model selects itself; probe takes masks of bands.")
    drawn = request.documents is None and request.distribution is None and request.packing is None
    if drawn and mask.documents and len(mask.documents) == 1:  # the usual documents are longer than a probe
        return _built(name, seqlen, replace(request, packing="short"))
    return mask
