"""The command that measures a record's cell again: the same mask, shape, pass, seed and ranks, hence the same key where versions agree.

It sets the same clock and as many threads, so that `longca compare` accepts the two journals.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import asdict

from longca import masks as known_masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.base import Case, Yes
from longca.masks.by_name import words_in
from longca.results.problem import Pass, Problem
from longca.results.record import Environment, LevelName, Masks, Record, Status
from longca.results.settings import SAMPLE_LENGTH, ClockSettings, Limits
from longca.text import format_size, parse_size, shape_options

STEP = "step.jsonl"  # where a mask with given document lengths is written before it is measured
USUAL_CLOCK = asdict(ClockSettings())


def command(record: Record, environment: Environment, masks: Masks, seeds: Sequence[int] = ()) -> str:
    """The command to type. `masks` hold the document lengths that were given. `seeds` are those of several records that differ in
    nothing else.

    Empty for a simulated record, which nobody measured, and where the given lengths are not known.
    """
    if record.simulated:
        return ""
    problem, threads, words = record.problem, environment.threads, _kernel_options(record)
    before = f"OMP_NUM_THREADS={shlex.quote(str(threads))} " if threads else ""
    if problem.documents is not None:
        lengths = problem.documents or documents_of(record, masks)
        if not lengths:  # a run would draw other lengths
            return ""
        step = {"mask": problem.mask, "seqlen": problem.seqlen, "seed": problem.seed, "params": dict(problem.params), "documents": lengths}
        before = f"echo {shlex.quote(msgspec.json.encode(step).decode())} > {STEP} && {before}"
        words += ["--workload", STEP]
    else:
        words += _mask_options(problem, seeds or (problem.seed,))
    words += [*shape_options(asdict(problem)), "--passes", _passes(record)]
    words += ["--deterministic"] * problem.deterministic + ["--cudagraph"] * problem.cudagraph
    return before + shlex.join([*words, *_conditions(record, environment)])


def documents_of(record: Record, masks: Masks) -> list[int] | None:
    """The lengths of the record's documents; None for a mask without documents, or where the journal does not have them."""
    entry = masks.get((record.built.digest, record.problem.mask))
    return None if entry is None else entry.documents


def plugins_of(record: Record, environment: Environment) -> list[str]:
    """The files that the record's kernel, method or mask was loaded from, as the user typed them. A file without names is one that every
    rank loaded."""
    wanted, on_ranks = {record.kernel, *words_in(record.problem.mask)}, record.level is LevelName.CP
    return [file for file, names in environment.plugins.items() if wanted & set(names) or (on_ranks and not names)]


def _kernel_options(record: Record) -> list[str]:
    words, split, ranks = ["longca", "run"], record.split, record.problem.ranks
    if split:
        words += ["--level", "cp", "--methods", split.method, "--nproc", str(ranks), "--grid", split.grid]
        if (sharing := record.problem.sharing) is not None:
            words += ["--ranks-per-gpu", str(sharing.ranks)] + (["--pretend-nodes", str(sharing.nodes)] if sharing.nodes > 1 else [])
        if told := _all_options(split.method, ranks, split.options):
            words += ["--option", told]
    return [*words, "--kernels", record.asked]


def _all_options(method: str, ranks: int, options: str) -> str:
    """The options of a record, with those that it does not tell because they are the method's, where a run would choose others."""
    from longca.parallel import options as method_options
    from longca.parallel import registry as methods

    if method not in methods.names():
        return options
    own, given = methods.get(method), method_options.parse(options)
    usual = {option.name: option.default for option in own.options}
    missing = {name: value for name in own.default_options(1, ranks, ranks) if name not in given and (value := usual[name]) is not None}
    return ",".join(f"{name}={value}" for name, value in sorted((given | missing).items()))


def _mask_options(problem: Problem, seeds: Sequence[int]) -> list[str]:
    chosen = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
    return ["--masks", problem.mask, "--seqlens", format_size(problem.seqlen), *chosen, *drawing_options(problem)]


def drawing_options(problem: Problem) -> list[str]:
    """The options that say with which parameters a mask is made and how it is drawn, as all verbs have them."""
    words = [word for name, value in problem.params for word in ("--set", f"{name}={value}")]
    source = None if problem.source == "random" else problem.source
    given = {"source": source, "distribution": problem.distribution, "packing": problem.packing}
    return words + [word for name, value in given.items() if value for word in (f"--{name}", value)]


def _passes(record: Record) -> str:
    """The passes to ask for: a forward of training is planned beside a backward."""
    return "fwd,bwd" if record.planned_grad and record.problem.pass_ is Pass.FWD else record.problem.pass_.value


def _conditions(record: Record, environment: Environment) -> list[str]:
    """The options that do not depend on the record's shape. A kernel with quadratic memory runs on long sequences only with --full."""
    words = ["--device", "cpu"] if environment.on_cpu else []
    longest = parse_size(str(environment.limits.get("quadratic") or Limits().quadratic))
    long = record.status is not Status.SKIPPED and record.problem.seqlen > longest
    if long and _quadratic(record.asked, record.problem.mask):
        words.append("--full")
    words += _clock_options(environment)
    return words + [word for file in plugins_of(record, environment) for word in ("--plugin", file)]


def _clock_options(environment: Environment) -> list[str]:
    """The settings that differ from those of a plain run; unknown ones are ignored."""
    values = ((name, environment.clock.get(name), usual) for name, usual in USUAL_CLOCK.items())
    other = [f"{name}={value}" for name, value, usual in values if isinstance(value, int | float) and value != usual]
    return ["--clock", ",".join(other)] if other else []


@lru_cache(maxsize=1024)
def _quadratic(label: str, mask: str) -> bool:
    """Whether a kernel's memory grows with the square of the length on this mask."""
    try:
        answers = [kernel.supports(_sample(mask), Case(SAMPLE_LENGTH, SAMPLE_LENGTH, 1, 1, 64, 64)) for kernel in registry.choices(label)]
    except LongcaError:  # a kernel or a mask that is not here
        return False
    return any(isinstance(answer, Yes) and answer.quadratic for answer in answers)


@lru_cache(maxsize=1024)
def _sample(mask: str) -> known_masks.AnyMask:
    """A small mask of this name. It is one object for all kernels, so that what they ask of it is computed once."""
    return known_masks.build(mask, SAMPLE_LENGTH)
