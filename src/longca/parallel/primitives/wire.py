"""Sending parts of tensors: a part that is one run of memory goes as it is, any other through a copy. Both ends use one order."""

from __future__ import annotations

from collections.abc import Callable

import torch

from longca.kernels.base import Layout
from longca.parallel.comm.base import Comm, Message, Operation, Transfer


def in_order(x_LHD: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The tensor with its axes in memory order."""
    return x_LHD if layout == "LHD" else x_LHD.transpose(0, 1)


def swap(comm: Comm, layout: Layout, sends: list[Message], receives: list[Message], operation: Operation = "all_to_all") -> Transfer:
    """Exchange parts of [L, H, D] tensors; received parts are written into the views given."""
    own = [view for rank, view in receives if rank == comm.rank]
    for (_, part), view in zip([send for send in sends if send[0] == comm.rank], own, strict=True):
        view.copy_(part)
    going = [(rank, _run(comm, in_order(part, layout))) for rank, part in sends if rank != comm.rank]
    coming, unpack = list[Message](), list[Callable[[], None]]()
    for rank, view in ((rank, in_order(view, layout)) for rank, view in receives if rank != comm.rank):
        if view.is_contiguous():
            coming.append((rank, view))
        else:
            buffer = comm.empty(view.shape, view.dtype, "landing")
            coming.append((rank, buffer))
            unpack.append(lambda view=view, buffer=buffer: view.copy_(buffer))  # type: ignore[misc]
    return comm.exchange(going, coming, operation).then(lambda: _all(unpack))


def _run(comm: Comm, part: torch.Tensor) -> torch.Tensor:
    if part.is_contiguous():
        return part
    packed = comm.empty(part.shape, part.dtype, "packed")
    packed.copy_(part)
    return packed


def _all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
    calls.clear()
