"""From the arguments of `longca run` to the suite that they ask for; refuses what makes no sense."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from longca.errors import BadInput, Unavailable, unknown
from longca.text import parse_axes, parse_list, parse_settings, short

if TYPE_CHECKING:
    from longca.bench.plan.suite import Suite
    from longca.results.record import Status

STEPS_SAY = ("masks", "seqlens", "seeds", "set", "distribution", "packing", "dense")  # what a workload says itself
CP_ONLY = ("methods", "nproc", "grid")
MOST_S = 1e7  # seconds: four months
MOST_RANKS = 1 << 20
DIGITS = 18  # of a seed
LISTS = ("kernels", "masks", "dense", "seqlens", "heads", "head_dims", "dtypes", "passes", "methods")


def add_shape_extras(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for what some models have beside heads and head sizes."""
    parser.add_argument("--softcap", type=float, metavar="C", help="cap scores: s becomes C * tanh(s / C), such as 50 for Gemma 2")
    parser.add_argument("--sinks", action="store_true", default=None, help="attention sinks: a learned logit per query head, as in gpt-oss")
    parser.add_argument("--scale", type=float, metavar="X", help="what scores are multiplied by (default 1/sqrt(head size))")


def resolve(args: argparse.Namespace) -> Suite:
    """The suite that the command line asks for."""
    from msgspec.structs import replace

    from longca.bench.plan import suite as suites
    from longca.bench.plan.workload import with_model
    from longca.results.record import LevelName, parse_pass

    level = LevelName(args.level) if args.level else LevelName.CP if args.methods else None
    if args.suite is None and args.kernels is None and args.methods is None and not args.plugin and level is not LevelName.CP:
        raise BadInput(f"name a suite ({', '.join(suites.names())}, or a TOML file), or give --kernels.")
    suite = suites.find(args.suite) if args.suite else suites.Suite()
    if args.model:
        suite = with_model(suite, args.model)
    lists: dict[str, Any] = {name: tuple(parse_list(getattr(args, name))) for name in LISTS if getattr(args, name) is not None}
    if "passes" in lists:
        lists["passes"] = tuple(map(parse_pass, lists["passes"]))
    suite = suite.changed(
        **lists, seeds=_seeds(args.seeds), distribution=args.distribution, packing=args.packing, deterministic=args.deterministic
    ).changed(level=level, nproc=args.nproc, grid=args.grid, source=args.source, softcap=args.softcap, sinks=args.sinks, scale=args.scale)
    suite = suites.with_params(suite, parse_axes(args.set))
    if args.nproc is not None and not 1 <= args.nproc <= MOST_RANKS:
        bound = "1 rank or more" if args.nproc < 1 else f"{MOST_RANKS} ranks or fewer"
        raise BadInput(f"--nproc must be {bound}, not {args.nproc}; leave it out for one per GPU.")
    for flag in ("budget", "energy", "deadline", "stop_after"):
        _refuse_no_seconds(flag, getattr(args, flag))
    suite = suites.with_clock(suite, clock_settings(args))
    limits = {name: value for name, value in (("memory", args.memory), ("workers", args.workers)) if value is not None}
    suite = suite.changed(limits=replace(suite.limits, **limits).with_deadline(args.deadline))
    suites.check(suite)
    _refuse_conflicts(args, suite)
    return suite


def _refuse_conflicts(args: argparse.Namespace, suite: Suite) -> None:
    """Refuses flags that would have no effect."""
    from longca.bench.clock.telemetry import LEAST_S

    beside = [f"--{name}" for name in STEPS_SAY if args.workload is not None and getattr(args, name) not in (None, [])]
    if beside:
        raise BadInput(
            f"a workload says its masks and lengths itself, so it takes no {' and no '.join(beside)}; leave out one or the other."
        )
    ranks = [f"--{name}" for name in CP_ONLY if str(suite.level) != "cp" and getattr(args, name) is not None]
    if ranks:
        raise BadInput(f"{' and '.join(ranks)} {'is' if len(ranks) == 1 else 'are'} for context parallelism; add --level cp, or leave out.")
    energy_s = clock_settings(args).get("energy_s")
    if energy_s and suite.level == "cp":
        raise BadInput("--energy is measured for kernels on one device, not for context parallelism; leave it out.")
    if energy_s and energy_s < LEAST_S:
        raise BadInput(f"--energy must be {LEAST_S:g} second or more, not {energy_s:g}; energy is counted over that long at least.")


def refuse_energy(device: str) -> None:
    from importlib.util import find_spec

    if device == "cpu":
        raise BadInput("--energy is read from a GPU, and this run is on the CPU; leave it out.")
    if find_spec("pynvml") is None:
        raise Unavailable("--energy is read with pynvml, which is missing: pip install nvidia-ml-py.")


def clock_settings(args: argparse.Namespace) -> dict[str, int | float]:
    """Settings of the clock that were given, by --clock or by a flag of their own."""
    settings = parse_settings(args.clock)
    for flag, name in (("budget", "budget_s"), ("energy", "energy_s")):
        if getattr(args, flag) is not None:
            if name in settings:
                raise BadInput(f"{name} is set twice, by --{flag} and by --clock; give it once.")
            settings[name] = getattr(args, flag)
    return settings


def failing_statuses(text: str | None) -> frozenset[Status]:
    """The statuses of `--fail-on`, all that `--retry failed` would try again for `all`."""
    from longca.results.record import RETRIED, Status

    names = parse_list(text or "")
    known = sorted(status.value for status in RETRIED)
    for name in names:
        if name not in (*known, "all"):
            raise unknown("status for --fail-on", name, [*known, "all"])
    return RETRIED if "all" in names else frozenset(map(Status, names))


def _refuse_no_seconds(flag: str, value: float | None) -> None:
    if value is not None and not 0 < value <= MOST_S:
        raise BadInput(f"--{flag.replace('_', '-')} must be a number of seconds over 0, not {value:g}; give {MOST_S:g} at most.")


def _seeds(text: str | None) -> tuple[int, ...] | int | None:
    from longca.bench.plan.suite import MOST_SEEDS

    if text is None:
        return None
    entries = parse_list(text)
    if not entries or not all(entry.isdecimal() for entry in entries):
        raise BadInput(f"{text!r} are no seeds; write how many, such as 3, or which, such as 42,43.")
    if "," not in text and (len(entries[0]) > DIGITS or int(entries[0]) > MOST_SEEDS):
        raise BadInput(
            f"--seeds {short(text, 40)} asks for too many seeds; ask for {MOST_SEEDS} at most, or for one of them: {short(text, 40)},"
        )
    if any(len(entry) > DIGITS for entry in entries):
        raise BadInput(f"--seeds {short(text, 40)} is too large; seeds have up to {DIGITS} digits.")
    return tuple(map(int, entries)) if "," in text else int(text)
