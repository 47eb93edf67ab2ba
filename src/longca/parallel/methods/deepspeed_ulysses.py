"""deepspeed_ulysses: DistributedAttention of DeepSpeed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from longca.parallel.peers import UlyssesPeer

if TYPE_CHECKING:
    import torch


class DeepspeedUlysses(UlyssesPeer):
    name = "deepspeed_ulysses"
    about = "DeepSpeed's DistributedAttention (Ulysses), with the kernel of the plan"
    needs = "deepspeed; tokens and heads that divide by the ranks"
    modules, package = ("deepspeed",), "deepspeed"

    def layer(self, group: Any, device: str, attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        moved = _layers(device).DistributedAttention(attend, group, scatter_idx=2, gather_idx=1)
        return lambda q, k, v: moved(q, k, v, 0)


@cache
def _layers(device: str) -> Any:
    """DeepSpeed's module of layers, with its own view of torch.distributed set up. On CPUs that would compile an all-reduce through shared
    memory first, which Ulysses does not call, and wait for ever where an earlier process was killed while it did so."""
    if device != "cuda":
        os.environ["DS_ACCELERATOR"] = "cpu"
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    importlib.import_module("deepspeed").init_distributed("nccl" if device == "cuda" else "gloo", dist_init_required=False)
    return importlib.import_module("deepspeed.sequence.layer")
