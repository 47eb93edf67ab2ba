"""Mask: which query sees which keys, written as bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput, Refused
from longca.masks import algebra, area, encodings
from longca.masks.bands import Bands, Ints, Range, as_ranges, cut_keys, cut_rows, read_rows, refuse_inverted, transposed, without_empty_rows
from longca.masks.canonical import fingerprint, merged
from longca.masks.handle import Handled, constant
from longca.masks.tiles import Tiles

if TYPE_CHECKING:
    import torch

Shards = Sequence[Sequence[Range]]


class Mask(Handled):
    """A static mask. `Mask(8, 8, [(0, 8, 0, 0, 1, 1)])` is causal over 8 tokens; rows of six numbers are (q0, q1, lo, a, hi, b).

    The bands of a mask are disjoint, inside [0, seqlen_k), without empty rows, sorted by (q0, lo), and no two could be one;
    `Mask.of` brings any bands into that form, the constructor only checks. `a & b`, `a | b`, `a - b` and `~a` are masks again.
    """

    heads = 1

    def __init__(
        self,
        seqlen_q: int,
        seqlen_k: int,
        rows: Bands | Sequence[Sequence[int]],
        *,
        name: str = "",
        params: Mapping[str, Any] | None = None,
        documents: Sequence[int] | None = None,
        seed: int | None = None,
    ) -> None:
        _refuse_lengths(seqlen_q, seqlen_k)
        self.seqlen_q, self.seqlen_k = int(seqlen_q), int(seqlen_k)
        self.bands = rows if isinstance(rows, Bands) else read_rows(rows)
        self.name, self.params, self.seed = name, dict(params or {}), seed
        self.documents = None if documents is None else tuple(int(n) for n in documents)
        if self.documents and min(self.documents) < 0:
            raise BadInput(f"document lengths must not be negative, and one is {min(self.documents)}.")
        self._check()

    @classmethod
    def of(
        cls,
        seqlen_q: int,
        seqlen_k: int,
        rows: Bands | Sequence[Sequence[int]],
        *,
        overlapping: Literal["refuse", "unite"] = "refuse",
        **about: Any,
    ) -> Mask:
        """A mask from any bands: sorted, joined, rows that see nothing left out. Bands that overlap are refused, or united."""
        if overlapping not in ("refuse", "unite"):
            raise BadInput(f"overlapping must be 'refuse' or 'unite', not {overlapping!r}.")
        _refuse_lengths(seqlen_q, seqlen_k)
        given = rows if isinstance(rows, Bands) else refuse_inverted(read_rows(rows))
        _refuse_slopes(given)
        given = without_empty_rows(given)
        if overlapping == "unite":
            _refuse_outside(given, seqlen_q, seqlen_k)
            return cls(seqlen_q, seqlen_k, algebra.united(given, seqlen_q, seqlen_k), **about)
        return cls(seqlen_q, seqlen_k, merged(given), **about)

    def _check(self) -> None:
        b = self.bands
        _refuse_outside(b, self.seqlen_q, self.seqlen_k)
        if any((x != y).any() if x.shape == y.shape else True for x, y in zip(merged(b), b, strict=True)):
            raise BadInput("not a mask: its bands are not sorted and joined; use Mask.of(...), which does both.")

    # -- what it is ------------------------------------------------------------------------------------------------------------

    @cached_property
    def area(self) -> int:
        """How many pairs are visible: exact, at any length."""
        return area.total(self.bands)

    @property
    def density(self) -> float:
        return self.area / (self.seqlen_q * self.seqlen_k) if self.area else 0.0

    @cached_property
    def digest(self) -> str:
        """The same for all masks that show the same pairs, and for no others."""
        return fingerprint(self.bands, self.seqlen_q, self.seqlen_k)

    @property
    def table(self) -> list[list[int]]:
        """The bands as rows [q0, q1, lo, a, hi, b]."""
        rows: list[list[int]] = np.stack(self.bands, 1).tolist() if len(self.bands.q0) else []
        return rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Mask {self.name or 'unnamed'} {self.seqlen_q}x{self.seqlen_k}, {len(self.bands.q0)} bands, density {self.density:.4f}>"

    def dense(self) -> NDArray[np.bool_]:
        """Every pair as a bool, for tests and small references: seqlen_q x seqlen_k bytes."""
        start, end = encodings.row_intervals(self)
        key = np.arange(self.seqlen_k)
        return np.asarray(((key >= start[:, :, None]) & (key < end[:, :, None])).any(0))

    # -- cuts ------------------------------------------------------------------------------------------------------------------

    def rows(self, ranges: Sequence[Range]) -> Mask:
        """Only the queries of these sorted ranges, renumbered."""
        start, end = as_ranges(ranges, self.seqlen_q, "row")
        return Mask._trusted(int((end - start).sum()), self.seqlen_k, merged(cut_rows(self.bands, start, end)))

    def cols(self, ranges: Sequence[Range]) -> Mask:
        """Only the keys of these sorted ranges, renumbered."""
        start, end = as_ranges(ranges, self.seqlen_k, "key")
        return Mask._trusted(self.seqlen_q, int((end - start).sum()), merged(cut_keys(self.bands, start, end)))

    def transpose(self) -> Mask:
        """Keys become queries and queries keys."""
        return Mask._trusted(self.seqlen_k, self.seqlen_q, merged(transposed(self.bands)))

    def take_heads(self, heads: Sequence[int]) -> Mask:
        """A static mask is the same for every head."""
        return self

    def pair_areas(self, row_shards: Shards, col_shards: Shards) -> Ints:
        """The area that each shard of queries sees in each shard of keys, [row shards, key shards]; a shard is a list of ranges."""
        if self.seqlen_q * self.seqlen_k >= 1 << 62:
            raise BadInput(f"areas of shards are counted in 64 bits, too few for {self.seqlen_q} queries and {self.seqlen_k} keys.")
        edges = [as_ranges(shard, self.seqlen_k, "key") for shard in col_shards]
        nothing = np.zeros(0, np.int64)
        points, inverse = np.unique(np.concatenate([nothing, *(end for pair in edges for end in pair)]), return_inverse=True)
        owner = np.repeat(np.arange(len(edges)), [2 * len(start) for start, _ in edges])
        sign = np.concatenate([nothing, *(np.repeat([-1, 1], len(start)) for start, _ in edges)])
        areas = np.zeros((len(row_shards), len(col_shards)), np.int64)
        for shard, result in zip(row_shards, areas, strict=True):
            start, end = as_ranges(shard, self.seqlen_q, "row")
            seen = area.cumulative(cut_rows(self.bands, start, end), points)
            np.add.at(result, owner, sign * seen[inverse])
        return areas

    @classmethod
    def _trusted(cls, seqlen_q: int, seqlen_k: int, b: Bands) -> Mask:
        """A mask from bands that an operation of this class has just joined: not checked a second time."""
        mask = cls.__new__(cls)
        mask.seqlen_q, mask.seqlen_k, mask.bands = seqlen_q, seqlen_k, b
        mask.name, mask.params, mask.documents, mask.seed = "", {}, None, None
        return mask

    # -- algebra ---------------------------------------------------------------------------------------------------------------

    @constant
    def __and__(self, other: object) -> Mask:
        """The pairs that both show."""
        return self._combined(other, "&", lambda one, two, *shape: algebra.intersection(one, two))

    @constant
    def __or__(self, other: object) -> Mask:
        """The pairs that one of them shows."""
        return self._combined(other, "|", algebra.union)

    @constant
    def __sub__(self, other: object) -> Mask:
        """The pairs that this mask shows and the other does not."""
        return self._combined(other, "-", algebra.difference)

    @constant
    def __invert__(self) -> Mask:
        """The pairs that this mask does not show."""
        return Mask._trusted(self.seqlen_q, self.seqlen_k, algebra.complement(self.bands, self.seqlen_q, self.seqlen_k))

    def _combined(self, other: object, sign: str, operation: Callable[[Bands, Bands, int, int], Bands]) -> Mask:
        """The result of an operation; documents stay where both masks have the same, or one has none."""
        if not isinstance(other, Mask):
            if hasattr(other, "seqlen_q"):  # a block pattern answers itself
                return NotImplemented  # type: ignore[no-any-return]
            raise BadInput(f"{sign} takes another mask, not {type(other).__name__}; masks.from_dense makes a mask of a matrix.")
        shape = self.seqlen_q, self.seqlen_k
        if shape != (other.seqlen_q, other.seqlen_k):
            sizes = f"{shape[0]}x{shape[1]} and {other.seqlen_q}x{other.seqlen_k}"
            raise BadInput(f"{sign} needs two masks of the same number of queries and keys, not {sizes}.")
        result = Mask._trusted(*shape, operation(self.bands, other.bands, *shape))
        documents = {mask.documents for mask in (self, other)} - {None}
        result.documents = documents.pop() if len(documents) == 1 else None
        return result

    # -- what kernels want -----------------------------------------------------------------------------------------------------

    def tiles(self, rows_per_tile: int, keys_per_tile: int) -> Tiles:
        """Which tiles are full and which partial: `.full` and `.partial` count them, `.by_row()` and `.by_col()` list them."""
        if rows_per_tile < 1 or keys_per_tile < 1:
            raise BadInput(f"tiles must be at least 1x1, not {rows_per_tile}x{keys_per_tile}.")
        return Tiles(self.bands, transposed(self.bands), self.seqlen_q, self.seqlen_k, rows_per_tile, keys_per_tile)

    def row_intervals(self) -> tuple[encodings.Int32s, encodings.Int32s]:
        """(starts, ends), each [K, seqlen_q]: row i sees the keys [starts[k, i], ends[k, i]) of every k."""
        return encodings.row_intervals(self)

    def column_intervals(self) -> encodings.ColumnIntervals:
        """FlashMask's form: for each key the rows that do not see it."""
        return encodings.column_intervals(self)

    def slices(self) -> encodings.Slices:
        """MagiAttention's form: `.q_ranges`, `.k_ranges` and `.types` (0 full, 1 causal, 2 inverse causal, 3 bi-causal)."""
        return encodings.slices(self)

    def varlen(self) -> encodings.Varlen:
        """FlashAttention's form: `.cu_q`, `.cu_k`, and the window `.left`, `.right` (-1: no limit)."""
        if isinstance(self._varlen, str):
            raise Refused(self._varlen)
        return self._varlen

    def position_ids(self) -> encodings.Int32s:
        """The place of each token in its document."""
        return encodings.position_ids(self)

    def mask_mod(self, device: str = "cpu") -> Callable[..., torch.Tensor]:
        """FlexAttention's function (batch, head, query, key) -> bool."""
        from longca.masks import flex  # it imports this file

        return flex.mask_mod(self, device)

    def block_mask(self, device: str = "cpu", block_size: int = 128) -> Any:
        """FlexAttention's BlockMask."""
        from longca.masks import flex

        return flex.block_mask(self, self.mask_mod(device), device, block_size, 1)

    @cached_property
    def _varlen(self) -> encodings.Varlen | str:
        """What `varlen` returns, or the refusal: kernels ask for it one after the other."""
        try:
            return encodings.varlen(self)
        except Refused as refusal:
            return str(refusal)


