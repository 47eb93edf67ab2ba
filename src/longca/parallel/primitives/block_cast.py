"""BlockCast: each rank receives the key blocks that its rows selected, head by head, for one attention over all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from longca.masks import BlockMask
from longca.masks.bands import Ints, spread, tokens_before
from longca.parallel.block_transfers import BlockNeeds, heads_and_tokens
from longca.parallel.comm.base import Comm
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.primitives.group_cast import JOIN_BYTES, Arrival, Home, Stage, routes_of
from longca.parallel.primitives.hop import hops_of
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Total
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Ranges, Shards, count

block_needs: Callable[[BlockMask, Shards], BlockNeeds] = once_for_all_ranks(BlockNeeds)


class BlockCast:
    """Gathers `keys`: the tokens that this rank has, and those that its rows selected in some head, in order. Where they did not select a
    token in a head, its key and value are 0; they were not sent. Gradients go back the way that keys came.

    The keys of one head travel as [numbered keys, 1, D]; where all heads have one pattern, those of all heads as [tokens, heads, D].
    """

    part_type: torch.dtype | None = None  # gradients travel in the kernel's type

    def __init__(self, kernel: LocalKernel, comm: Comm, mask: BlockMask, shards: Shards, node: int) -> None:
        self.kernel, self.comm, self.mask, case = kernel, comm, mask, kernel.case
        self.heads, self.patterns = case.heads_kv, mask.heads
        needs = block_needs(mask, shards)
        key_bytes = self.heads // self.patterns * (case.head_dim + case.head_dim_v) * kernel.dtype.itemsize
        own = needs.shards[comm.rank]
        self.stages = [Stage(None, [], hops_of(route, [own], comm, node)) for route in routes_of(needs, node, 1, JOIN_BYTES // key_bytes)]
        held = [[own], *(stage.hops[-1].landing for stage in self.stages)]
        self.keys = needs.keys_of([keys for some in held for keys in some])
        self.length = count(self.keys)
        self.own_places, *self.places = (self._places(np.concatenate([np.zeros((0, 2), np.int64), *some])) for some in held)
        self.gaps = sum(map(len, (self.own_places, *self.places))) < self.length * self.patterns

    @property
    def token_after_token(self) -> bool:
        """Whether the keys stand in memory as the kernel reads them, and not head after head."""
        return self.kernel.layout == "LHD" or self.patterns == 1

    def _places(self, numbered: Ranges) -> torch.Tensor:
        """Where numbered keys stand among `keys`."""
        if self.comm.shapes_only:
            return torch.empty(count(numbered), dtype=torch.int64, device=self.comm.device)
        head, ranges = heads_and_tokens(numbered, self.mask)
        which, token = spread(ranges[:, 0], ranges[:, 1])
        place: Ints = tokens_before(self.keys[:, 0], self.keys[:, 1], token)
        index = place * self.patterns + head[which] if self.token_after_token else head[which] * self.length + place
        return torch.from_numpy(index).to(self.comm.device)

    def gathered(self, *own: torch.Tensor) -> list[torch.Tensor]:
        mine = [self._by_number(x) for x in own]
        arrivals = [Arrival(stage, mine, at_once=True) for stage in self.stages]
        wholes = [self.comm.empty((self.length * self.patterns, *x.shape[1:]), x.dtype, "gathered") for x in mine]
        for whole, x in zip(wholes, mine, strict=True):
            if self.gaps:
                whole.zero_()
            whole.index_copy_(0, self.own_places, x)
        for arrival, places in zip(arrivals, self.places, strict=True):
            for whole, x in zip(wholes, arrival.wait(), strict=True):
                whole.index_copy_(0, places, x)
        return [self._as_heads(whole, self.length, self.token_after_token) for whole in wholes]

    def scattered(self, *wholes: torch.Tensor) -> list[torch.Tensor]:
        """Returns the sums over all ranks of the gradients of this rank's tokens."""
        parts = [self._by_number(whole, self.token_after_token) for whole in wholes]
        totals = [self._taken(part, self.own_places) for part in parts]
        home = Home(self.kernel, totals)
        for stage, places in zip(self.stages, self.places, strict=True):
            home.send(stage, [self._taken(part, places) for part in parts])
        home.wait()
        length = len(self.own_places) // self.patterns
        return [take_rows(self._as_heads(total.result(), length), None, self.kernel.layout) for total in totals]

    def _taken(self, part: torch.Tensor, places: torch.Tensor) -> Total:
        taken = part.index_select(0, places)
        return Total(self.kernel, taken.shape, taken)

    def _by_number(self, x_LHD: torch.Tensor, token_after_token: bool = False) -> torch.Tensor:
        """[tokens, heads, D] as rows of one pattern each, head after head or token after token."""
        if token_after_token or self.patterns == 1:
            whole = x_LHD.contiguous()
        else:
            whole = x_LHD.transpose(0, 1).contiguous()
        return whole.view(len(x_LHD) * self.patterns, self.heads // self.patterns, x_LHD.shape[2])

    def _as_heads(self, rows: torch.Tensor, length: int, token_after_token: bool = False) -> torch.Tensor:
        """The way back, in the kernel's memory order where the rows are in it."""
        if token_after_token or self.patterns == 1:
            return take_rows(rows.view(length, self.heads, rows.shape[2]), None, self.kernel.layout)
        return rows.view(self.heads, length, rows.shape[2]).transpose(0, 1)
