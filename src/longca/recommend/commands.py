"""The commands that measure or simulate what a question asks for."""

from __future__ import annotations

import shlex

from msgspec.structs import asdict

from longca.masks.by_name import plugins_of
from longca.recommend.question import Question
from longca.results.problem import Pass
from longca.results.reproduce import drawing_options
from longca.text import format_size, shape_options

FOLDER = "out/recommend"
CLUSTER = "h100-ib"  # whose simulation is named to somebody who names none
KINDS = ("cpu", "cuda")  # of devices, as `longca run --device` takes them
LENGTHS = "FILE_WITH_LENGTHS"  # stands for the file of document lengths that was given


def run_command(question: Question) -> str:
    """The `longca run` whose records answer the question."""
    problem, device = question.problem, question.device.lower()
    split = ["--level", "cp", "--nproc", str(problem.ranks)] if problem.ranks > 1 else []
    drawn = ["--masks", problem.mask, "--seqlens", format_size(problem.seqlen)]
    words = ["--kernels", "all", *split, *(["--workload", "steps.jsonl"] if question.own_documents else drawn), *_shared(question)]
    words += ["--passes", ",".join(problem.pass_.parts)]
    words += [] if question.own_documents or problem.documents else ["--seeds", "3"]
    words += ["--device", device] if device in KINDS else []
    return shlex.join(["longca", "run", *words, *_plugins(question), "--out", FOLDER])


def simulate_command(question: Question) -> str:
    """The `longca simulate` that answers the question; empty where no simulation does."""
    problem = question.problem
    is_other = problem.is_pattern or question.own_documents or problem.deterministic or problem.dtype in ("fp32", "fp64")
    if problem.ranks < 2 or question.device or is_other:
        return ""
    words = ["longca", "simulate", "--best", "--cluster", CLUSTER, "--gpus", str(problem.ranks)]
    words += ["--seqlen", format_size(problem.seqlen), "--masks", problem.mask, *_shared(question)]
    words += ["--passes", problem.pass_.value] if problem.pass_ is not Pass.BOTH else []
    return shlex.join([*words, *_plugins(question)])


def _shared(question: Question) -> list[str]:
    """The flags that these verbs share."""
    problem = question.problem
    words = [*shape_options(asdict(problem)), *drawing_options(problem)]
    words += ["--lengths", LENGTHS] if problem.documents else []
    return [*words, "--deterministic"] if problem.deterministic else words


def _plugins(question: Question) -> list[str]:
    return [word for file in plugins_of(question.problem.mask) for word in ("--plugin", file)]
