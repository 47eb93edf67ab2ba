"""The least time that a device needs for a mask, as a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.recommend import shipped
from longca.results import roofline
from longca.results.limits import Limits
from longca.results.metrics import bandwidth, peak
from longca.results.problem import Operator, Pass
from longca.results.roofline import Roofline, Tiles
from longca.results.shown import Part, Shown
from longca.results.tables import Table
from longca.text import format_shape, plural

COLUMNS = ["pass", "tile", "touched", "full", "visible", "FLOPs", "in tiles", "bytes", "limit", "bound", "as fast as full"]
OPERATOR = ("heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype")


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
