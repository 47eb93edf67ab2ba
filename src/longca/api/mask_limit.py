"""`longca.mask_limit`: the least time that a device needs for a mask; nothing is run. `longca mask --tiles` prints it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from longca import devices
from longca.api.show_mask import OneMask, named_mask
from longca.api.takes import takes
from longca.errors import BadInput, unknown
from longca.kernels.base import Case
from longca.kernels.block_selection import Heads
from longca.report.mask_limit import MaskLimit
from longca.results.limits import LIMITED
from longca.results.metrics import DTYPES, PEAK_TFLOPS
from longca.results.roofline import Tiles
from longca.results.tile_work import tile_rows
from longca.text import parse_dims, parse_heads


@dataclass(frozen=True, kw_only=True)
class LimitRequest(OneMask):
    """A mask, the shape of its heads (64:8 of 128), the tiles of a kernel, and a device."""

    tiles: str | None = None  # such as 128x128; None: those of most kernels
    device: str | None = None  # None: the GPU of this machine
    dtype: str | None = None


@takes(LimitRequest)
def mask_limit(request: LimitRequest) -> MaskLimit:
    """Returns the least time of a forward and a backward on a device, from the tiles that a mask touches and the bytes of all tensors. It
    runs nothing. `tiles` are query tokens and keys, such as "128x128"; the default are those of most kernels. `device` is a name such as
    "h200"; the default is the GPU of this machine.

    >>> longca.mask_limit("causal_document", "32K", tiles="128x128", heads="64:8", device="h200").limits
    """
    if (dtype := request.dtype or "bf16") not in DTYPES:
        raise unknown("dtype", dtype, list(DTYPES))
    heads, dims = parse_heads(str(request.heads or "64:8")), parse_dims(str(request.head_dim or 128))
    mask = named_mask(request, Heads(*heads, dims[0]))
    given, device = _tiles(request.tiles), _device(request.device)
    tiles = {pass_: given or Tiles(tile_rows(pass_, *heads)) for pass_ in LIMITED}
    return MaskLimit(mask, Case(mask.seqlen_q, mask.seqlen_k, *heads, *dims, dtype), device, tiles)


def _tiles(text: str | None) -> Tiles | None:
    if text is None:
        return None
    sizes = re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(text).strip().lower())
    if sizes is None or not (int(sizes[1]) and int(sizes[2])):
        raise BadInput(f"--tiles {text!r} is not understood; write query tokens and keys, such as 128x128.")
    return Tiles(int(sizes[1]), int(sizes[2]))


def _device(name: str | None) -> str:
    """The name under which the peaks of a device are known."""
    if name is None and devices.gpus():
        name = devices.title()
    if name is None:
        raise BadInput("this machine has no GPU; name a device, such as --device h200.")
    known = [device for device in sorted(PEAK_TFLOPS, key=len, reverse=True) if device in name.upper()]
    if not known:
        raise unknown("device", name, sorted(map(str.lower, PEAK_TFLOPS)))
    return known[0]
