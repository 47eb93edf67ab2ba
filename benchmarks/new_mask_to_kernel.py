"""How long a new mask keeps a training step waiting: for each method, what a data loader plans, what a rank prepares a step ahead, and
what is left before the first kernel runs. Every rank of a group is tried one by one in this process, and its transfers move nothing."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import torch

from longca import devices, masks
from longca.errors import Refused, Unavailable
from longca.kernels import registry as kernels
from longca.parallel import Group, Plan, Planner, registry
from longca.parallel.comm.null import NullComm
from longca.parallel.primitives.local import Piece

HEADS, HEAD_DIM = (64, 8), 128
BUSY = 60  # products of matrices that the GPU computes meanwhile


class Alone(Group):
    """One rank of a group, without the others."""

    def __init__(self, planner: Planner) -> None:
        self.comm = NullComm(planner.rank, planner.ranks, planner.device)
        self.planner, self.device = planner, self.comm.device
        self._side = torch.cuda.Stream() if planner.device == "cuda" else None
        self.is_open = True

    def agree(self, facts: Mapping[str, str]) -> None:
        """There is nobody to ask."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seqlen", type=int, default=131072)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--tried", default="0,3", help="ranks that are tried")
    parser.add_argument("--seeds", type=int, default=4, help="packs of documents; the first one warms up and is not counted")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--mask", default="causal_document")
    parser.add_argument("--kernel", help="default: torch:chunked on a CPU, fa4 on a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="a file to which rows are added")
    given = parser.parse_args()
    given.kernel = given.kernel or kernels.default_for_methods(given.device)
    names = registry.names() if given.methods == "all" else given.methods.split(",")
    for name in names:
        if registry.get(name).peer:
            continue
        row = {
            "method": name,
            "mask": given.mask,
            "seqlen": given.seqlen,
            "ranks": given.ranks,
            "kernel": given.kernel,
            "device": devices.model(given.device),
        }
        try:
            row |= times_of(name, given)
        except (Refused, Unavailable) as refusal:
            row["refused"] = str(refusal)
        print(json.dumps(row), flush=True)
        if given.out:
            with Path(given.out).open("a") as file:
                file.write(json.dumps(row) + "\n")


def times_of(method: str, given: argparse.Namespace) -> dict[str, Any]:
    """Medians over packs of the slowest rank, in milliseconds."""
    rows = []
    for seed in range(given.seeds):
        mask = masks.build(given.mask, given.seqlen, seed=seed)
        ranks = [times_of_rank(method, mask, int(rank), given) for rank in given.tried.split(",")]
        rows.append({name: max(times[name] for times in ranks) for name in ranks[0]})
    return {name: round(median(row[name] for row in rows[1:] or rows), 3) for name in rows[0]}


def times_of_rank(method: str, mask: masks.AnyMask, rank: int, given: argparse.Namespace) -> dict[str, float]:
    planner = Planner(rank, given.ranks, given.ranks, given.device)
    group = Alone(planner)
    plan: Plan
    plan, plan_ms = timed(lambda: planner.plan(mask, HEADS, HEAD_DIM, method=method, kernel=given.kernel))
    plan.group, plan.has_sharded = group, True
    dtype = torch.bfloat16
    options: dict[str, Any] = {"dtype": dtype, "device": given.device, "requires_grad": True}
    q, k, v = (torch.randn(plan.tokens, heads, HEAD_DIM, **options) for heads in (HEADS[0], HEADS[1], HEADS[1]))
    synchronize(given.device)
    keep_busy(given.device)
    waits_until = time.perf_counter()
    _, prepare_ms = timed(lambda: plan.prepare(dtype))
    still_busy = given.device == "cuda" and not torch.cuda.current_stream().query()
    synchronize(given.device)
    busy_ms = 1e3 * (time.perf_counter() - waits_until)
    launch_ms, start_ms = first_kernel(plan, q, k, v, given.device)
    times = {"plan_ms": plan_ms, "prepare_ms": prepare_ms, "launch_ms": launch_ms, "first_kernel_ms": start_ms}
    if given.device == "cuda":
        times |= {"gpu_busy_ms": busy_ms, "gpu_still_busy_after_prepare": float(still_busy)}
    return times


def first_kernel(plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, device: str) -> tuple[float, float]:
    """Milliseconds from the call of attention until its first kernel is launched, and until that kernel begins on the GPU."""
    launched = list[float]()
    original = Piece.forward
    before = torch.cuda.Event() if device == "cuda" else None

    class Reached(Exception):
        pass

    def stop(piece: Piece, *tensors: torch.Tensor) -> Any:
        if before is not None:
            before.record()
        launched.append(time.perf_counter())
        raise Reached

    Piece.forward = stop  # type: ignore[method-assign]
    try:
        start = time.perf_counter()
        with suppress(Reached):
            plan.attention(q, k, v)
        if before is not None:
            before.synchronize()  # all that stands before the kernel, such as copies, is done
        return 1e3 * (launched[0] - start), 1e3 * (time.perf_counter() - start)
    finally:
        Piece.forward = original  # type: ignore[method-assign]


def keep_busy(device: str) -> None:
    if device == "cuda":
        a = torch.ones(8192, 8192, dtype=torch.bfloat16, device=device)
        for _ in range(BUSY):
            a @ a


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return call(), 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
