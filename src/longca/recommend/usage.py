"""The few lines of Python that use a recommendation. They run as they are, with random numbers for q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longca.recommend.answer import Answer, Choice, Pair
from longca.recommend.question import Question
from longca.results.problem import Pass, Problem
from longca.results.reproduce import documents_of, plugins_of

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
PER_NODE = 8  # GPUs of a node, at most


def code(answer: Answer, choice: Choice) -> str:
    """A script for one device, or for the ranks that torchrun or srun starts."""
    kind = choice.sources[0].environment.device_kind or "cuda" if choice.sources else "cpu" if answer.on_cpu else "cuda"
    lines = _many_devices(answer.question, choice, kind) if choice.method else _one_device(answer, choice, kind)
    return "\n".join(lines) + "\n"


def _arguments(values: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in values.items())


def _mask(question: Question, choice: Choice) -> str:
    """The line that builds a mask whose blocks no rule selects."""
    source, problem = next(iter(choice.sources), None), question.problem  # a simulation has no record
    is_own = question.own_documents
    documents = documents_of(source.record, source.masks) if source and is_own else problem.documents and list(problem.documents)
    given: dict[str, Any] = {} if problem.documents else {"seed": source.record.problem.seed if source else 0}
    given |= {"documents": documents, "distribution": problem.distribution, "packing": problem.packing}
    given |= {"heads": problem.heads_kv} if problem.is_pattern and "heads" in question.all_params else {}
    given |= dict(problem.params)
    is_drawn = question.has_documents and documents is None
    remark = "  # your own documents: documents=[...] in place of the seed" if is_drawn else ""
    name = f'"{problem.mask}"' if '"' not in problem.mask else repr(problem.mask)
    typed = _arguments({name: value for name, value in given.items() if value is not None})
    return f"mask = longca.masks.build({name}, {problem.seqlen}{typed}){remark}"


def _plugins(choice: Choice) -> list[str]:
    """Lines that load the files with the kernel or the method, as a run loads them."""
    files = list(dict.fromkeys(file for source in choice.sources for file in plugins_of(source.record, source.environment)))
    if not files:
        return []
    module = "longca.bench.plan.plugins" if choice.method else "longca.kernels.registry"
    content = "method, kernel or mask" if choice.method else "kernel or mask"
    return [f"from {module} import load_plugin", "", *(f"load_plugin({file!r})  # the file that holds the {content}" for file in files)]


def _tensors(problem: Problem, tokens: str, kind: str) -> list[str]:
    grad = "" if problem.pass_ is Pass.FWD else ", requires_grad=True"
    options = f'dtype=torch.{DTYPES[problem.dtype]}, device="{kind}"{grad}'
    shapes = {
        "q": (problem.heads_q, problem.head_dim),
        "k": (problem.heads_kv, problem.head_dim),
        "v": (problem.heads_kv, problem.head_dim_v),
    }
    lines = [f"{name} = torch.randn({tokens}, {heads}, {size}, {options})" for name, (heads, size) in shapes.items()]
    sinks = f'sinks = torch.randn({problem.heads_q}, device="{kind}"{grad})  # one learned logit per query head'
    return [*lines, sinks] if problem.sinks else lines


def _backward(problem: Problem) -> list[str]:
    return [] if problem.pass_ is Pass.FWD else ["out.backward(torch.randn_like(out))  # q.grad, k.grad, v.grad"]


def _extras(problem: Problem) -> str:
    """The arguments for scale, softcap and sinks, where the question has them."""
    numbers = {"scale": problem.scale, "softcap": problem.softcap}
    return _arguments({name: value for name, value in numbers.items() if value}) + (", sinks=sinks" if problem.sinks else "")


def _kernel(choice: Choice, is_nearest: bool) -> tuple[str, list[str]]:
    """The argument that chooses the kernel, and a comment where the default combines two, or where nothing of the answer was measured."""
    scaled = "the nearest answer, scaled from other measurements"
    if isinstance(choice, Pair):
        passes = f"the forward of {choice.forward}, the backward of {choice.backward}"
        return "", [f"# without kernel=, {choice.kernel} chooses; {scaled if is_nearest else 'as measured'}: {passes}"]
    return f', kernel="{choice.kernel}"', [f"# {scaled}: {choice.kernel}"] if is_nearest else []


def _one_device(answer: Answer, choice: Choice, kind: str) -> list[str]:
    problem = answer.question.problem
    kernel, comment = _kernel(choice, answer.nearest is not None)
    option = _extras(problem) + (", deterministic=True" if problem.deterministic else "")
    tensors = _tensors(problem, str(problem.seqlen), kind)
    by_rule = problem.source != "random"  # q and k select the blocks
    selecting = "q, k" if problem.pass_ is Pass.FWD else "q.detach(), k.detach()"
    selected = f'mask = from_tensors({selecting}, "{problem.mask}", "{problem.source}"{_arguments(dict(problem.params))})'
    return [
        "import torch",
        "",
        "import longca",
        *(["from longca.kernels.block_selection import from_tensors"] if by_rule else []),
        "",
        *_plugins(choice),
        *([*tensors, selected] if by_rule else [_mask(answer.question, choice), *tensors]),
        *comment,
        f"out = longca.attention(q, k, v, mask{kernel}{option})  # [tokens, query heads, head size]",
        *_backward(problem),
    ]


def _selected_by_seed(problem: Problem, seed: int) -> str:
    """The line that makes the measured pattern: no rank has all of q and k, and all need the same mask."""
    shape = f"Heads({problem.heads_q}, {problem.heads_kv}, {problem.head_dim})"
    arguments = f'"{problem.mask}", {problem.seqlen}, "{problem.source}", {seed}, {shape}{_arguments(dict(problem.params))}'
    return f"mask = from_seed({arguments})  # your own: from_tensors, with all tokens of q and k, the same on every rank"


def _launch(ranks: int, most: int) -> str:
    """The comment that says how to start so many ranks, as many on each node, at most `most`."""
    per_node = next(count for count in range(min(ranks, most), 0, -1) if ranks % count == 0)
    nodes = ranks // per_node
    if nodes == 1:
        return f"# {ranks} ranks: torchrun --nproc-per-node {per_node} this_file.py, or srun"
    options = f"--nnodes {nodes} --nproc-per-node {per_node} --rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"# {ranks} ranks, on each of {nodes} nodes: torchrun {options} this_file.py, or srun"


def _many_devices(question: Question, choice: Choice, kind: str) -> list[str]:
    problem = question.problem
    by_rule = problem.source != "random"
    size = problem.head_dim if problem.head_dim == problem.head_dim_v else (problem.head_dim, problem.head_dim_v)
    options = f'method="{choice.method}", grid="{choice.grid}", kernel="{choice.kernel}"'
    options += f", options=dict({choice.options})" if choice.options else ""
    options += ", deterministic=True" if problem.deterministic else ""
    return [
        _launch(problem.ranks, PER_NODE if kind == "cuda" else problem.ranks),
        *([f"# simulated, not measured (cluster {choice.simulated})"] if choice.simulated else []),
        *(["import os", ""] if kind == "cuda" else []),
        "import torch",
        "import torch.distributed as dist",
        "",
        *([] if by_rule else ["import longca"]),
        "from longca import parallel",
        *(["from longca.kernels.block_selection import Heads, from_seed"] if by_rule else []),
        "",
        *(['torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())'] if kind == "cuda" else []),
        f'dist.init_process_group("{"nccl" if kind == "cuda" else "gloo"}")',
        *_plugins(choice),
        _selected_by_seed(problem, choice.sources[0].record.problem.seed) if by_rule else _mask(question, choice),
        f"plan = parallel.Group().plan(mask, heads=({problem.heads_q}, {problem.heads_kv}), head_dim={size}, {options})",
        f"tokens = plan.shard(torch.arange({problem.seqlen}))  # of this rank; your own: plan.shard(batch) with ids, positions and labels",
        *_tensors(problem, "len(tokens)", kind),
        f"out = plan.attention(q, k, v{_extras(problem)})  # [tokens of this rank, query heads, head size]",
        *_backward(problem),
        "dist.destroy_process_group()",
    ]
