"""Group: the ranks that share a sequence, made once for a job. It makes plans, and holds what their programs send with."""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from longca.errors import BadInput
from longca.kernels.bounded_cache import tensor_bytes, tensors_in
from longca.masks import AnyMask, Mask
from longca.parallel.comm.distributed import TorchComm
from longca.parallel.default_method import choose
from longca.parallel.options import Options
from longca.parallel.plan import Plan
from longca.parallel.planner import Planner, Wanted

if TYPE_CHECKING:
    from longca.parallel.primitives.program import Program

log = logging.getLogger("longca")
CACHE_BYTES = 1 << 30  # of plans and their prepared kernels that a group holds on to
DEPTH = 12  # levels of objects in which tensors of prepared kernels are looked for
SEPARATOR = "\n"  # between the host and the GPU of a rank
BYTES = "bytes"  # a field of messages, beside the facts
MESSAGE_BYTES = 2048
PATIENCE_S = 30.0  # after which a rank says that it waits for others to make the same call


class Group:
    """The ranks of a process group or of one dimension of a device mesh. All of them make it, and use it in the same order.

    `device` is by default that of the mesh, or the current GPU with NCCL. How many neighbouring ranks share a node is found out from the
    hosts, unless `ranks_per_node` says it. It holds on to the plans used last, of `cache_bytes` with their prepared kernels. A group may be
    used as a context manager, which closes it.
    """

    def __init__(
        self, group: Any = None, *, device: str | torch.device | None = None, ranks_per_node: int | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:  # fmt: skip
        if not dist.is_initialized():
            raise BadInput("context parallelism needs ranks; call torch.distributed.init_process_group first.")
        members, kind = _process_group(group)
        if dist.get_rank(members) < 0:
            raise BadInput("this rank is no member of the group; make the Group on its members alone.")
        self.comm = TorchComm(members, _device(members, kind, device))
        host = self.comm.on_host()  # not the ranks' own gloo, where a message would meet the attention of a rank that does something else
        self.host = TorchComm(members) if host is self.comm else host
        self.rank, self.size, self.device = self.comm.rank, self.comm.size, self.comm.device
        self.is_open = True
        hosts, devices = zip(
            *(answer.split(SEPARATOR) for answer in self.exchange(_host_name() + SEPARATOR + _gpu(self.device))), strict=True
        )
        if ranks_per_node is None:
            ranks_per_node = neighbours(hosts)
        self.planner = Planner(self.rank, self.size, ranks_per_node, self.device.type)
        self._gpu = devices[0] if len(set(devices)) == 1 else ""
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._grown: tuple[Plan, int] | None = None  # what this rank prepared last, of which the others do not know the bytes yet
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._stated: set[str] = set()

    @property
    def ranks_per_node(self) -> int:
        """How many neighbouring ranks share a node; 0: nodes have different numbers of ranks, or ranks of a node are no neighbours."""
        return self.planner.ranks_per_node

    def plan(
        self,
        mask: AnyMask | Mapping[str, AnyMask],
        heads: tuple[int, int],
        head_dim: int | tuple[int, int],
        *,
        method: str | None = None,
        grid: str = "",
        kernel: str | None = None,
        options: Options | None = None,
        layers: Mapping[str, int] | None = None,
        deterministic: bool = False,
    ) -> Plan:
        """Returns what the ranks do under this mask, or under several masks by name that share one partition of the tokens.

        `heads` are the query and KV heads of this rank's layers, after tensor parallelism; `head_dim` is the size of a head, or (that of q
        and k, that of v). `layers` says how many layers each mask has, for the balance of work between ranks. The defaults: the method of
        a rule, unless another is clearly faster by simulation on a shipped cluster of this GPU and node size (`default_method.py`), chosen
        at the first plan of a kind and kept for other documents and similar lengths; a grid that keeps the exchange of heads inside a node;
        the kernel that `longca.attention` chooses. `options` are those of the method (`longca ls cp`). Nothing is sent.
        """
        given: dict[str, Any] = dict(grid=grid, kernel=kernel, options=options, layers=layers, deterministic=deterministic)
        wanted = Wanted.of(mask, heads, head_dim, self.device.type, **given)
        if method is None and wanted.kind not in self.planner.methods:
            self.planner.methods[wanted.kind] = self._chosen(wanted)
        return self.use(self.planner.make(wanted, method))

    def _chosen(self, wanted: Wanted) -> str:
        """Returns the method for all plans of this kind, and logs the reason on the first rank."""
        method, why = choose(wanted, self.size, self.ranks_per_node, self._gpu)
        if self.rank == 0:
            log.info("no method is named for %s, so it is %s: %s; method= names another one", ", ".join(wanted.masks), method, why)
        return method

    def use(self, plan: Plan) -> Plan:
        """Returns a plan that this group's `planner` made, maybe in another process, ready for attention. A plan with the same digest that
        was used before is returned in its place, with its prepared kernels."""
        if (plan.rank, plan.ranks) != (self.rank, self.size):
            raise BadInput(f"the plan is for rank {plan.rank} of {plan.ranks}, and this is rank {self.rank} of {self.size}; plan here.")
        known = self._plans.pop(plan.digest, plan)
        if known.group not in (None, self):
            known = copy(known)  # without the other group's programs, which send with that one's communicators
        if plan.has_sharded:  # in another process: what it knows of the batch is newer
            known.has_sharded, known.labelled, known.given = True, plan.labelled, plan.given
        known.group = self
        known.held_bytes = known.held_bytes or tensor_bytes((known.shards, [_arrays(mask) for mask in known.masks.values()]), DEPTH)
        self._plans[plan.digest] = known
        self._forget()
        self._state(known)
        return known

    def _forget(self) -> None:
        """Drops the plans that were used least recently. Ranks count the same bytes, so they drop the same ones."""
        while len(self._plans) > 1 and sum(plan.held_bytes for plan in self._plans.values()) > self._cache_bytes:
            self._plans.popitem(last=False)

    def beside_compute(self, plan: Plan, make: Callable[[], Program]) -> Program:
        """Returns the program that `make` prepares for a plan. On a GPU this happens on a stream of its own: there the host waits for its
        uploads, and not for what the GPU computes."""
        if self._side is None:
            made = make()
        else:
            with torch.cuda.stream(self._side):
                made = make()
            compute = torch.cuda.current_stream(self.device)
            compute.wait_stream(self._side)
            for tensor in tensors_in(made, DEPTH):
                if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                    tensor.record_stream(compute)  # its memory is not given away while an attention may still read it
        self._grown = plan, tensor_bytes(made, DEPTH)
        return made

    def _state(self, plan: Plan) -> None:
        """Logs once what was chosen, on the first rank."""
        text = plan.summary
        if self.rank == 0 and text not in self._stated:
            self._stated.add(text)
            nodes = f"{self.ranks_per_node} per node" if self.ranks_per_node else "nodes of different sizes, so nodes are not considered"
            log.info("context parallelism over %d ranks (%s): %s", self.size, nodes, text)

    def exchange(self, message: str) -> list[str]:
        """Returns the messages of all ranks. They travel between hosts, so no GPU is waited for."""
        if not (dist.is_initialized() and self.is_open):
            raise BadInput("this group is closed, or its process group is gone; make a new Group.")
        raw = message.encode()[:MESSAGE_BYTES]
        mine = torch.tensor([*raw, *bytes(MESSAGE_BYTES - len(raw))], dtype=torch.uint8)
        of_all = [torch.empty_like(mine) for _ in range(self.size)]
        self.host.all_gather([mine], [[buffer] for buffer in of_all]).wait()
        return [bytes(buffer.tolist()).rstrip(b"\0").decode(errors="ignore") for buffer in of_all]

    def agree(self, facts: Mapping[str, str]) -> None:
        """Raises BadInput on all ranks where one has other facts than the first."""
        grown = self._grown[1] if self._grown else 0
        with self._patient(facts):
            answers = [json.loads(text) for text in self.exchange(json.dumps({**facts, BYTES: grown}))]
        for rank, answer in enumerate(answers):
            for name in facts:
                if answer.get(name) != answers[0].get(name):
                    here, there = answers[0].get(name), answer.get(name)
                    raise BadInput(
                        f"the ranks of a plan call different attentions: {name} is {there} on rank {rank} and {here} on rank 0; "
                        "give all ranks the same whole batch, and make the same plan and calls."
                    )
        if self._grown:
            self._grown[0].held_bytes += max(answer[BYTES] for answer in answers)
            self._grown = None
            self._forget()

    @contextmanager
    def _patient(self, facts: Mapping[str, str]) -> Iterator[None]:
        """Logs what this rank calls where the others do not come for long."""
        told = "; ".join(f"{name} is {fact}" for name, fact in facts.items() if fact)
        text = (
            f"rank {self.rank} has waited {PATIENCE_S:g} s for all ranks to call this attention for the first time: {told}. Ranks that go "
            "on with one that they called before wait for this rank: give all ranks the same whole batch, and make the same plan and calls."
        )
        timer = threading.Timer(PATIENCE_S, log.warning, (text,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self, at_once: bool = False) -> None:
        """Ends the group's communicators, and lets go of all plans and of what was prepared for them. All ranks do so; a second call does
        nothing. `at_once`: after an error, without waiting for the other ranks."""
        if self.is_open:
            self.comm.close(at_once)
            self.host.close(at_once)
        self.is_open = False
        for plan in self._plans.values():
            plan.release()
        self._plans.clear()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.close(at_once=error is not None)


def _arrays(mask: AnyMask) -> object:
    """The arrays that make a mask, without what it remembers: a rank that drew it remembers more than others."""
    return [*mask.bands] if isinstance(mask, Mask) else mask.kept


def _process_group(given: Any) -> tuple[Any, str]:
    """Returns the process group of a mesh's only dimension and the kind of its device; of a process group no kind."""
    if hasattr(given, "get_group"):
        if given.ndim != 1:
            raise BadInput(f"a Group takes one dimension of a mesh, not {given.ndim}; write mesh['cp'].")
        return given.get_group(), given.device_type
    return dist.group.WORLD if given is None else given, ""


def _device(group: Any, kind: str, given: str | torch.device | None) -> torch.device:
    wanted = torch.device(given or kind or ("cuda" if dist.get_backend(group) != "gloo" and torch.cuda.is_available() else "cpu"))
    return torch.device("cuda", torch.cuda.current_device()) if wanted.type == "cuda" and wanted.index is None else wanted


def _host_name() -> str:
    """Returns a text that processes of one machine share: several machines may have one name, and none the same boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    own = socket.gethostname() + (boot.read_text() if boot.exists() else "")
    return hashlib.sha256(own.encode()).hexdigest()


def _gpu(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def neighbours(nodes: Sequence[Hashable]) -> int:
    """Returns n if every n ranks, in order, share a node, the last ones maybe fewer; 0 if they are spread otherwise."""
    n = nodes.count(nodes[0])
    runs = [set(nodes[start : start + n]) for start in range(0, len(nodes), n)]
    return n if all(len(run) == 1 for run in runs) and len(set(nodes)) == len(runs) else 0
