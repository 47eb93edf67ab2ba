"""What tests of plans have the ranks of a pool do. Results are compared with one rank, whose attention sees the whole sequence."""

from __future__ import annotations

import itertools
import logging
import pickle
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import longca
from longca import masks, parallel
from longca.errors import LongcaError
from longca.masks import Mask
from longca.parallel.comm.distributed import TorchComm

LENGTH, WORDS, WIDTH, HEADS = 100, 23, 32, 4
DOCUMENTS = (10, 20, 70)


def _mask(documents: bool = True) -> Mask:
    return masks.causal_document(LENGTH, documents=DOCUMENTS) if documents else masks.causal(LENGTH)


def _inputs(batch: int = 0, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(LENGTH, heads, 8) for heads in (4, 2, 2)]
    return [torch.randn((batch, *shape) if batch else shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def _worst(pairs: list[tuple[Any, Any]]) -> float:
    return max(float((one - other).abs().max()) for one, other in pairs)


def attention(
    comm: Any, batch: int = 0, sinks: bool = False, lse: bool = True, mesh: Any = None, seed: int = 0, **settings: Any
) -> dict[str, Any]:
    """The largest error of out, lse, dq, dk, dv (and dsinks), and the tokens of this rank; over the ranks of a mesh, or over all."""
    mask, whole = _mask(), [x.detach().to(comm.device).requires_grad_() for x in _inputs(batch, seed=seed)]
    logits = torch.linspace(-1, 3, 4, dtype=torch.float64, device=comm.device).requires_grad_() if sinks else None
    options: dict[str, Any] = {"sinks": logits, "softcap": 2.0 if sinks else 0.0}
    wanted, wanted_lse = longca.attention(*whole, mask, kernel="torch:chunked", return_lse=True, **options)
    leaves = [*whole, *([] if logits is None else [logits])]
    right = torch.autograd.grad(wanted.sin().sum(), leaves)
    with parallel.Group(mesh) as cp:
        plan = cp.plan(mask, heads=(4, 2), head_dim=8, **settings)
        mine = [plan.shard(x).detach().requires_grad_() for x in whole]
        out, own_lse = plan.attention(*mine, return_lse=True, **options) if lse else (plan.attention(*mine, **options), None)
        got = torch.autograd.grad(out.sin().sum(), [*mine, *leaves[3:]])
        pairs = [(plan.gather(out), wanted), *([] if own_lse is None else [(plan.gather(own_lse.mT), wanted_lse.mT)])]
        pairs += [(one, plan.shard(two)) for one, two in zip(got[:3], right[:3], strict=True)]
        if sinks:
            total = got[3].clone()
            dist.all_reduce(total)
            pairs.append((total, right[3]))
        return {"error": _worst(pairs), "tokens": plan.tokens}


def forward_alone(comm: TorchComm, method: str, kernel: str) -> float:
    """The error of out, of a call that asks for no gradient."""
    mask, whole = _mask(), _inputs()
    with torch.no_grad(), parallel.Group() as cp:
        plan = cp.plan(mask, heads=(4, 2), head_dim=8, method=method, kernel=kernel)
        return _worst([(plan.gather(_sharded(plan, whole)), longca.attention(*whole, mask, kernel="torch:chunked"))])


def several_masks(comm: TorchComm, method: str | None, documents: bool) -> dict[str, Any]:
    """The largest error of a global and a local layer after each other, and the work of each rank under both."""
    mask = _mask(documents)
    kinds = {"global": mask, "local": mask & masks.sliding_window_causal(LENGTH, w=7)}
    whole = _inputs()
    wanted = sum(longca.attention(*whole, kind, kernel="torch:chunked") for kind in kinds.values())
    right = torch.autograd.grad(wanted.sin().sum(), whole)  # type: ignore[union-attr]
    with parallel.Group() as cp:
        plan = cp.plan(kinds, heads=(4, 2), head_dim=8, method=method, layers={"global": 1, "local": 3})
        mine = [plan.shard(x).detach().requires_grad_() for x in whole]
        out = plan.attention(*mine, "global") + plan.attention(*mine, "local")
        got = torch.autograd.grad(out.sin().sum(), mine)
        pairs = [(plan.gather(out), wanted), *((one, plan.shard(two)) for one, two in zip(got, right, strict=True))]
        return {"error": _worst(pairs)}


def misuse(comm: TorchComm) -> dict[str, str]:
    """What wrong calls are told, on this rank."""
    mask, whole = _mask(), _inputs()
    heard = {}
    with parallel.Group() as cp:
        settings: dict[str, Any] = {"heads": (4, 2), "head_dim": 8}
        ring, other = cp.plan(mask, method="ring_p2p", **settings), cp.plan(mask, method="ulysses", **settings)
        mine = [ring.shard(x) for x in whole]
        differs = [masks.causal(LENGTH), mask][comm.rank > 0]
        ids = torch.randint(WORDS, (LENGTH,), generator=torch.Generator().manual_seed(comm.rank % 2))
        calls: dict[str, Any] = {
            "another plan": lambda: other.attention(*mine),
            "nothing sharded": lambda: other.attention(*(x + 0 for x in mine)),
            "labels of another plan": lambda: other.mean(torch.zeros(other.tokens), ring.shard(torch.zeros(LENGTH))),
            "twice": lambda: ring.shard(mine[0]),
            "short": lambda: ring.attention(*(x[:-1] for x in mine)),
            "heads": lambda: ring.attention(*(x[:, :2] for x in mine)),
            "uncut": lambda: ring.shard(whole[0][:50]),
            "no name": lambda: ring.attention(*mine, "local"),
            "other mask on a rank": lambda: _sharded(cp.plan(differs, method="ring_p2p", **settings), whole),
            "other method on a rank": lambda: _sharded(cp.plan(mask, method=["usp", "magi"][comm.rank % 2], **settings), whole),
            "other ids on a rank": lambda: _attend(cp.plan(mask, method="mesh", **settings), {"ids": ids}),
            "compiled on a rank": lambda: cp.plan(mask, method="usp", **settings).prepare(torch.float64, compiled=comm.rank > 0),
            "no gradient on a rank": lambda: ring.attention(*(x.detach() for x in mine) if comm.rank else mine),
            "compiled peer": lambda: cp.plan(masks.causal(96), method="torch_cp", kernel="torch:chunked", **settings).prepare(
                torch.float32, compiled=True
            ),
        }
        for name, call in calls.items():
            try:
                call()
                heard[name] = ""
            except LongcaError as error:
                heard[name] = str(error)
        assert _worst([(ring.gather(ring.attention(*mine)), longca.attention(*whole, mask))]) < 1e-5  # the group is as good as before
    return heard


def _sharded(plan: parallel.Plan, whole: list[torch.Tensor]) -> torch.Tensor:
    return plan.attention(*(plan.shard(x) for x in whole))  # type: ignore[no-any-return]


def _attend(plan: parallel.Plan, whole: dict[str, torch.Tensor]) -> torch.Tensor:
    """Attention of tensors that a model made of a batch."""
    x = plan.shard(whole)["ids"].double()[:, None, None]
    return plan.attention(x.expand(-1, 4, 8), *(x.expand(-1, 2, 8),) * 2)  # type: ignore[no-any-return]


def only_one_is_new(comm: TorchComm, patience: float) -> None:
    """Rank 1 calls what no other rank calls: they go on with what all called before, and wait for it."""
    from longca.parallel import group as module

    module.PATIENCE_S = patience
    with parallel.Group() as cp:
        for documents in (True, comm.rank != 1):
            _sharded(cp.plan(_mask(documents), heads=(4, 2), head_dim=8, kernel="torch:chunked"), _inputs())


def default_options(comm: TorchComm, nodes: list[int], method: str, members: list[int]) -> dict[str, Any]:
    """The options and the grid of a plan for these members, where rank r is on node nodes[r]."""
    from longca.parallel import group as module

    if comm.rank not in members:
        return {}
    named, module._host_name = module._host_name, lambda: f"node {nodes[comm.rank]}"
    with parallel.Group(dist.new_group(members, use_local_synchronization=True)) as cp:
        module._host_name = named
        plan = cp.plan(_mask(), heads=(4, 2), head_dim=8, method=method)
        return {"node": cp.ranks_per_node, "options": plan.options, "grid": plan.grid}


def chosen_method(comm: TorchComm, gpus: list[str]) -> dict[str, Any]:
    """The methods of plans for one kind of batch after another where rank r has the GPU gpus[r], and what is logged."""
    from longca.parallel import group as module

    told, named = Told(), module._gpu
    module._gpu = lambda device: gpus[comm.rank]
    module.log.addHandler(told)
    module.log.setLevel(logging.INFO)
    try:
        with parallel.Group(ranks_per_node=4) as cp:
            packed = masks.causal_document(1 << 16, documents=[30000, 35536]), masks.causal_document(1 << 16, documents=[256] * 256)
            kinds = (*packed, masks.causal(1 << 16), masks.causal((1 << 16) + 512))
            methods = [cp.plan(mask, heads=(64, 8), head_dim=128).method for mask in kinds]
            elsewhere = pickle.loads(pickle.dumps(cp.planner)).plan(packed[1], heads=(64, 8), head_dim=128).method
    finally:
        module._gpu = named
        module.log.removeHandler(told)
    return {"methods": methods, "elsewhere": elsewhere, "log": told.lines}


class Told(logging.Handler):
    """Keeps what is logged about methods."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        if "no method is named" in record.getMessage():
            self.lines.append(record.getMessage())


def planned_elsewhere(comm: TorchComm) -> float:
    """A plan and a batch that another process could have made, by pickle."""
    whole = _inputs()
    with parallel.Group() as cp:
        planner = pickle.loads(pickle.dumps(cp.planner))
        made = planner.plan(_mask(), heads=(4, 2), head_dim=8)
        mine, made = pickle.loads(pickle.dumps(([made.shard(x.detach()) for x in whole], made)))
        plan = cp.use(made)
        again = planner.plan(_mask(), heads=(4, 2), head_dim=8)
        again.shard({"labels": torch.arange(LENGTH)})
        assert cp.use(again) is plan
        assert plan.labelled == LENGTH - len(DOCUMENTS)  # of the last batch
        return _worst([(plan.gather(plan.attention(*mine)), longca.attention(*whole, _mask()))])


def prepared_ahead(comm: TorchComm) -> dict[str, int]:
    """How many programs the attentions of a prepared plan made, and how many it has."""
    kinds = {"global": _mask(), "local": _mask() & masks.sliding_window_causal(LENGTH, w=7)}
    with parallel.Group() as cp:
        plan = cp.plan(kinds, heads=(4, 2), head_dim=8).prepare(torch.float64)
        before = len(plan._programs)
        mine = [plan.shard(x).detach().requires_grad_() for x in _inputs()]
        sum(plan.attention(*mine, name) for name in kinds).sum().backward()  # type: ignore[union-attr]
        return {"made": len(plan._programs) - before, "programs": before}


def cache(comm: TorchComm, cache_bytes: int) -> dict[str, Any]:
    """The plans that are kept of six that were used twice, and the largest error."""
    whole, pairs = _inputs(), []
    with torch.no_grad(), parallel.Group(cache_bytes=cache_bytes) as cp:
        for first in [10, 20, 30, 40, 50, 60] * 2:
            mask = masks.causal_document(LENGTH, documents=[first, LENGTH - first])
            plan = cp.plan(mask, heads=(4, 2), head_dim=8, method="magi")
            pairs.append((plan.gather(_sharded(plan, whole)), longca.attention(*whole, mask, kernel="torch:chunked")))
        return {"kept": list(cp._plans), "error": _worst(pairs)}


def gathering(comm: TorchComm, compiled: bool) -> float:
    """The largest error of gathered tokens and of their gradient, with tokens on the first and on the second axis: of a loss that each rank
    weighs by itself, a token's gradient is the sum over ranks. Compiled once for several plans, if at all."""
    pairs = []

    def gather(plan: parallel.Plan, x: torch.Tensor) -> torch.Tensor:
        return plan.gather(x * 1)  # type: ignore[no-any-return]

    if compiled:
        from torch._dynamo.testing import CompileCounterWithBackend  # slow to import, and each rank of a pool imports this file

        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        gather = torch.compile(gather, fullgraph=True, backend=counter)
    with parallel.Group() as cp:
        for method, shape in itertools.product(["ulysses", "ring_p2p", "magi"], [(LENGTH, 3), (2, LENGTH, 3)]):
            plan = cp.plan(_mask(), heads=(4, 2), head_dim=8, method=method)
            whole = torch.randn(shape, generator=torch.Generator().manual_seed(1))
            mine = plan.shard(whole.to(cp.device))
            x = (mine * 1).requires_grad_()
            gathered = gather(plan, x)
            (gathered.sin() * (cp.rank + 1)).sum().backward()
            assert x.grad is not None
            pairs += [(gathered.cpu(), whole), (x.grad, mine.cos() * sum(range(1, cp.size + 1)))]
        assert not compiled or counter.frame_count <= 4, (
            counter.frame_count
        )  # for each axis with the first plan's numbers, and then with any
        return _worst(pairs)


def rounded_gather_gradient(comm: TorchComm) -> bool:
    """Whether a gradient in bf16 is the sum over ranks, rounded at its end."""
    with parallel.Group() as cp:
        plan = cp.plan(_mask(), heads=(4, 2), head_dim=8)
        x = plan.shard(torch.zeros(LENGTH, 16, dtype=torch.bfloat16)).requires_grad_()
        weights = [torch.randn(LENGTH, 16, generator=torch.Generator().manual_seed(rank)).bfloat16() for rank in range(cp.size)]
        (plan.gather(x) * weights[cp.rank]).sum().backward()
        return torch.equal(x.grad, torch.stack(weights).float().sum(0)[plan.rows].bfloat16())


def prepared_beside(comm: TorchComm) -> bool:
    """Whether the GPU is still busy with earlier work when a plan is prepared, and its attention is right all the same."""
    mask, whole = _mask(), [x.detach().to(comm.device, torch.float32) for x in _inputs()]
    with torch.no_grad(), parallel.Group() as cp:
        settings: dict[str, Any] = {"heads": (4, 2), "head_dim": 8, "method": "ring_p2p", "kernel": "torch:chunked"}
        cp.plan(_mask(documents=False), **settings).prepare(torch.float32)  # the first one loads libraries
        torch.cuda.synchronize()
        torch.cuda._sleep(int(4e9))  # clock cycles: about two seconds
        plan = cp.plan(mask, **settings).prepare(torch.float32)
        busy = not torch.cuda.current_stream().query()
        out = plan.gather(plan.attention(*map(plan.shard, whole)))
        return busy and _worst([(out, longca.attention(*whole, mask, kernel="torch:chunked"))]) < 1e-4


def graphed(comm: TorchComm, method: str, kernel: str) -> float:
    """The largest difference of a replayed CUDA graph of attention, forward and backward, from the plain call, with other numbers."""
    mask, device = _mask(), comm.device
    with parallel.Group() as cp:
        plan = cp.plan(mask, heads=(4, 2), head_dim=64, method=method, kernel=kernel).prepare(torch.bfloat16)

        def fresh(seed: int) -> list[torch.Tensor]:
            generator = torch.Generator().manual_seed(seed)
            whole = [torch.randn(LENGTH, heads, 64, generator=generator) for heads in (4, 2, 2)]
            return [plan.shard(x).to(device, torch.bfloat16).requires_grad_() for x in whole]

        def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
            out = plan.attention(q, k, v)
            return (out, *torch.autograd.grad(out.sum(), (q, k, v)))

        held, side = fresh(0), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(*held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step(*held)
        other = fresh(1)
        wanted = step(*other)
        with torch.no_grad():
            for target, x in zip(held, other, strict=True):
                target.copy_(x)
        graph.replay()
        torch.cuda.synchronize()
        return _worst(list(zip(captured, wanted, strict=True)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.before = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down, self.between = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, attend: Any) -> torch.Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (-1, WIDTH // HEADS)).split([HEADS, HEADS // 2, HEADS // 2], -2)
        x = x + self.out(attend(q, k, v).flatten(-2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers, self.head, self.recompute = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(WIDTH, WORDS), recompute

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, attend: Any) -> torch.Tensor:
        x = self.words(ids) + self.places(positions)
        for layer in self.layers:
            x = checkpoint(layer, x, attend, use_reentrant=False) if self.recompute else layer(x, attend)
        return self.head(x)


SIZES = {"data": (2, -1, 1), "tensor": (1, -1, 2), "data and tensor": (2, 1, 2)}  # data, sequence and tensor parallel ranks; -1: the rest


def train(comm: TorchComm, case: str, method: str | None = None, kernel: str | None = None) -> dict[str, list[float]]:
    """The losses of three steps with the sequence on `cp` ranks and, on one rank, with all of it."""
    sizes = SIZES.get(case, (1, -1, 1))
    data, tensor = sizes[0], sizes[2]
    shape = (data, comm.size // (data * tensor), tensor)
    mesh = init_device_mesh(comm.device.type, shape, mesh_dim_names=("dp", "cp", "tp"))
    batch = {"batch": 3}.get(case, data)
    ids = torch.randint(WORDS, (batch, LENGTH), generator=torch.Generator().manual_seed(5))
    labels = ids.clone()
    labels[:, 40:60] = -100
    places = torch.arange(LENGTH).expand(batch, -1)
    whole = {name: x.to(comm.device) for name, x in (("ids", ids), ("positions", places), ("labels", labels))}
    cast = torch.autocast(comm.device.type, torch.bfloat16, enabled=case == "autocast")
    with cast:
        alone = _alone(whole, kernel)
    with parallel.Group(mesh["cp"]) as cp, cast:
        mine = {name: x[mesh.get_local_rank("dp")][None] if data > 1 else x for name, x in whole.items()}
        return {"alone": alone, "shared": _shared(cp, mesh, mine, case, method, kernel)}


def _alone(whole: dict[str, torch.Tensor], kernel: str | None) -> list[float]:
    torch.manual_seed(0)
    model, losses = Model().to(whole["ids"].device), list[float]()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    wanted = torch.full_like(whole["labels"], -100)
    start = 0
    for length in DOCUMENTS:  # no document predicts the next one's first token
        wanted[:, start : start + length - 1] = whole["labels"][:, start + 1 : start + length]
        start += length
    for _ in range(3):
        logits = model(whole["ids"], whole["positions"], lambda q, k, v: longca.attention(q, k, v, _mask(), kernel=kernel))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _shared(
    cp: parallel.Group, mesh: Any, whole: dict[str, torch.Tensor], case: str, method: str | None, kernel: str | None
) -> list[float]:  # fmt: skip
    torch.manual_seed(0)
    model, losses = Model(recompute=case == "checkpoint").to(cp.device), list[float]()
    if case == "fsdp":
        fully_shard(model, mesh=mesh["cp"])
    compiled = partial(torch.compile, fullgraph=True, backend="aot_eager") if case == "compile" else lambda function: function
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tensor = mesh["tp"].size()
    plan = cp.plan(_mask(), heads=(HEADS // tensor, HEADS // 2 // tensor), head_dim=WIDTH // HEADS, method=method, kernel=kernel)
    mean = compiled(plan.mean)
    attend = plan.attention if tensor == 1 else _over_heads(plan, mesh["tp"])
    for _ in range(3):
        batch = plan.shard(whole)
        logits = run(batch["ids"], batch["positions"], attend)
        tokens = nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch["shift_labels"].flatten(), reduction="none")
        loss = mean(tokens.view(batch["shift_labels"].shape), batch["shift_labels"] if case == "compile" else None)
        optimizer.zero_grad()
        loss.backward()
        if case != "fsdp":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, dist.ReduceOp.SUM)
                assert parameter.grad is not None
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / dist.get_world_size())
    return losses


def _over_heads(plan: parallel.Plan, mesh: Any) -> Any:
    """Attention of this rank's heads, and those of the other ranks of a tensor-parallel group."""
    place, count = mesh.get_local_rank(), mesh.size()

    def own(x: torch.Tensor) -> torch.Tensor:
        return x.chunk(count, -2)[place].contiguous()

    def whole(x: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(count)]
        dist.all_gather(parts, x.contiguous(), group=mesh.get_group())
        return torch.cat(parts, -2)

    class Split(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: own(x))
        backward = staticmethod(lambda ctx, gradient: whole(gradient))

    class Join(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: whole(x))
        backward = staticmethod(lambda ctx, gradient: own(gradient))

    return lambda *tensors: Join.apply(plan.attention(*map(Split.apply, tensors)))
