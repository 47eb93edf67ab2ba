"""A program of a rank: two replicas of a model, whose ranks share a sequence by different methods, and so use different channels.

`python replicas.py DEVICE`, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. Prints the largest error of this rank.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from parallel.plan_jobs import attention


def main(kind: str) -> None:
    device = torch.device("cuda:0") if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", device_id=device if kind == "cuda" else None)
    mesh = init_device_mesh(kind, (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "cp"))
    replica, worst = mesh.get_local_rank("dp"), 0.0
    for methods in (("magi", "usp"), ("mesh", "ulysses"), ("ring_allgather", "burst")):
        for _ in range(1 + replica):  # one replica makes more groups than the other
            place, settings = SimpleNamespace(device=device), {"method": methods[replica], "kernel": "torch:chunked"}
            worst = max(worst, attention(place, mesh=mesh["cp"], seed=replica, **settings)["error"])  # each has other numbers
    total = torch.tensor([worst], device=device)
    dist.all_reduce(total, op=dist.ReduceOp.MAX)  # the job's own group is as good as before
    print(f"worst {float(total):.3g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
