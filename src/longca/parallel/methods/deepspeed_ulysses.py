"""deepspeed_ulysses: DistributedAttention of DeepSpeed."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from longca.masks import AnyMask
from longca.parallel.grid import Grid
from longca.parallel.peers import Peer
from longca.parallel.ranges import Shards, as_array
from longca.parallel.sharding import contiguous

if TYPE_CHECKING:
    import torch

    from longca.parallel.comm.base import Comm
    from longca.parallel.method import Plan
    from longca.parallel.primitives.program import Program


class DeepspeedUlysses(Peer):
    name = "deepspeed_ulysses"
    about = "DeepSpeed's DistributedAttention (Ulysses), with the kernel of the plan"
    needs = "deepspeed; tokens and heads that divide by the ranks"
    modules, package = ("deepspeed",), "deepspeed"
    splits_heads = True
    merges, own_backward = False, True

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return contiguous(mask.seqlen_q, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.functional import through
        from longca.parallel.head_split import HeadSplit
        from longca.parallel.primitives.local import Local
        from longca.parallel.primitives.peer import DifferentiableLayer, process_group

        group, split = process_group(comm, self.name), HeadSplit.of(plan.case, comm.size)
        kernel, heads = plan.local_kernel(comm, split.case(plan.case, comm.rank)), split.queries[comm.rank]
        everything = as_array([(0, plan.mask.seqlen_q)])
        local = Local(kernel, plan.mask_of(heads), everything, heads)
        layers = _layers(comm.device.type)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return through(local, plan.kernel, q[0], k[0], v[0])[0][None].contiguous()

        layer = layers.DistributedAttention(attend, group, scatter_idx=2, gather_idx=1)
        return DifferentiableLayer(lambda q, k, v: layer(q, k, v, 0), kernel, everything, heads)


@cache
def _layers(device: str) -> Any:
    """DeepSpeed's module of layers, with its own view of torch.distributed set up. On CPUs that would compile an all-reduce through shared
    memory first, which Ulysses does not call, and wait for ever where an earlier process was killed while it did so."""
    if device != "cuda":
        os.environ["DS_ACCELERATOR"] = "cpu"
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    importlib.import_module("deepspeed").init_distributed("nccl" if device == "cuda" else "gloo", dist_init_required=False)
    return importlib.import_module("deepspeed.sequence.layer")
