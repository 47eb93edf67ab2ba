"""The input tensors on which every kernel is checked and timed.

q, k, v and dout of a token depend only on (seed, tensor, token) and the shape of a token, so that all ranks, shards and kernels get the
same numbers and none needs all of them. They are made in blocks of 1,024 tokens, on the device itself unless `Case.numbers` names another
one.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import torch

from longca.kernels.base import Case, Layout

if TYPE_CHECKING:
    from longca.masks.bands import Range

FRAMEWORK = True

BLOCK = 1024
Which = Literal["q", "k", "v", "dout"]
WHICH: tuple[Which, ...] = ("q", "k", "v", "dout")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}


class TokenTensors(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor


class Inputs(TokenTensors):
    """The tuple of q, k, v and dout, logically [L, H, D] each, in the memory order of the kernel. Beside it `sinks` [Hq], or None."""

    sinks: torch.Tensor | None

    def __new__(cls, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, sinks: torch.Tensor | None = None) -> Self:
        made = super().__new__(cls, q, k, v, dout)
        made.sinks = sinks
        return made

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All of them by name, without sinks where there are none."""
        return self._asdict() | ({} if self.sinks is None else {"sinks": self.sinks})

    @property
    def of_forward(self) -> tuple[torch.Tensor, ...]:
        """What a forward takes: q, k, v, and the sinks where there are any."""
        return self[:3] if self.sinks is None else (*self[:3], self.sinks)


def make(case: Case, seed: int = 0, layout: Layout = "LHD", ranges: Sequence[Range] | None = None) -> Inputs:
    """Returns all tensors of a case; with `ranges` those tokens of them, one range after the other."""
    whole = {which: [(0, length_of(which, case))] for which in WHICH}
    q, k, v, dout = (tokens(which, case, whole[which] if ranges is None else ranges, seed, layout) for which in WHICH)
    return Inputs(q, k, v, dout, make_sinks(case, seed))


def make_sinks(case: Case, seed: int = 0) -> torch.Tensor | None:
    """Returns one logit per query head in fp32 (fp64 beside fp64), or None for a case without sinks.

    They are as large as the lse of rows with a few to all keys: smaller ones would change nothing that a check could see.
    """
    if not case.sinks:
        return None
    generator = torch.Generator().manual_seed(_number(f"{seed}/sinks"))
    share = 0.25 + 0.75 * torch.rand(case.heads_q, generator=generator, dtype=torch.float64)
    return (share * math.log1p(case.seqlen_k)).to(torch.promote_types(DTYPES[case.dtype], torch.float32)).to(case.device)


def tokens(which: Which, case: Case, ranges: Sequence[Range], seed: int = 0, layout: Layout = "LHD") -> torch.Tensor:
    """Returns the tokens of the given ranges, one range after the other."""
    heads = case.heads_kv if which in "kv" else case.heads_q
    size = case.head_dim if which in "qk" else case.head_dim_v
    out = empty(sum(end - start for start, end in ranges), heads, size, case, layout)
    generator = case.numbers or case.device
    # which tokens of each block are wanted, from the first to before the last, and where they go
    places: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    position = 0
    for start, end in ranges:
        for block in range(start // BLOCK, -(-end // BLOCK)):
            first, last = max(start - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
            places[block].append((first, last, position))
            position += last - first

    def made(block: int) -> torch.Tensor:
        values = _block(which, seed, block, heads, size, generator)
        return values if generator == case.device else values.to(out.dtype)  # less to send; else the copy below rounds

    with _workers(generator != case.device) as run:
        for block, values in zip(places, run(made, places), strict=True):
            for first, last, position in places[block]:
                out[position : position + last - first] = values[first:last]
    return out


@contextmanager
def _workers(many: bool) -> Iterator[Callable[..., Iterable[torch.Tensor]]]:
    """Yields a function like `map`; it has many threads where a CPU makes numbers for another device, which would wait for one."""
    if not many:
        yield map
        return
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield pool.map


def empty(length: int, heads: int, size: int, case: Case, layout: Layout) -> torch.Tensor:
    """Returns an uninitialised [L, H, D] tensor in the given memory order."""
    dtype = DTYPES[case.dtype]
    if layout == "LHD":
        return torch.empty(length, heads, size, dtype=dtype, device=case.device)
    return torch.empty(heads, length, size, dtype=dtype, device=case.device).transpose(0, 1)


def in_layout(tensor_LHD: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Returns the same numbers in the given memory order, without a copy where they are in it already."""
    if layout == "LHD":
        return tensor_LHD.contiguous()
    return tensor_LHD.transpose(0, 1).contiguous().transpose(0, 1)


def length_of(which: Which, case: Case) -> int:
    return case.seqlen_k if which in "kv" else case.seqlen_q


def _block(which: Which, seed: int, block: int, heads: int, size: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(_number(f"{seed}/{which}/{block}"))
    return torch.randn(BLOCK, heads, size, generator=generator, device=device, dtype=torch.float32)


def _number(name: str) -> int:
    """Returns the seed of a random generator, from the name of what it makes."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1
