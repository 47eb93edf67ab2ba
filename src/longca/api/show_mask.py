"""`longca.show_mask`: one mask by its name, as a picture in the terminal, as a PNG, or as the numbers that define it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from longca import masks
from longca.api.files import refuse_no_png
from longca.api.masks import build_mask, given_mask
from longca.api.takes import takes
from longca.bench.plan.request import MaskSettings
from longca.errors import BadInput
from longca.kernels.block_selection import Heads
from longca.masks import AnyMask, Mask
from longca.masks.files import describe
from longca.results.shown import Part, Shown
from longca.text import parse_dims, parse_heads, parse_size

SEQLEN = "8K"


@dataclass(frozen=True)
class OneMask(MaskSettings):
    """A mask."""

    mask: str | AnyMask
    seqlen: int | str | None = None  # 8K, or the length of the mask in a file
    _: KW_ONLY
    seed: int = 0
    source: str | None = None  # of a block pattern
    heads: str | None = None
    head_dim: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class MaskRequest(OneMask):
    """The mask to show."""

    png: str | Path | None = None
    bands: bool = False  # in the PNG


@dataclass(frozen=True, repr=False)
class ShownMask(Shown):
    """A mask, and the PNG file that was drawn."""

    mask: AnyMask
    png: Path | None = None
    ok = True

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row with the numbers that define the mask."""
        return [describe(self.mask)]

    def parts(self) -> list[Part]:
        from longca.masks.draw import terminal_picture

        return [terminal_picture(self.mask)]


@takes(MaskRequest)
def show_mask(request: MaskRequest) -> ShownMask:
    """Builds a mask by its name, file or expression, and returns it with its picture; `png` also draws it into a file, `bands` with each
    band of the mask and its six numbers. `source`, `heads` and `head_dim` are for block patterns.

    >>> longca.show_mask("causal_document & sliding_window(w=512)", "8K", seed=1)
    """
    if request.png is None and request.bands:
        raise BadInput("--bands draws the bands of a mask into a file; add --png FILE.")
    refuse_no_png(request.png)
    mask = named_mask(request, _shape(request))
    return ShownMask(mask, None if request.png is None else _draw(mask, request.png, request.bands))


def _draw(mask: AnyMask, path: str | Path, bands: bool) -> Path:
    from longca.masks.draw import write_png
    from longca.masks.draw_bands import write_bands

    if not bands:
        return write_png(mask, str(path))
    if not isinstance(mask, Mask):
        raise BadInput(f"{mask.name} is a block pattern, and --bands draws masks of bands; leave it out.")
    return write_bands(mask, str(path))


def _shape(request: MaskRequest) -> Heads:
    """The heads of a block pattern."""
    _refuse_without_blocks(request, {"--heads": request.heads, "--head-dim": request.head_dim})
    usual = int(dict[str, Any](request.params or {}).get("heads", 1))
    heads = parse_heads(str(request.heads)) if request.heads else (usual, usual)
    return Heads(*heads, parse_dims(str(request.head_dim or 128))[0])


def named_mask(request: OneMask, shape: Heads) -> AnyMask:
    """The mask of a request; a block pattern is for these heads."""
    mask = given_mask(request.mask)
    if not isinstance(mask, str):
        return mask
    _refuse_without_blocks(request, {"--source": request.source})
    named = masks.find(mask)
    seqlen = request.seqlen or (named.seqlen if isinstance(named, masks.MaskFile) else SEQLEN)
    return build_mask(request, mask, parse_size(str(seqlen)), shape, request.seed, request.source or "random")


def _refuse_without_blocks(request: OneMask, given: Mapping[str, object]) -> None:
    """Refuses flags that only block patterns take, beside another mask."""
    flags, mask = [flag for flag, value in given.items() if value is not None], given_mask(request.mask)
    if flags and isinstance(mask, str) and not masks.has_blocks(mask):
        words = f"{' and no '.join(flags)}; {' and '.join(masks.block_names())} do"
        raise BadInput(f"{mask} is not a block pattern, so it takes no {words}.")
