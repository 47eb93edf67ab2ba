"""Other projects' context parallelism behind the Method interface: their transfers and their steps, with the kernel of the plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from longca import masks
from longca.kernels.base import Answer, Case, No, Yes
from longca.masks import AnyMask
from longca.parallel.grid import Grid, divisors
from longca.parallel.method import RANKS_PER_NODE, Method, Plan
from longca.parallel.ranges import Shards, as_array
from longca.parallel.sharding import contiguous, split_each, zigzag

if TYPE_CHECKING:
    import torch

    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


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
            return No(f"it takes the mask {' or '.join(self.only_masks)}, not {mask.name or 'another one'}; use magi or ring_p2p")
        if mask.seqlen_q % multiple:
            return No(f"{mask.seqlen_q} tokens do not divide by {multiple}; give {-(-mask.seqlen_q // multiple) * multiple}")
        if case.heads_q % grid.heads or case.heads_kv % grid.heads:
            return No(f"{case.heads_q}:{case.heads_kv} heads do not divide by {grid.heads} ranks; use ulysses or usp")
        if case.head_dim != case.head_dim_v:
            return No(f"it takes one head size, not {case.head_dim}/{case.head_dim_v}; use ulysses or ring_p2p")
        if self.wrong_in_fp32 and case.dtype in ("fp32", "fp64"):
            return No(f"{self.wrong_in_fp32}; use bf16")
        return Yes()


class UlyssesPeer(Peer):
    """Whole attention of some heads on every rank, over all tokens."""

    splits_heads = True
    merges, own_backward = False, True

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return contiguous(mask.seqlen_q, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.kernels import registry as kernels
        from longca.parallel.differentiable import through
        from longca.parallel.head_split import HeadSplit
        from longca.parallel.primitives.local import Local
        from longca.parallel.primitives.peer import DifferentiableLayer, process_group

        group, split = process_group(comm, self.name), HeadSplit.of(plan.case, comm.size)
        kernel, heads = plan.local_kernel(comm, split.case(plan.case, comm.rank)), split.queries[comm.rank]
        layout, everything = kernels.choices(plan.kernel)[0].layout, as_array([(0, plan.mask.seqlen_q)])
        local = Local(kernel, plan.mask_of(heads), everything, heads)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **_: Any) -> torch.Tensor:
            return through(local, layout, q[0], k[0], v[0])[0][None].contiguous()

        return DifferentiableLayer(self.layer(group, comm.device.type, attend), kernel, everything, heads)

    @abstractmethod
    def layer(self, group: Any, device: str, attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """The library's function of q, k, v as [1, L, H, D] that moves heads and calls `attend`."""


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
        return super().supports(mask, case, ranks, grid) if ranks > 1 else No("a ring needs 2 ranks or more; use ring_p2p")

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return split_each(zigzag(masks.causal(mask.seqlen_q), grid.ring), grid.heads)
