"""Other projects' context parallelism behind the Method interface: their transfers and their steps, with the kernel of the plan."""

from __future__ import annotations

from typing import ClassVar

from longca import masks
from longca.kernels.base import Answer, Case, No, Yes
from longca.masks import AnyMask
from longca.parallel.grid import Grid, divisors
from longca.parallel.method import RANKS_PER_NODE, Method
from longca.parallel.ranges import Shards
from longca.parallel.sharding import split_each, zigzag


class Peer(Method):
    """What peers have in common: they call torch.distributed themselves, and they take tokens and heads that divide."""

    peer = True
    order = 200
    only_masks: ClassVar[tuple[str, ...]] = ()  # names of masks without parameters; empty: every static mask
    tokens_per_rank: ClassVar[int] = 1  # what the tokens of a rank must be a multiple of
    wrong_in_fp32: ClassVar[str] = ""  # why it takes no fp32 or fp64, as part of a sentence

    def supports(self, mask: AnyMask, case: Case, ranks: int, grid: Grid) -> Answer:
        answer = super().supports(mask, case, ranks, grid)
        if isinstance(answer, No):
            return answer
        multiple = ranks * self.tokens_per_rank
        if self.only_masks and not any(mask == masks.build(name, mask.seqlen_q) for name in self.only_masks):
            return No(f"it takes the mask {' or '.join(self.only_masks)}, not {mask.name or 'another one'}")
        if mask.seqlen_q % multiple:
            return No(f"{mask.seqlen_q} tokens do not divide by {multiple}; give {-(-mask.seqlen_q // multiple) * multiple}")
        if case.heads_q % grid.heads or case.heads_kv % grid.heads:
            return No(f"{case.heads_q}:{case.heads_kv} heads do not divide by {grid.heads} ranks; use ulysses or usp")
        if case.head_dim != case.head_dim_v:
            return No(f"it takes one head size, not {case.head_dim}/{case.head_dim_v}")
        if self.wrong_in_fp32 and case.dtype in ("fp32", "fp64"):
            return No(f"{self.wrong_in_fp32}; use bf16")
        return Yes()


class ZigzagPeer(Peer):
    """A ring over two chunks a rank, one from the front and one from behind. A ring of one rank would send to itself."""

    has_ring = True
    tokens_per_rank = 2
    only_masks = ("causal",)

    def default_grid(self, case: Case, ranks: int, ranks_per_node: int = RANKS_PER_NODE) -> Grid:
        """As many ranks that split heads as fit the heads and the node and leave a ring."""
        fitting = [number for number in divisors(ranks)[:-1] if case.heads_kv % number == 0 and number <= ranks_per_node]
        heads = max(fitting, default=1) if self.splits_heads else 1
        return Grid(heads, ranks // heads)

    def supports(self, mask: AnyMask, case: Case, ranks: int, grid: Grid) -> Answer:
        if ranks > 1 and grid.ring == 1:
            return No(f"the grid {grid} leaves no ring; use grid {self.default_grid(case, ranks)}, or ulysses")
        return super().supports(mask, case, ranks, grid) if ranks > 1 else No("a ring needs 2 ranks or more")

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return split_each(zigzag(masks.causal(mask.seqlen_q), grid.ring), grid.heads)
