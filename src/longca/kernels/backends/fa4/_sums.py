"""The fp32 sums of dQ between calls of `fa4:fused`, and how many key tiles add to each of them.

Memory of one call: the sums [heads, tiles, rows x head size]; the softmax scale; for each tile the number of key tiles that add to it; for
each head, tile and half of a tile the number of those that did. Sums and counters are 0 between calls: a kernel that runs to its end leaves
them so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SCALE_FLOATS = 4  # the room of the scale: what follows stays aligned
HALVES = 2  # of a tile, one per warp group, each with a counter of its own


MULTIPROCESSORS = 132  # of an H200
LONGEST_SHARE, LONGEST_SHARE_IN_FRONT = 0.1, 0.5  # of the whole time, that a thread block may take: anywhere, or where the longest begin


def heavy_first(query_tiles: Ints) -> NDArray[np.int32]:
    """Returns the key tiles, those with the most query tiles first. Tiles of about the same work stay in order: neighbours read the same
    queries, and read them from the L2 cache if they run at the same time."""
    work = np.floor(2 * np.log2(np.maximum(query_tiles, 1)))
    return np.argsort(-work, kind="stable").astype(np.int32)


def heads_to_join(query_tiles: Ints, heads_q: int, group: int, longest: float = LONGEST_SHARE) -> int:
    """Returns how many query heads of one KV head a thread block takes: as many as leave the longest block short beside the whole.

    `query_tiles` are the query tiles of each key tile. With more heads, blocks load keys and values, and store dk and dv, less often.
    """
    whole = float(query_tiles.sum()) * heads_q / MULTIPROCESSORS
    divisors = [heads for heads in range(group, 0, -1) if group % heads == 0]
    return next((heads for heads in divisors if int(query_tiles.max(initial=0)) * heads <= longest * whole), 1)


class Window(NamedTuple):
    """Keys from `left` before to `right` after a query, counted from the ends of both; None: no bound."""

    left: int | None
    right: int | None


class Tiling(NamedTuple):
    """Documents cut into tiles of queries and keys, each document from its start."""

    cu_q: Ints
    cu_k: Ints
    rows: int
    keys: int

    @property
    def first_tiles(self) -> Ints:
        """The place of each document's first query tile: the library leaves room for a broken tile after every document."""
        return np.asarray((self.cu_q[:-1] + np.arange(len(self.cu_q) - 1) * self.rows) // self.rows)

    @property
    def places(self) -> int:
        """Query tiles that memory is laid out for; where there are several documents, some belong to none."""
        total, documents = int(self.cu_q[-1]), len(self.cu_q) - 1
        return -(-total // self.rows) if documents == 1 else (total + (documents + 1) * self.rows - 1) // self.rows

    @property
    def transposed(self) -> Tiling:
        return Tiling(self.cu_k, self.cu_q, self.keys, self.rows)

    def counts(self, window: Window) -> NDArray[np.int32]:
        """Returns for each place of a query tile the number of key tiles that the library multiplies it with."""
        document, first, end = self._query_tiles(window)
        changes = np.zeros(self.places + 1, np.int64)
        start = self.first_tiles[document]
        np.add.at(changes, start + first, 1)
        np.add.at(changes, start + end, -1)
        return np.cumsum(changes)[:-1].astype(np.int32)

    def _query_tiles(self, window: Window) -> tuple[Ints, Ints, Ints]:
        """Returns for each key tile its document and the range of that document's query tiles that it is multiplied with."""
        queries, keys = np.diff(self.cu_q), np.diff(self.cu_k)
        tiles = -(-keys // self.keys)
        document = np.repeat(np.arange(len(keys)), tiles)
        key = (np.arange(len(document)) - np.repeat(np.cumsum(tiles) - tiles, tiles)) * self.keys
        shift = (queries - keys)[document]
        first, end = np.zeros_like(key), -(-queries[document] // self.rows)
        if window.right is not None:
            first = np.maximum(first, (key + shift - window.right) // self.rows)
        if window.left is not None:
            end = np.minimum(end, -(-(key + self.keys + shift + window.left) // self.rows))
        return document, first, np.maximum(first, end)

    def rows_of_none(self, counts: NDArray[np.int32]) -> Ints:
        """Returns the queries of tiles that nothing is added to: nobody writes their dQ."""
        row = np.arange(int(self.cu_q[-1]))
        document = np.searchsorted(self.cu_q, row, side="right") - 1
        tile = self.first_tiles[document] + (row - self.cu_q[document]) // self.rows
        return np.asarray(row[counts[tile] == 0])


@dataclass
class _Buffer:
    memory: torch.Tensor
    is_clean: bool


class Sums:
    """The memory for one mask and case: a buffer per stream, since calls on one stream run one after the other.

    A call that raises leaves its buffer to be cleared by the next call. A call that is recorded into a CUDA graph gets a buffer of the
    graph, which every replay clears: a replay may run beside calls on any stream. Where `keeps` is False, every call clears.
    """

    def __init__(self, counts: NDArray[np.int32], heads: int, tile_floats: int, scale: float, device: str, keeps: bool = True) -> None:
        from longca.kernels.lower import upload

        self.heads, self.keeps = heads, keeps
        self.floats = heads * len(counts) * tile_floats
        words = [np.full(SCALE_FLOATS, scale, np.float32).view(np.int32), counts, np.zeros(heads * len(counts) * HALVES, np.int32)]
        self.behind = upload(np.concatenate(words).view(np.float32), device)
        self.buffers: dict[int, _Buffer] = {}

    @contextmanager
    def lent(self) -> Iterator[torch.Tensor]:
        """Gives cleared sums [heads, places x rows x head size] to one call on the current stream."""
        import torch

        on_gpu = self.behind.device.type == "cuda"
        if on_gpu and torch.cuda.is_current_stream_capturing():
            yield self._clear(self._new())
            return
        stream = torch.cuda.current_stream(self.behind.device).cuda_stream if on_gpu else 0
        if stream not in self.buffers:
            self.buffers[stream] = _Buffer(self._new(), is_clean=False)
        buffer = self.buffers[stream]
        sums = buffer.memory[: self.floats].view(self.heads, -1) if buffer.is_clean and self.keeps else self._clear(buffer.memory)
        buffer.is_clean = False
        yield sums
        buffer.is_clean = True

    def _new(self) -> torch.Tensor:
        return self.behind.new_empty(self.floats + len(self.behind))

    def _clear(self, memory: torch.Tensor) -> torch.Tensor:
        """Clears sums and counters, writes scale and counts, and returns the sums."""
        memory[: self.floats].zero_()
        memory[self.floats :].copy_(self.behind)
        return memory[: self.floats].view(self.heads, -1)
