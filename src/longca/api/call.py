"""A call of `longca.attention` as `longca explain` and `longca tune` are asked for it: its mask and its shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from longca import masks
from longca.api.masks import build_mask, given_mask
from longca.bench.plan.request import MaskSettings, Texts, texts
from longca.bench.plan.workload import model as find_model
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import Case
from longca.kernels.block_selection import Heads
from longca.masks import AnyMask
from longca.text import parse_dims, parse_heads, parse_size

KINDS = {"cpu": "fp32", "cuda": "bf16"}  # the usual dtype
DTYPES = ("bf16", "fp16", "fp32", "fp64")


@dataclass(frozen=True)
class CallRequest(MaskSettings):
    """A mask and a shape; what is None has its default, or the model's."""

    mask: str | AnyMask
    seqlen: int | str | None = None
    heads: str | int | Sequence[int] | None = None
    head_dim: int | str | None = None
    dtype: str | None = None
    _: KW_ONLY
    backward: bool = True
    softcap: float | None = None
    sinks: bool | None = None
    model: str | None = None
    device: str | None = None
    seed: int = 0
    plugins: Texts = ()  # files with masks or kernels


def load_plugins(request: CallRequest) -> list[str]:
    """Loads the masks and the kernels of plugin files, and returns the names of the kernels."""
    kernels = list[str]()
    for path in texts("plugins", request.plugins) if request.plugins else ():
        masks.load_plugin(path)
        kernels += registry.load_plugin(path)
    return kernels


def call_of(request: CallRequest, kind: str, *, deterministic: bool = False) -> tuple[AnyMask, Case]:
    """The mask and the shape, with those of the model where nothing else is given."""
    shape = None if request.model is None else find_model(request.model)

    def given(name: str, usual: Any) -> Any:
        value = getattr(request, name)
        return value if value is not None else getattr(shape, name) if shape else usual

    heads, dims, softcap = given("heads", "64:8"), parse_dims(str(given("head_dim", 128))), given("softcap", 0.0)
    heads_q, heads_kv = parse_heads(texts("heads", [tuple(heads) if isinstance(heads, list) else heads])[0])
    if not (math.isfinite(softcap) and softcap >= 0):
        raise BadInput(f"softcap must be a positive number, or 0 for none, not {softcap}.")
    if (dtype := request.dtype or KINDS[kind]) not in DTYPES:
        raise unknown("dtype", str(dtype), list(DTYPES))
    mask, seqlen = given_mask(request.mask), request.seqlen
    if isinstance(mask, str):
        if seqlen is None:
            raise BadInput(f"give a length beside the mask {mask}, such as seqlen='32K'.")
        settings = replace(request, params={**(shape.params_of(mask) if shape else {}), **(request.params or {})})
        mask = build_mask(settings, mask, parse_size(str(seqlen)), Heads(heads_q, heads_kv, dims[0]), request.seed)
    elif seqlen is not None and parse_size(str(seqlen)) != mask.seqlen_k:
        raise BadInput(f"the mask has {mask.seqlen_k} tokens, not {seqlen}; leave out seqlen.")
    case = Case(
        mask.seqlen_q, mask.seqlen_k, heads_q, heads_kv, *dims, dtype, kind,
        backward=request.backward, deterministic=deterministic, softcap=float(softcap), sinks=given("sinks", False),
    )  # fmt: skip
    return mask, case
