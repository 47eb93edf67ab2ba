"""Rings of which each is wrong in one thing that no first call shows."""

import re
from typing import Any

import torch

from longca.parallel.method import Method
from longca.parallel.primitives.program import Program
from longca.parallel.sharding import contiguous

RIGHT_CALLS = 6  # more than a preparation and a check make


def ring(plan: Any, comm: Any) -> Any:
    from longca.parallel.primitives.ring import Ring

    return Ring(plan.local_kernel(comm), comm, plan.mask, plan.shards, (0, plan.case.heads_q))


class Wrapped(Program):
    """A program that asks another one, and counts forwards and backwards."""

    def __init__(self, inner: Any, comm: Any) -> None:
        self.inner, self.comm, self.rows, self.heads, self.kernel = inner, comm, inner.rows, inner.heads, inner.kernel
        self.forwards = self.backwards = 0

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        self.forwards += 1
        return self.inner.forward(q, k, v)

    def backward(self, dout: Any, kept: Any) -> Any:
        self.backwards += 1
        return self.inner.backward(dout, kept)


class HonestRing(Method):
    name, about, needs = "honest_ring", "a ring over contiguous tokens", "nothing"
    has_ring = True
    wrapped: Any = Wrapped

    def shards(self, mask: Any, grid: Any) -> Any:
        return contiguous(mask.seqlen_q, grid.ring)

    def program(self, plan: Any, comm: Any) -> Any:
        from longca.parallel.comm.null import NullComm

        inner = ring(plan, comm)
        return inner if isinstance(comm, NullComm) else self.wrapped(inner, comm)


def wrong(program: Any) -> Any:
    """Makes a method of a program; it is called as the class, in small letters: ReusesOut is reuses_out."""
    name = re.sub("(?<=.)(?=[A-Z])", "_", program.__name__).lower()
    return type(program.__name__, (HonestRing,), {"name": name, "wrapped": program, "__module__": program.__module__})


@wrong
class CachesByPointer(Wrapped):
    """Returns what it computed for the same memory before; tensors that it has seen stay alive, so that no other takes their place."""

    def __init__(self, inner: Any, comm: Any) -> None:
        super().__init__(inner, comm)
        self.known: dict[int, Any] = {}

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        if v.data_ptr() not in self.known:
            self.known[v.data_ptr()] = v, super().forward(q, k, v)
        return self.known[v.data_ptr()][1]


@wrong
class CachesGradients(Wrapped):
    def __init__(self, inner: Any, comm: Any) -> None:
        super().__init__(inner, comm)
        self.known: dict[int, Any] = {}

    def backward(self, dout: Any, kept: Any) -> Any:
        if dout.data_ptr() not in self.known:
            self.known[dout.data_ptr()] = dout, super().backward(dout, kept)
        return self.known[dout.data_ptr()][1]


@wrong
class RightAtFirst(Wrapped):
    """Rank 1 alone returns half of what is right after some calls."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        out, kept = super().forward(q, k, v)
        return (out / 2, kept) if self.comm.rank == 1 and self.forwards > RIGHT_CALLS else (out, kept)


@wrong
class ReusesOut(Wrapped):
    buffer: Any = None

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        out, kept = super().forward(q, k, v)
        self.buffer = out.clone() if self.buffer is None else self.buffer.copy_(out)
        return self.buffer, kept


@wrong
class WrongNowAndThen(Wrapped):
    """One tile of rank 1 is wrong in one of 20 calls."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        out, kept = super().forward(q, k, v)
        if self.comm.rank == 1 and self.forwards % 20 == 10:
            out[32:64, 0] = 0
        return out, kept


@wrong
class Nondeterministic(Wrapped):
    """The last bits of rank 1 differ in every second call."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        out, kept = super().forward(q, k, v)
        return (out * (1 + 1e-7 * (self.forwards % 2)), kept) if self.comm.rank == 1 else (out, kept)


class OutOfMemory(Wrapped):
    last_call = 0

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        if self.forwards >= self.last_call:
            raise torch.OutOfMemoryError("no room")
        return super().forward(q, k, v)


class FailsWithoutTransfers(HonestRing):
    """The program without transfers fails on rank 1 alone."""

    name, last_call = "fails_without_transfers", 0

    def program(self, plan: Any, comm: Any) -> Any:
        from longca.parallel.comm.null import NullComm

        program = super().program(plan, comm)
        if not isinstance(comm, NullComm) or comm.rank != 1:
            return program
        failing = OutOfMemory(program, comm)
        failing.last_call = self.last_call
        return failing


class FailsLaterWithoutTransfers(FailsWithoutTransfers):
    name, last_call = "fails_later_without_transfers", 3
