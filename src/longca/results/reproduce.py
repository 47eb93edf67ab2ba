"""The command that measures a record's cell again: the same mask, shape, pass, seed and ranks, hence the same key where versions agree.

It sets the same clock and as many threads, so that `longca compare` accepts the two journals.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

import msgspec

from longca import masks as known_masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.base import Case, Yes
from longca.masks.by_name import words_in
from longca.results.record import Environment, Environments, Given, LevelName, Masks, Pass, Record, Status
from longca.results.settings import SAMPLE_LENGTH, ClockSettings, Limits
from longca.text import format_size, parse_size, shape_options

STEP = "step.jsonl"  # where a mask with given document lengths is written before it is measured
SHAPE = ("heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "softcap", "sinks", "scale")
_SKIPPED, _FWD = Status.SKIPPED, Pass.FWD  # looked up once: a member of an enum is slow to reach
_shape = attrgetter(*SHAPE)
_condition_fields = attrgetter("env", "level", "kernel", "method", "asked", "mask")
USUAL_CLOCK = msgspec.structs.asdict(ClockSettings())


def command(record: Record, environment: Environment, masks: Masks, seeds: Sequence[int] = ()) -> str:
    """The command to type. `masks` hold the document lengths that were given. `seeds` are those of several records that differ in
    nothing else.

    Empty for a simulated record, which nobody measured, and where the given lengths are not known.
    """
    return " ".join(part for part in Commands({record.env: environment}, masks).parts(record, seeds) if part)


class Commands:
    """The commands of many records, in a few parts that many of them share: what comes before, the kernel, the mask, the shape and the
    passes, the conditions."""

    def __init__(self, environments: Environments, masks: Masks) -> None:
        self._environments, self._masks = environments, masks
        self._conditions: dict[tuple[object, ...], str] = {}

    def parts(self, record: Record, seeds: Sequence[int] = ()) -> tuple[str, ...]:
        """The parts of a record's command, some of which may be empty; none where there is no command."""
        if record.simulated:
            return ()
        environment, before = self._environments.get(record.env) or Environment(), ""
        if record.given.documents:
            lengths = documents_of(record, self._masks)
            if lengths is None:  # a run would draw other lengths
                return ()
            step = {"mask": record.mask, "seqlen": record.seqlen, "seed": record.seed, "params": record.given.params, "documents": lengths}
            before, mask = f"echo {shlex.quote(msgspec.json.encode(step).decode())} > {STEP} &&", f"--workload {STEP}"
        else:
            chosen = tuple(seeds) or (record.seed,)
            mask = _mask_options(record.mask, record.seqlen, chosen, record.pattern_source, _given_options(record.given))
        kernel = _kernel_options(record.asked, environment.threads, record.method, record.ranks, record.grid, record.options)
        options = _shape_options(_shape(record), _passes(record), record.deterministic)
        return before, kernel, mask, options, self._conditions_of(record, environment)

    def _conditions_of(self, record: Record, environment: Environment) -> str:
        long = record.status is not _SKIPPED and record.seqlen > _longest_quadratic(environment.limits.get("quadratic"))
        key = (long, _condition_fields(record))
        conditions = self._conditions.get(key)
        if conditions is None:
            conditions = self._conditions[key] = _conditions(record, environment, long)
        return conditions


def documents_of(record: Record, masks: Masks) -> list[int] | None:
    """The lengths of the record's documents; None for a mask without documents, or where the journal does not have them."""
    entry = masks.get((record.mask_digest, record.mask))
    return None if entry is None else entry.documents


def plugins_of(record: Record, environment: Environment) -> list[str]:
    """The files that the record's kernel, method or mask was loaded from, as the user typed them; placeholders for journals that do not
    keep them. A file without names is one that every rank loaded."""
    on_ranks, in_mask = record.level is LevelName.CP, words_in(record.mask)
    own_masks = [file for file, names in environment.plugins.items() if in_mask & set(names)]
    files = [file for file, names in environment.plugins.items() if record.kernel in names or (on_ranks and not names) or file in own_masks]
    if set(files) - set(own_masks):
        return files
    return own_masks + [f"FILE_WITH_{name}.py" for name in (*_foreign_kernel(record.kernel), *_foreign_method(record.method))]


