"""LongCA's context parallelism beside other implementations, on this machine's CPU: `python benchmarks/cp_against_others.py`.

Four gloo ranks with one thread each; the same tokens per rank, the same attention operator (torch's flash attention for CPUs), causal,
turn and turn about. A round's time is that of its slowest rank; a ratio is their time over ours, so more than 1 means LongCA is faster.
Each pair is compared on its results first. Packages that are not installed are named and left out. At the end a table says which
comparisons are outside of what is asked for: results that agree, a median ratio of at least 0.95, and communication over 30 % at the
one size and under 5 % at the other. Where one is, the exit code is 1. `--judge FILE` says the same of an earlier run's figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from longca import masks
from longca.kernels import registry as kernels
from longca.kernels.base import Case
from longca.kernels.inputs import DTYPES, tokens
from longca.parallel import registry
from longca.parallel.comm.base import Comm
from longca.parallel.comm.distributed import TorchComm
from longca.parallel.comm.null import NullComm
from longca.parallel.differentiable import through
from longca.parallel.grid import Grid
from longca.parallel.method import Plan, make_plan
from longca.processes.pool import Pool

RANKS, HEAD_DIM = 4, 64
LEAST_RATIO = 0.95
APART = {"fp32": 20, "bf16": 2}  # roundings of the largest result that those of two implementations may differ by
WAYS = ("forward", "backward")
Tensors = tuple[torch.Tensor, ...]


class Size(NamedTuple):
    seqlen: int
    heads: int
    times: int  # the rounds asked for
    least: float  # the share of communication that makes it this size, and the most
    most: float


SIZES = {"mostly communication": Size(512, 8, 4, 0.30, 1.0), "mostly attention": Size(12288, 4, 1, 0.0, 0.05)}


class Side(NamedTuple):
    """forward() gives a state, of which backward makes the gradients; `results` shows what both computed as [L, H, D]."""

    forward: Callable[[], Any]
    backward: Callable[[Any], Any]
    results: Callable[[Any, Any], Tensors]


class Setting(NamedTuple):
    comm: Comm
    plan: Plan
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor


def op_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> Tensors:
    return tuple(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale))


def op_backward(*tensors: torch.Tensor | bool | float) -> Tensors:
    """Takes dout, q, k, v, out, lse, causal, scale."""
    *given, causal, scale = tensors
    return tuple(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, 0.0, causal, scale=scale))


class LocalFlash(torch.autograd.Function):
    """The same operator as an autograd function on [B, L, H, D], for implementations that want a local attention."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> torch.Tensor:
        out, lse = op_forward(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal, scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.scale = causal, scale
        return out.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        dout, q, k, v = (x.transpose(1, 2) for x in (grads[0], q, k, v))
        found = op_backward(dout, q, k, v, out, lse, ctx.causal, ctx.scale)
        return (*(x.transpose(1, 2) for x in found), None, None)


def stand_in_for_flash_attn() -> None:
    """The few functions of the flash-attn package that others call, on top of the CPU operator."""

    def forward(q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, **_: Any) -> Any:
        out, lse = op_forward(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal, softmax_scale)
        return out.transpose(1, 2), lse, None, None

    def backward(
        dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any, dropout_p: float, softmax_scale: float,
        causal: bool, *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        views = (x.transpose(1, 2) for x in (dout, q, k, v, out))
        for target, found in zip((dq, dk, dv), op_backward(*views, softmax_lse, causal, softmax_scale), strict=True):
            target.copy_(found.transpose(1, 2))

    interface: Any = types.ModuleType("flash_attn.flash_attn_interface")
    interface._flash_attn_forward = interface._flash_attn_varlen_forward = forward
    interface._flash_attn_backward = interface._flash_attn_varlen_backward = backward
    package: Any = types.ModuleType("flash_attn")
    package.__version__, package.flash_attn_interface = "2.7.4", interface
    package.flash_attn_func = lambda q, k, v, *_, softmax_scale=None, causal=False, **__: LocalFlash.apply(q, k, v, causal, softmax_scale)
    for module in (package, interface):
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
    sys.modules["flash_attn"], sys.modules["flash_attn.flash_attn_interface"] = package, interface


def ours(setting: Setting) -> Side:
    """The method's own program, without autograd."""
    program = setting.plan.program(setting.comm)
    return Side(
        lambda: program.forward(setting.q, setting.k, setting.v),
        lambda state: program.backward(setting.dout, state[1]),
        lambda state, grads: (state[0], *grads),
    )


def through_autograd(setting: Setting, call: Callable[..., torch.Tensor], batched: bool) -> Side:
    """A differentiable function of q, k, v."""
    inputs = [x.detach()[None] if batched else x.detach() for x in (setting.q, setting.k, setting.v)]
    leaves = [x.requires_grad_() for x in inputs]
    dout = setting.dout[None] if batched else setting.dout
    return Side(
        lambda: call(*leaves),
        lambda out: torch.autograd.grad(out, leaves, dout),
        lambda out, grads: tuple(x[0] if batched else x for x in (out, *grads)),
    )


def ours_differentiable(setting: Setting) -> Side:
    program, layout = setting.plan.program(setting.comm), kernels.choices(setting.plan.kernel)[0].layout
    return through_autograd(setting, lambda q, k, v: through(program, layout, q, k, v)[0], batched=False)


def alone(setting: Setting, differentiable: bool) -> Side:
    """Ours on a rank whose transfers take no time, called in the same way."""
    silent = setting._replace(comm=NullComm(setting.comm.rank, setting.comm.size))
    return ours_differentiable(silent) if differentiable else ours(silent)


def torch_ring(setting: Setting, rotation: str) -> tuple[Side, Side]:
    from torch.distributed.tensor.experimental._context_parallel import _attention as library

    library._cp_options.rotate_method = library._RotateMethod[rotation]
    q, k, v, dout = (x.transpose(0, 1)[None].contiguous() for x in (setting.q, setting.k, setting.v, setting.dout))
    scale = setting.plan.case.softmax_scale

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool) -> Tensors:
        return op_forward(query, key, value, is_causal, scale)

    def gradients(*, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, is_causal: bool, grad_out: Any) -> Tensors:
        return op_backward(grad_out, query, key, value, out, logsumexp, is_causal, scale)

    def backward(state: Tensors) -> Tensors:
        out, lse = state
        return library._templated_ring_attention_backward(dist.group.WORLD, 2, gradients, dout, "grad_out", q, k, v, out, lse, True)

    theirs = Side(
        lambda: library._templated_ring_attention(dist.group.WORLD, 2, attend, q, k, v, is_causal=True),
        backward,
        lambda state, grads: tuple(x[0].transpose(0, 1) for x in (state[0], *grads)),
    )
    return ours(setting), theirs


def ring_flash_attn(setting: Setting) -> tuple[Side, Side]:
    stand_in_for_flash_attn()
    adapters: Any = types.ModuleType("ring_flash_attn.adapters")  # for another package, which need not be installed
    adapters.substitute_hf_flash_attn = adapters.update_ring_flash_attn_params = None
    sys.modules["ring_flash_attn.adapters"] = adapters
    from ring_flash_attn import zigzag_ring_flash_attn as library

    q, k, v, dout = (x[None] for x in (setting.q, setting.k, setting.v, setting.dout))
    scale, group = setting.plan.case.softmax_scale, dist.group.WORLD
    theirs = Side(
        lambda: library.zigzag_ring_flash_attn_forward(group, q, k, v, scale),
        lambda state: library.zigzag_ring_flash_attn_backward(group, dout, q, k, v, *state, scale),
        lambda state, grads: tuple(x[0] for x in (state[0], *grads)),
    )
    return ours(setting), theirs


def deepspeed(setting: Setting) -> tuple[Side, Side]:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed as library
    from deepspeed.sequence.layer import DistributedAttention

    library.init_distributed("gloo", dist_init_required=False)
    scale = setting.plan.case.softmax_scale
    layer = DistributedAttention(lambda q, k, v: LocalFlash.apply(q, k, v, True, scale), dist.group.WORLD, scatter_idx=2, gather_idx=1)
    return ours_differentiable(setting), through_autograd(setting, lambda q, k, v: layer(q, k, v, 0), batched=True)


def yunchang(setting: Setting, ring_degree: int) -> tuple[Side, Side]:
    stand_in_for_flash_attn()
    import yunchang as library

    library.set_seq_parallel_pg(RANKS // ring_degree, ring_degree, dist.get_rank(), RANKS)
    scale = setting.plan.case.softmax_scale
    if ring_degree == 1:
        layer: Any = library.UlyssesAttention(dist.group.WORLD)
    else:
        layer = library.LongContextAttention(ring_impl_type="zigzag")
    call = through_autograd(setting, lambda q, k, v: layer(q, k, v, softmax_scale=scale, causal=True), batched=True)
    return ours_differentiable(setting), call


class Contest(NamedTuple):
    package: str
    method: str
    grid: str
    dtype: str  # bf16 where the other one's dq is wrong in fp32
    differentiable: bool  # whether both sides are called through autograd
    sides: Callable[[Setting], tuple[Side, Side]]


CONTESTS = {
    "torch ring, all-to-all rotation": Contest("torch", "ring_p2p", "", "fp32", False, lambda setting: torch_ring(setting, "ALL_TO_ALL")),
    "torch ring, all-gather rotation": Contest("torch", "ring_p2p", "", "fp32", False, lambda setting: torch_ring(setting, "ALL_GATHER")),
    "ring-flash-attn, zigzag": Contest("ring_flash_attn", "ring_p2p", "", "bf16", False, ring_flash_attn),
    "DeepSpeed Ulysses": Contest("deepspeed", "ulysses", "", "fp32", True, deepspeed),
    "yunchang Ulysses": Contest("yunchang", "ulysses", "", "fp32", True, lambda setting: yunchang(setting, 1)),
    "yunchang USP 2x2, zigzag": Contest("yunchang", "usp", "2x2", "bf16", True, lambda setting: yunchang(setting, 2)),
}


def make_setting(comm: Comm, contest: Contest, seqlen: int, heads: int) -> Setting:
    case = Case(seqlen, seqlen, heads, heads, HEAD_DIM, HEAD_DIM, contest.dtype)
    grid = Grid.parse(contest.grid) if contest.grid else None
    plan = make_plan(registry.get(contest.method), masks.causal(seqlen), case, RANKS, grid, "sdpa:flash")
    ranges = [(int(first), int(last)) for first, last in plan.rows(comm.rank)]
    q, k, v, dout = (tokens(which, case, ranges) for which in ("q", "k", "v", "dout"))
    return Setting(comm, plan, q, k, v, dout)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    dist.barrier()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure(comm: TorchComm, name: str, seqlen: int, heads: int, rounds: int) -> dict[str, Any]:
    """One rank's part of a contest: its times per round, and how far apart the results are."""
    contest = CONTESTS[name]
    setting = make_setting(comm, contest, seqlen, heads)
    mine, theirs = contest.sides(setting)
    sides = {"ours": mine, "theirs": theirs, "alone": alone(setting, contest.differentiable)}
    found = {}
    for side in ("ours", "theirs"):
        state = sides[side].forward()
        found[side] = [x.detach().double() for x in sides[side].results(state, sides[side].backward(state))]
    apart = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(found["ours"], found["theirs"], strict=True))
    times: dict[str, list[float]] = {f"{side} {way}": [] for side in sides for way in WAYS}
    for number in range(rounds + 1):
        order = ["ours", "theirs", "alone"] if number % 2 else ["theirs", "ours", "alone"]
        for side in order:
            forward, state = timed(sides[side].forward)
            backward, _ = timed(lambda side=side, state=state: sides[side].backward(state))  # type: ignore[misc]
            if number:  # the first round warms up
                times[f"{side} forward"].append(forward)
                times[f"{side} backward"].append(backward)
    return {"times": times, "apart": apart, "tolerance": APART[contest.dtype] * torch.finfo(DTYPES[contest.dtype]).eps}


def summary(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds, each round taken from its slowest rank."""
    slowest = {
        key: [max(values) for values in zip(*(answer["times"][key] for answer in answers), strict=True)] for key in answers[0]["times"]
    }
    row: dict[str, Any] = {"apart": max(answer["apart"] for answer in answers), "tolerance": answers[0]["tolerance"]}
    for way in WAYS:
        mine, theirs, silent = (slowest[f"{side} {way}"] for side in ("ours", "theirs", "alone"))
        row[f"{way} ratio"] = statistics.median(b / a for a, b in zip(mine, theirs, strict=True))
        row[f"{way} ms"] = 1e3 * statistics.median(mine)
        row[f"{way} communication"] = max(0.0, 1 - statistics.median(silent) / statistics.median(mine))
    return row


def faults(row: dict[str, Any]) -> dict[str, list[str]]:
    """What is outside of what is asked for, by way; a way without faults has an empty list."""
    size = next(size for size in SIZES.values() if size.seqlen == row["seqlen"])
    found: dict[str, list[str]] = {way: [] for way in WAYS}
    for way, said in found.items():
        ratio, communication = row[f"{way} ratio"], row[f"{way} communication"]
        if row["apart"] > row["tolerance"]:
            said.append(f"results differ by {row['apart']:.1e}")
        if ratio < LEAST_RATIO:
            said.append(f"ratio under {LEAST_RATIO}")
        if communication <= size.least and size.least > 0:
            said.append(f"communication not over {size.least:.0%}")
        if communication >= size.most and size.most < 1:
            said.append(f"communication not under {size.most:.0%}")
    return found


def judge(rows: list[dict[str, Any]]) -> int:
    """Print every comparison with its verdict; 1 where one is outside of what is asked for, or where there is none at all."""
    outside = 0
    print(f"{'against':34} {'tokens':>6}  {'way':8} {'ratio':>5} {'communication':>13}  verdict")
    for row in rows:
        for way, said in faults(row).items():
            figures = f"{row[f'{way} ratio']:5.2f} {row[f'{way} communication']:13.1%}"
            print(f"{row['against']:34} {row['seqlen']:6}  {way:8} {figures}  {'; '.join(said) or 'as asked for'}")
            outside += bool(said)
    print(f"{outside} of {len(WAYS) * len(rows)} comparisons are outside of what is asked for")
    return int(outside > 0 or not rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("out/cp_against_others.json"))
    parser.add_argument("--only", default="", help="only contests whose name contains this")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="measure nothing: say which figures of this file are as asked for")
    args = parser.parse_args()
    if args.judge:
        return judge(json.loads(args.judge.read_text())["rows"])
    rows = []
    for title, (seqlen, heads, times, _, _) in SIZES.items():
        print(f"{title}: {seqlen} tokens, {heads} heads of {HEAD_DIM}, {RANKS} ranks", flush=True)
        for name, contest in CONTESTS.items():
            if args.only not in name:
                continue
            if importlib.util.find_spec(contest.package) is None:
                print(f"  {name:34} left out: pip install {contest.package.replace('_', '-')}")
                continue
            with Pool(RANKS) as pool:
                job = {"name": name, "seqlen": seqlen, "heads": heads, "rounds": times * args.rounds}
                row = {"against": name, "method": contest.method, "dtype": contest.dtype, "seqlen": seqlen, "heads": heads}
                row |= summary(pool.run("cp_against_others:measure", job, deadline=900))
            rows.append(row)
            ways = ", ".join(
                f"{way} {row[f'{way} ratio']:.2f}x ({row[f'{way} ms']:.1f} ms, {row[f'{way} communication']:.0%} communication)"
                for way in WAYS
            )
            agree = "" if row["apart"] <= row["tolerance"] else f"; RESULTS DIFFER by {row['apart']:.1e}"
            print(f"  {name:34} {ways}{agree}", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"torch": torch.__version__, "rounds": args.rounds, "rows": rows}, indent=1) + "\n")
    print(f"wrote {args.out}")
    return judge(rows)


if __name__ == "__main__":
    sys.exit(main())
