"""Where no record answers: which run would, beside what the closest records are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from longca.masks.by_name import plugins_of
from longca.recommend.closest import closest
from longca.recommend.matching import Near, is_device
from longca.recommend.question import Question
from longca.results.metrics import GIB
from longca.results.record import Environment
from longca.text import format_size, shape_options, shortest_memory

FOLDER = "out/recommend"
CLUSTER = "h100-ib"  # whose simulation is named to somebody who names none
KINDS = ("cpu", "cuda")  # of devices, as `longca run --device` takes them


def advice(question: Question, others: Sequence[Near], matching: Sequence[Environment], simulated: Sequence[str] = ()) -> list[str]:
    """Sentences. `matching` are the machines of records that lack only a pass, or their memory; `simulated` are sentences with questions
    that simulated records answer.

    No run is named that could not answer: LongCA measures what is not simulated, and counts the memory of GPUs only.
    """
    if question.cluster:
        same = [near for near in others if "--cluster" not in near.differences]
        return closest(question, same, simulated) if same and not matching else [*simulated]
    sentences = [*simulated] if matching else closest(question, others, simulated)
    machines = matching or [near.environment for near in others if question.device and is_device(question.device, near.environment)]
    on_cpu = all(machine.on_cpu for machine in machines) if machines else question.device.lower() == "cpu"
    if on_cpu and question.memory_gib is not None:
        sentences.append("memory is counted on GPUs only, and this is about a CPU: leave out --memory.")
        if question.device:
            return sentences
        where = _where(question) or " on a GPU"
        return [*sentences, f"or to measure it{where}: {run_command(question)}", f"then: {ask_command(question)}"]
    kind = "cpu" if on_cpu else question.device.lower()
    run = run_command(question) + (f" --device {kind}" if question.device and kind in KINDS else "")
    sentences += [f"to measure it{_where(question)}: {run}", f"then: {ask_command(question)}"]
    if not question.device and not simulated and (command := simulate_command(question)):
        sentences.append(f"to simulate it without GPUs: {command}")
        sentences.append(f"then: {ask_command(replace(question, cluster=CLUSTER))}")
    return sentences


def _where(question: Question) -> str:
    many = f" on {question.gpus} GPUs (under torchrun or srun on several nodes)" if question.gpus > 1 else ""
    is_named = question.device and question.device.lower() not in KINDS
    return many + (f", on a machine whose device is named {question.device}" if is_named else "")


def _common(question: Question) -> list[str]:
    words = shape_options(vars(question))
    words += [word for name, value in question.params.items() for word in ("--set", f"{name}={value}")]
    words += ["--source", question.source] if question.source != "random" else []
    drawn = {"--distribution": question.distribution, "--packing": question.packing}
    words += [word for flag, value in drawn.items() if value for word in (flag, value)]
    return [*words, "--deterministic"] if question.deterministic else words


def run_command(question: Question) -> str:
    """The `longca run` whose records answer the question."""
    passes = ",".join(part.value for part in question.pass_.parts)
    split = ["--level", "cp", "--nproc", str(question.gpus)] if question.gpus > 1 else []
    drawn = ["--masks", question.mask, "--seqlens", format_size(question.seqlen)]
    mask = ["--workload", "steps.jsonl"] if question.own_documents else drawn
    words = ["longca", "run", "--kernels", "all", *split, *mask, *_common(question), "--passes", passes]
    words += [] if question.own_documents else ["--seeds", "3"]
    words += [word for file in plugins_of(question.mask) for word in ("--plugin", file)]
    return shlex.join([*words, "--out", FOLDER])


def simulate_command(question: Question) -> str:
    """The `longca simulate` whose records answer the question; empty where no simulation does."""
    if question.gpus < 2 or question.is_pattern or question.own_documents or question.deterministic or question.dtype in ("fp32", "fp64"):
        return ""
    passes = ",".join(part.value for part in question.pass_.parts)
    words = ["longca", "simulate", "--cluster", question.cluster or CLUSTER, "--gpus", str(question.gpus)]
    words += ["--seqlen", format_size(question.seqlen), "--masks", question.mask, *_common(question), "--passes", passes]
    return shlex.join([*words, "--out", FOLDER])


def ask_command(question: Question, folders: Sequence[str] = (FOLDER,)) -> str:
    """The command that asks the question again, of the records of that run, or of those in `folders`; without any, of LongCA's."""
    words = ["longca", "recommend", "--mask", question.mask, "--seqlen", format_size(question.seqlen), *_common(question)]
    words += ["--own-documents"] if question.own_documents else []
    words += [word for file in plugins_of(question.mask) for word in ("--plugin", file)]
    words += ["--pass", question.pass_.value] + (["--gpus", str(question.gpus)] if question.gpus > 1 else [])
    words += ["--calls-per-plan", str(question.calls_per_plan)] if question.calls_per_plan is not None else []
    words += ["--memory", shortest_memory(round(question.memory_gib * GIB))] if question.memory_gib is not None else []
    words += ["--device", question.device] if question.device else []
    words += ["--cluster", question.cluster] if question.cluster else []
    return shlex.join([*words, *(["--results", *folders] if folders else [])])