@lru_cache(maxsize=4096)
def _kernel_options(
    kernel: str, threads: str | int | None, method: str | None, ranks: int | None, grid: str | None, options: str | None
) -> str:
    prefix = f"OMP_NUM_THREADS={shlex.quote(str(threads))} " if threads else ""
    split = ["--level", "cp", "--methods", str(method), "--nproc", str(ranks), "--grid", str(grid)] if method else []
    if method and (told := _all_options(method, ranks or 1, options)):
        split += ["--option", told]
    return prefix + shlex.join(["longca", "run", *split, "--kernels", kernel])


def _all_options(method: str, ranks: int, options: str | None) -> str:
    """The options of a record, with those that it does not tell because they are the method's, where a run would choose others."""
    from longca.parallel import options as method_options
    from longca.parallel import registry as methods

    if method not in methods.names():
        return options or ""
    own, given = methods.get(method), method_options.parse(options or "")
    usual = {option.name: option.default for option in own.options}
    missing = {name: value for name in own.default_options(1, ranks, ranks) if name not in given and (value := usual[name]) is not None}
    return ",".join(f"{name}={value}" for name, value in sorted((given | missing).items()))


@lru_cache(maxsize=4096)
def _mask_options(mask: str, seqlen: int, seeds: tuple[int, ...], source: str, given: tuple[str, ...]) -> str:
    chosen = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
    pattern = ["--source", source] if source != "random" else []
    return shlex.join(["--masks", mask, "--seqlens", format_size(seqlen), *chosen, *given, *pattern])


def _given_options(given: Given) -> tuple[str, ...]:
    if not given.params and not given.distribution and not given.packing:
        return ()
    words = [word for name, value in given.params.items() for word in ("--set", f"{name}={value}")]
    words += ["--distribution", given.distribution] if given.distribution else []
    words += ["--packing", given.packing] if given.packing else []
    return tuple(words)


@lru_cache(maxsize=4096)
def _shape_options(values: tuple[object, ...], passes: str, deterministic: bool) -> str:
    shape = dict(zip(SHAPE, values, strict=True))
    return shlex.join([*shape_options(shape), "--passes", passes, *(["--deterministic"] if deterministic else [])])


def _passes(record: Record) -> str:
    """The passes to ask for: a forward of training is planned beside a backward."""
    return "fwd,bwd" if record.given.grad and record.pass_ is _FWD else record.pass_.value


def _conditions(record: Record, environment: Environment, long: bool) -> str:
    """The options that do not depend on the record's shape. `long`: a kernel with quadratic memory runs only with --full."""
    words = ["--device", "cpu"] if environment.on_cpu else []
    if long and _quadratic(record.asked, record.mask):
        words.append("--full")
    words += _clock_options(environment)
    words += [word for file in plugins_of(record, environment) for word in ("--plugin", file)]
    return shlex.join(words)


@lru_cache(maxsize=1024)
def _longest_quadratic(recorded: str | float | None) -> int:
    try:
        return parse_size(str(recorded or Limits().quadratic))
    except LongcaError:  # a journal of somebody else
        return parse_size(Limits().quadratic)


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


@lru_cache(maxsize=1024)
def _foreign_kernel(name: str) -> tuple[str, ...]:
    """The kernel's name if it does not come with LongCA."""
    return () if name in registry.classes() else (name,)


@lru_cache(maxsize=1024)
def _foreign_method(name: str | None) -> tuple[str, ...]:
    """The method's name if it does not come with LongCA."""
    from longca.parallel import registry as methods

    return () if name is None or name in methods.names() else (name,)
