"""Known mistakes of kernels in which keys a row sees: at the ends of rows and tiles, in intervals, documents and whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from longca.bench.check.sample import FORWARD, GRADIENTS, KEYS, TILES, Form, Sample, mistake


class Seen(NamedTuple):
    """A mistake, and what rows see with it, [rows, all keys]."""

    name: str
    words: str
    visible: torch.Tensor


def mask_mistake(tensors: tuple[str, ...] = (*FORWARD, *GRADIENTS)) -> Callable[[Callable[[Rows], Iterator[Seen]]], None]:
    """Makes a function that yields what is seen a mistake that is tried on these tensors."""

    def add(function: Callable[[Rows], Iterator[Seen]]) -> None:
        @mistake(*tensors)
        def forms(s: Sample) -> Iterator[Form]:
            for name, words, visible in function(Rows(s)):
                yield Form(name, words, s.of_scores(s.scores(visible)))

    return add


class Rows:
    """What the rows of a sample should see, and their first and last key, [rows, 1]; a row without keys has its first behind its last."""

    def __init__(self, s: Sample) -> None:
        self.sample, self.case, self.seen = s, s.case, s.seen()
        self.length, self.keys, self.rows = s.case.seqlen_k, torch.arange(s.case.seqlen_k, device=s.rows.device), s.rows[:, None]
        some = self.seen.any(1)
        self.first = torch.where(some, self.seen.int().argmax(1), self.length)[:, None]
        self.last = torch.where(some, self.length - 1 - self.seen.flip(1).int().argmax(1), -1)[:, None]


@mask_mistake()
def intervals(r: Rows) -> Iterator[Seen]:
    number = (r.seen & ~r.seen.roll(1, 1).index_fill(1, r.keys[:1], False)).cumsum(1)
    if int(number.max()) > 1:
        yield Seen("second interval ignored", "only the first interval of keys is seen", r.seen & (number == 1))
        yield Seen("first interval ignored", "only the last interval of keys is seen", r.seen & (number == number[:, -1:]))
        yield Seen("gap ignored", "the keys between two intervals are seen too", (r.keys >= r.first) & (r.keys <= r.last))


@mask_mistake()
def wrong_ends(r: Rows) -> Iterator[Seen]:
    yield Seen("last key missing", "the last key of a row is missing", r.seen & (r.keys != r.last))
    yield Seen("first key missing", "the first key of a row is missing", r.seen & (r.keys != r.first))
    yield Seen("one key behind", "a row sees one key too many at its end", r.seen | (r.keys == r.last + 1))
    yield Seen("one key before", "a row sees one key too many at its start", r.seen | (r.keys == r.first - 1))
    others = "keys before its document" if r.sample.mask.documents is not None else "keys before its first one, back to key 0"
    yield Seen("start ignored", f"a row also sees {others}", (r.keys <= r.last) & (r.last >= 0))
    yield Seen("end ignored", "a row also sees all keys behind its last one", r.keys >= r.first)
    yield Seen("mask ignored", "a row sees all keys", torch.ones_like(r.seen))


@mask_mistake()
def causality(r: Rows) -> Iterator[Seen]:
    rest = r.length - r.case.seqlen_q
    words = "keys behind the row itself are missing, as with a causal mask"
    yield Seen("causal besides", words, r.seen & (r.keys <= r.rows + rest))
    if (documents := r.sample.mask.documents) is not None and not rest:
        numbers = torch.repeat_interleave(torch.tensor(documents, device=r.keys.device))
        yield Seen("whole document", "a row sees all keys of its document", numbers == numbers[r.rows])
    for name, by in (("first", -rest), ("last", rest)) if rest else ():
        start = torch.where(r.first > 0, r.first + by, r.first)
        words = f"the diagonal is aligned at the {name} query and key"
        yield Seen("alignment", words, (r.keys >= start) & (r.keys <= r.last + by) & (r.last >= 0))


@mask_mistake()
def transposed(r: Rows) -> Iterator[Seen]:
    if r.case.seqlen_q == r.length:
        yield Seen("mask transposed", "the mask is transposed", r.sample.seen(r.sample.mask.transpose()))


@mask_mistake()
def tile_edges(r: Rows) -> Iterator[Seen]:
    for tile in [tile for tile in TILES if tile < r.length]:
        partly = torch.nn.functional.pad(r.seen, (0, -r.length % tile)).unflatten(1, (-1, tile)).any(2)
        words = f"a row sees all keys of each tile of {tile} keys that it sees in part"
        yield Seen("tiles unmasked", words, partly[:, r.keys // tile])
        place = r.keys % tile
        yield Seen("last key of a tile missing", f"the last of every {tile} keys is missing", r.seen & (place != tile - 1))
        yield Seen("first key of a tile missing", f"the first of every {tile} keys is missing", r.seen & (place != 0))
        whole = r.length // tile * tile
        if whole < r.length:
            yield Seen("last tile missing", f"keys from {whole} on, in a tile that is not full, are missing", r.seen & (r.keys < whole))


@mask_mistake()
def whole_tiles(r: Rows) -> Iterator[Seen]:
    for tile in [tile for tile in TILES if tile < r.length]:
        own, first, last = (x // tile for x in (r.keys, r.first, r.last))
        ends = {"first": own == first, "last": own == last}
        for name, at_end in ends.items():
            yield Seen(f"{name} tile of a row missing", f"the {name} tile of {tile} keys that a row sees is missing", r.seen & ~at_end)
            words = f"it is that of the {name} tile of {tile} keys of each row alone, instead of all tiles"
            yield Seen(f"{name} tile alone", words, r.seen & at_end)


@mask_mistake()
def ends_by_tile(r: Rows) -> Iterator[Seen]:
    for tile in [tile for tile in TILES if tile < r.case.seqlen_q]:
        before, words = r.rows % tile, f"where the first row of its tile of {tile} rows should"
        yield Seen("end by tile", f"a row ends {words}", (r.keys >= r.first) & (r.keys <= r.last - before))
        yield Seen("start by tile", f"a row begins {words}", (r.keys >= r.first - before) & (r.keys <= r.last))


@mask_mistake(KEYS)
def rows_of_tiles(r: Rows) -> Iterator[Seen]:
    for tile in [tile for tile in TILES if tile < r.case.seqlen_q]:
        whole = (r.case.seqlen_q - 1) // tile * tile
        yield Seen("last rows missing", f"rows from {whole} on, the last tile of {tile}, are missing in it", r.seen & (r.rows < whole))
        yield Seen("first rows missing", f"the first {tile} rows are missing in it", r.seen & (r.rows >= tile))