def _refuse_lengths(*lengths: int) -> None:
    """Raises BadInput for numbers of queries or keys that are none."""
    if not all(isinstance(length, int | np.integer) and length >= 0 for length in lengths):
        raise BadInput("a mask needs lengths of 0 and more, not {!r} queries and {!r} keys.".format(*lengths))


def _refuse_slopes(b: Bands) -> None:
    """Raises BadInput for slopes that no band has."""
    if ((b.a | b.b) & ~1).any():
        raise BadInput("not a mask: slopes must be 0 or 1.")


def _refuse_outside(b: Bands, seqlen_q: int, seqlen_k: int) -> None:
    """Raises BadInput for bands with other slopes, without rows, with empty rows, or outside the queries and keys."""
    _refuse_slopes(b)
    problems = {
        "a band has no rows": (b.height <= 0).any(),
        "a row of a band is empty": (np.minimum(b.hi - b.lo, b.hi_last - b.lo_last) <= 0).any(),
        f"a band leaves the {seqlen_q} queries": (b.q0 < 0).any() or (b.q1 > seqlen_q).any(),
        f"a band leaves the {seqlen_k} keys": (b.lo < 0).any() or (b.hi_last > seqlen_k).any(),
    }
    for problem, applies in problems.items():
        if applies:
            raise BadInput(f"not a mask: {problem}.")
