"""`longca.mask_limit`: the least time that a device needs for a mask; nothing is run. `longca mask --tiles` prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longca import devices
from longca.api.show_mask import OneMask, named_mask
from longca.api.takes import takes
from longca.errors import BadInput, unknown
from longca.kernels.base import Case
from longca.kernels.block_selection import Heads
from longca.masks import AnyMask
from longca.recommend import shipped
from longca.results import roofline
from longca.results.limits import LIMITED, Limits
from longca.results.metrics import DTYPES, PEAK_TFLOPS, bandwidth, peak
from longca.results.problem import Operator, Pass
from longca.results.roofline import Roofline, Tiles
from longca.results.shown import Part, Shown
from longca.results.tables import Table
from longca.results.tile_work import tile_rows
from longca.text import format_shape, parse_dims, parse_heads, plural

COLUMNS = ["pass", "tile", "touched", "full", "visible", "FLOPs", "in tiles", "bytes", "limit", "bound", "as fast as full"]
OPERATOR = ("heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype")


@dataclass(frozen=True, kw_only=True)
class LimitRequest(OneMask):
    """A mask, the shape of its heads (64:8 of 128), the tiles of a kernel, and a device."""

    tiles: str | None = None  # such as 128x128; None: those of most kernels
    device: str | None = None  # None: the GPU of this machine
    dtype: str | None = None


@dataclass(frozen=True, repr=False)
class MaskLimit(Shown):
    """The roofline of a mask: one for the forward and one for the backward."""

    mask: AnyMask
    case: Case
    device: str
    tiles: dict[Pass, Tiles]
    ok = True

    @property
    def limits(self) -> dict[Pass, Roofline]:
        return {pass_: roofline.of_mask(self.mask, self.case, pass_, self.device, tiles) for pass_, tiles in self.tiles.items()}

    @property
    def rows(self) -> list[dict[str, Any]]:
        case = self.case
        dense, operator = Limits(shipped.load()), Operator(**{name: getattr(case, name) for name in OPERATOR})
        rows = []
        for pass_, limit in self.limits.items():
            tiles = self.tiles[pass_]
            found, speed = self.mask.tiles(*tiles), dense.dense(f"NVIDIA {self.device}", pass_, operator)
            rows.append(
                {
                    "pass": pass_.value,
                    "tile": f"{tiles.rows}x{tiles.keys}",
                    "touched": found.full + found.partial,
                    "full": found.full,
                    "visible": limit.flops / limit.tile_flops,
                    "flops": limit.flops,
                    "tile_flops": limit.tile_flops,
                    "bytes": limit.bytes,
                    "limit_ms": limit.limit_ms,
                    "bound": limit.bound,
                    "dense_tflops": speed,
                    "dense_ms": None if speed is None else limit.tile_flops / speed / 1e9,
                }
            )
        return rows

    def parts(self) -> list[Part]:
        rows = self.rows
        known = all(row["dense_ms"] for row in rows)
        shown = [_cells(row)[: None if known else -1] for row in rows]
        size = f"{self.mask.name or 'this mask'}, {plural(self.mask.seqlen_k, 'token')}, {format_shape(vars(self.case))}, {self.case.dtype}"
        peaks = f"{peak(self.device, self.case.dtype):g} TFLOP/s in {self.case.dtype} and {bandwidth(self.device):g} TB/s"
        parts: list[Part] = [Table(size, COLUMNS[: None if known else -1], shown)]
        parts.append(f"limit: what {self.device} needs at {peaks} (datasheet) to do the work in tiles and to move every tensor once.")
        if known:
            best = " and ".join(f"{row['dense_tflops']:.0f} ({row['pass']})" for row in rows)
            parts.append(f"as fast as full: at {best} TFLOP/s, the best that LongCA's records have on the mask full.")
        return parts


def _cells(row: Mapping[str, Any]) -> list[str]:
    """A row as the table has it."""
    work = [f"{100 * row['visible']:.1f} %", f"{row['flops']:.3g}", f"{row['tile_flops']:.3g}", f"{row['bytes'] / 1e9:.3g} GB"]
    dense = "" if row["dense_ms"] is None else f"{row['dense_ms']:.4g} ms"
    return [row["pass"], row["tile"], f"{row['touched']}", f"{row['full']}", *work, f"{row['limit_ms']:.4g} ms", row["bound"], dense]


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
    mask = request.mask if not isinstance(request.mask, str) else named_mask(request, request.mask, Heads(*heads, dims[0]))
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
