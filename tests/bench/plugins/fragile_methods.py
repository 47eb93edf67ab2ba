"""Methods of a user: one that works, one that is wrong, and some whose second rank refuses, dies, hangs or fails."""

import os
import sys
import time
from typing import Any

from longca.errors import Refused
from longca.parallel.method import Method
from longca.parallel.sharding import contiguous


class PlainRing(Method):
    name, about, needs = "plain_ring", "a ring over contiguous tokens", "nothing"
    has_ring = True

    def shards(self, mask: Any, grid: Any) -> Any:
        return contiguous(mask.seqlen_q, grid.ring)

    def program(self, plan: Any, comm: Any) -> Any:
        from longca.parallel.primitives.ring import Ring

        self.trouble(comm)
        return Ring(plan.local_kernel(comm), comm, plan.mask, plan.shards, (0, plan.case.heads_q))

    def trouble(self, comm: Any) -> None:
        """None at all."""


class RefusesAlone(PlainRing):
    name = "refuses_alone"

    def trouble(self, comm: Any) -> None:
        if comm.rank == 1:
            raise Refused("the kernel of rank 1 does not take this.")


class Dies(PlainRing):
    name = "dies"

    def trouble(self, comm: Any) -> None:
        if comm.rank == 1:
            print("the disk is full", file=sys.stderr, flush=True)
            os._exit(9)


class Hangs(PlainRing):
    name = "hangs"

    def trouble(self, comm: Any) -> None:
        if comm.rank == 1:
            print("waiting for Godot", file=sys.stderr, flush=True)
            time.sleep(1000)


class FailsBackward(PlainRing):
    """One rank raises, but not on shapes, so that the other one waits for it in a group; forward alone would work."""

    name = "fails_backward"

    def program(self, plan: Any, comm: Any) -> Any:
        from longca.parallel.comm.trace import TraceComm

        if plan.case.backward and comm.rank == 1 and not isinstance(comm, TraceComm):
            raise ValueError("seven is not prime enough")
        return super().program(plan, comm)


class Forgets(PlainRing):
    """Every rank sees its own keys only."""

    name = "forgets"

    def program(self, plan: Any, comm: Any) -> Any:
        from longca.parallel.primitives.local import Local

        return Local(plan.local_kernel(comm), plan.mask, plan.shards[comm.rank], (0, plan.case.heads_q))
