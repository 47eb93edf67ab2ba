"""Which records answer a question, and in what others differ from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from longca.errors import BadInput, LongcaError
from longca.recommend.question import Question, default_params
from longca.results.naming import cluster_name
from longca.results.reading import Results
from longca.results.record import Environment, LevelName, Record
from longca.text import format_dims, format_heads, format_size

Differences = dict[str, Any]  # by the flag that asks for it, the value that a record has


class Near(NamedTuple):
    """A record of the mask that was asked for, and in what it differs from the question."""

    record: Record
    environment: Environment
    differences: Differences


class SeveralDevices(BadInput):
    """Records of several devices could answer, and the question names none."""

    def __init__(self, devices: tuple[str, ...], what: str) -> None:
        super().__init__(f"records of several devices {what} ({', '.join(devices)}); choose one with --device.")
        self.devices = devices


def refuse_several_devices(near: Iterable[Near], what: str) -> None:
    """Raises SeveralDevices where these records are of more than one; `what` they do."""
    devices = tuple(sorted({one.environment.name for one in near}))
    if len(devices) > 1:
        raise SeveralDevices(devices, what)


def sorted_out(question: Question, results: Results) -> tuple[list[Near], list[Near]]:
    """The records that answer the question, and those of the same mask that do not."""
    matching, others = list[Near](), list[Near]()
    for record in results.records:
        environment = results.environment(record)
        differing = differences(question, record, environment)
        if differing is not None:
            (others if differing else matching).append(Near(record, environment, differing))
    return of_device(question, matching), others


def of_device(question: Question, near: list[Near]) -> list[Near]:
    """Those of the device of this very name, where there are any: an H200 beside an H200 NVL."""
    return [one for one in near if one.environment.name.lower() == question.device.lower()] or near


def differences(question: Question, record: Record, environment: Environment) -> Differences | None:
    """In what a record differs from the question: {} answers it. None where the record says nothing about it."""
    if record.problem.mask != question.mask or is_single_rank(record):
        return None
    wanted = _asked(question)
    differing = {flag: value for flag, value in _measured(record).items() if value != wanted[flag]}
    params = other_params(record, question.params)
    if params:
        differing["--set"] = ",".join(f"{name}={value}" for name, value in params.items())
    if not is_device(question.device, environment):
        differing["--device"] = environment.name
    return differing


def is_single_rank(record: Record) -> bool:
    """Whether it is a method's record on one rank, which is a baseline and answers no question."""
    return record.level is LevelName.CP and record.problem.ranks == 1


def is_device(words: str, environment: Environment) -> bool:
    """Whether all of these words are words of the device's name (an H20 is no H200), or they are its kind: cpu, cuda."""
    wanted, named = (set(re.findall(r"\w+", name.lower())) for name in (words, environment.name))
    return wanted <= named or words.lower() == environment.device_kind


def other_params(record: Record, asked: Mapping[str, int | float]) -> dict[str, int | float]:
    """Parameters of a record that are neither those asked for, nor the mask's defaults, nor drawn from the seed."""
    try:
        usual = default_params(record.problem.mask, record.problem.heads_kv)
    except LongcaError:  # a mask of somebody's plugin
        usual = {}
    other = {}
    for name, value in record.built.params.items():
        wanted = asked.get(name, usual.get(name))
        drawn = callable(wanted) and name not in record.given.params
        if not drawn and value != wanted:
            other[name] = value
    return other


# what a question asks for and a record has, but mask, parameters and device, by flag; these have one value each
FLAGS = ("--gpus", "--cluster", "--source", "--distribution", "--packing", "--own-documents", "--deterministic", "--softcap", "--sinks")


def _aspects(shape: Mapping[str, Any], seqlen: int, dtype: str, *others: Any) -> Differences:
    """Values by flag, as a user types them."""
    sizes = {"--seqlen": format_size(seqlen), "--heads": format_heads(shape), "--head-dim": format_dims(shape), "--dtype": dtype}
    return sizes | dict(zip(FLAGS, others, strict=True))


def _measured(record: Record) -> Differences:
    shape = {
        "heads_q": record.problem.heads_q,
        "heads_kv": record.problem.heads_kv,
        "head_dim": record.problem.head_dim,
        "head_dim_v": record.problem.head_dim_v,
    }
    drawn = (record.problem.source, record.given.distribution, record.given.packing, record.given.documents)
    extras = (record.problem.deterministic, record.problem.softcap, record.problem.sinks)
    return _aspects(shape, record.problem.seqlen, record.problem.dtype, record.problem.ranks or 1, record.simulated, *drawn, *extras)


def asked_value(question: Question, flag: str) -> str:
    """What the question asks for with a flag: 'with --dtype fp16', 'without --sinks'."""
    params = ",".join(f"{name}={value}" for name, value in question.all_params.items() if not callable(value))
    value = (_asked(question) | {"--set": params, "--device": question.device})[flag]
    shown = "" if value is True else f" {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}"
    return f"with {flag}{shown}" if value else f"without {flag}"


@lru_cache(maxsize=8)
def _asked(question: Question) -> Differences:
    drawn = (question.source, question.distribution, question.packing, question.own_documents)
    extras = (question.deterministic, question.softcap, question.sinks)
    cluster = cluster_name(question.cluster) if question.cluster else None
    return _aspects(vars(question), question.seqlen, question.dtype, question.gpus, cluster, *drawn, *extras)
