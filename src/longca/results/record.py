"""The record: one typed line per cell. This is the only definition of the schema; docs/results.md explains each field.

msgspec reads and writes the structs and names the field where a value is not what the schema says. What belongs together is nested and is
present together: `timed` exists only where the status is ok, `over_ranks` only over several ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from longca import masks
from longca.errors import LongcaError
from longca.masks import AnyMask, Mask
from longca.results.problem import Natural, NotNegative, Problem, Size, Split

SCHEMA = 3  # raise it when a field changes its meaning, and convert older records in `schema.py`

Milliseconds = Annotated[float, Meta(ge=1e-6, le=1e12)]  # a picosecond is no time of a kernel, and 30 years are not either
Gib = Annotated[float, Meta(ge=-1e6, le=1e9)]  # a library may free memory during a call, so a little under 0 was seen
Speed = Annotated[float, Meta(gt=0, le=1e9)]
Params = dict[str, int | float]


class Status(StrEnum):
    """What became of a cell. Only `ok` has a time that counts."""

    OK = "ok"
    SKIPPED = "skipped"  # not tried, by a rule that the reason names; --full runs it
    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    OOM = "oom"
    TIMEOUT = "timeout"
    WRONG = "wrong"
    ERROR = "error"
    INVALID = "invalid"  # faster than the device can be
    DOUBTFUL = "doubtful"  # given by readers to an `ok` record that contradicts itself; never written by a run


AT_FAULT = (Status.WRONG, Status.ERROR, Status.INVALID, Status.TIMEOUT, Status.DOUBTFUL)  # what the end of a run points out
RETRIED = frozenset({*AT_FAULT, Status.OOM, Status.UNAVAILABLE})  # by `--retry failed`
NEVER_RAN = frozenset({Status.UNSUPPORTED, Status.UNAVAILABLE, Status.SKIPPED})


class LevelName(StrEnum):
    KERNEL = "kernel"
    SPARSE = "sparse"
    CP = "cp"


class Times(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The times of a call in milliseconds, and what follows from them. `spread` is the relative half width of the median's 95 % interval;
    None for a single sample."""

    median: Milliseconds
    p20: Milliseconds
    p80: Milliseconds
    samples: Annotated[list[Milliseconds], Meta(min_length=1)]
    tflops: Speed  # over many ranks of each of them
    spread: NotNegative | None = None
    stop: str = ""  # "target": known well enough; "budget": time ran out; "most": enough samples
    noisy: bool = False
    mfu: NotNegative | None = None  # share of the device's peak at `at_mhz`, or else at `clock_mhz`
    call_ms: NotNegative | None = None  # how long the host was busy
    host_bound: bool | None = None
    nondeterministic: bool | None = None  # timed calls on the same inputs gave different bits
    clock_mhz: NotNegative | None = None  # of the SMs, during the samples
    clocks: list[Natural] | None = None  # the same, of each sample
    at_mhz: NotNegative | None = None  # the clock that the times are given for; None: as measured

    @property
    def mhz(self) -> float | None:
        """The SM clock that the times are of; None where it was not read."""
        return self.at_mhz or self.clock_mhz

    @property
    def as_measured(self) -> Times:
        """The times as measured, whatever clock they are given for. The share of the peak is the same at every clock."""
        if not self.at_mhz or not self.clocks or len(self.clocks) != len(self.samples):
            return self
        samples = [sample * self.at_mhz / (clock or self.at_mhz) for sample, clock in zip(self.samples, self.clocks, strict=True)]
        by = median(samples) / self.median
        return replace(
            self, median=by * self.median, p20=by * self.p20, p80=by * self.p80, samples=samples, tflops=self.tflops / by, at_mhz=None
        )


Error = Annotated[float, Meta(ge=0)]  # of any size: a wrong lse may be off by more than any bound


class TensorError(Struct, frozen=True, gc=False):
    """The error of the worst token against fp64, and the tolerance there. `error` is None where it is not finite."""

    error: Error | None
    allowed: Error | None

    @property
    def passes(self) -> bool:
        return self.error is not None and self.allowed is not None and self.error <= self.allowed

    @property
    def share(self) -> float:
        """The error as a part of the tolerance: up to 1 passes."""
        if self.error is None or self.allowed is None or (self.error and not self.allowed):
            return math.inf
        return self.error / self.allowed if self.error else 0.0


Check = dict[str, TensorError]


class Memory(Struct, frozen=True, omit_defaults=True):
    """Peak memory of a call above its inputs, on the rank that needs the most. `outside_gib`: what a rank takes of
    its GPU beside torch's allocator, so communicators, the CUDA context and kernels' code; where ranks share a GPU their mean."""

    peak_gib: Gib
    ranks: list[Gib] | None = None
    outside_gib: Gib | None = None


class Energy(Struct, frozen=True, omit_defaults=True):
    """The energy of one call, and the power meanwhile; in older records the power beside the samples alone."""

    watts: NotNegative | None = None
    joules: NotNegative | None = None


class RankFigures(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What several ranks have besides a time. `imbalance` is of their work, `imbalance_ms` of their times."""

    imbalance: NotNegative | None = None
    mean_ms: NotNegative | None = None
    imbalance_ms: NotNegative | None = None
    bytes_sent: list[Natural] | None = None
    wait_share: float | None = None
    compute_share: NotNegative | None = None  # of the time, that compute runs; of traced calls
    exposed_share: NotNegative | None = None  # of the time, that bytes are under way without compute beside them
    hidden_share: NotNegative | None = None  # of the time of transfers, that runs beside compute
    nccl: str | None = None  # the version that ranks had loaded


class Outcome(Struct, kw_only=True, omit_defaults=True):
    """What a worker or a group of ranks answers for one pass of one cell. A time exists only where the status is ok."""

    status: Status
    reason: str = ""
    variant: str | None = None
    backward_kind: str | None = None
    chose: str | None = None  # by a kernel that chooses: which kernel runs, or the forward's + the backward's
    grad: bool = True
    check: Check | None = None
    build_ms: NotNegative | None = None
    select_ms: NotNegative | None = None
    plan_ms: NotNegative | None = None
    compile_ms: NotNegative | None = None
    timed: Times | None = None
    memory: Memory | None = None
    energy: Energy | None = None
    over_ranks: RankFigures | None = None


class BuiltMask(Struct, frozen=True, omit_defaults=True):
    """The mask that was measured. `params` has the drawn parameters too."""

    digest: str
    area: Natural
    seqlen_q: Size
    seqlen_k: Size
    params: Params = {}


class Record(Outcome, kw_only=True):
    """One line of a journal: the cell, what it was measured with, and the outcome."""

    schema: int
    key: str
    env: str
    level: LevelName
    kernel: str
    asked: str
    problem: Problem
    built: BuiltMask
    flops: Annotated[int, Meta(ge=1)]
    versions: dict[str, str] | None = None  # packages, and `code`; None in records before code versions were kept
    split: Split | None = None
    simulated: str | None = None
    planned_grad: bool = False  # of a forward that was planned beside a backward; `grad` is what ran

    def __post_init__(self) -> None:
        if self.status is Status.OK and self.timed is None:
            raise ValueError("the status is ok, but the record has no times")

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def measured(self) -> Problem:
        """The problem with its drawn parameters, however its mask was asked for: together with the mask's digest, what was measured."""
        params = tuple(sorted(self.built.params.items()))
        return replace(self.problem, params=params, documents=None, distribution=None, packing=None)

    @property
    def times(self) -> Times:
        """The times of a record that has them: one whose status is ok."""
        assert self.timed is not None
        return self.timed

    @property
    def speed(self) -> float:
        """TFLOP/s of a record whose status is ok; over many ranks of each of them."""
        return self.times.tflops

    @property
    def noisy(self) -> bool:
        return self.timed is not None and self.timed.noisy

    @property
    def peak_gib(self) -> float | None:
        return self.memory.peak_gib if self.memory else None

    @property
    def label(self) -> str:
        """The kernel with the variant that ran."""
        return f"{self.kernel}:{self.variant}" if self.variant else self.kernel

    @property
    def method(self) -> str | None:
        return self.split.method if self.split else None

    @property
    def split_name(self) -> str:
        """The method with its grid and its options; empty on one device."""
        return f"{self.split.method} {self.split.shape}" if self.split else ""


def comparable(records: Sequence[Record]) -> list[Record]:
    """The records, as measured where their times are given for different clocks."""
    clocks = {record.times.at_mhz for record in records if record.ok}
    return [replace(one, timed=one.times.as_measured) if one.ok and len(clocks) > 1 else one for one in records]


class MaskEntry(Struct, kw_only=True):
    """One line of masks.jsonl: what a mask shows and how it was made. `bands` is None for block patterns."""

    digest: str
    mask: str
    seqlen_q: Size
    seqlen_k: Size
    area: Natural
    bands: list[tuple[int, int, int, int, int, int]] | None
    seed: int | None = None
    params: Params = {}
    documents: list[Natural] | None = None
    source: str | None = None
    heads_q: Size | None = None
    heads_kv: Size | None = None
    head_dim: Size | None = None

    def __post_init__(self) -> None:
        if self.bands is None:
            return
        area = 0
        for q0, q1, lo, a, hi, b in self.bands:
            last = q1 - q0 - 1
            inside = 0 <= q0 < q1 <= self.seqlen_q and 0 <= lo < hi and lo + a * last < hi + b * last <= self.seqlen_k
            if not inside or a not in (0, 1) or b not in (0, 1):
                raise ValueError(f"{q0, q1, lo, a, hi, b} is no band of {self.seqlen_q} queries and {self.seqlen_k} keys")
            area += (last + 1) * (hi - lo) + (b - a) * last * (last + 1) // 2
        if area != self.area:
            raise ValueError(f"the area is {self.area}, but the bands show {area} pairs")

    def rebuilt(self) -> AnyMask | None:
        """The mask: its bands, or blocks drawn from their seed. None for blocks that q and k selected, and for a mask that is not here."""
        if self.bands is not None:
            return Mask.of(self.seqlen_q, self.seqlen_k, self.bands)
        params: dict[str, Any] = self.params
        try:
            mask = masks.build(self.mask, self.seqlen_q, seed=self.seed or 0, **params)
        except (LongcaError, TypeError, KeyError, ValueError, OverflowError):
            return None
        return mask if mask.digest == self.digest else None


class Environment(Struct, kw_only=True):
    """One entry of env.json: the machine, the versions and the settings that a figure depends on."""

    device: str | None = None
    device_kind: str | None = None
    gpus: int | None = None
    gpu_memory_mib: str | int | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    application_sm_mhz: float | None = None
    application_memory_mhz: float | None = None
    cpu: str | None = None
    cores: int | None = None
    threads: str | int | None = None
    system: str | None = None
    python: str | None = None
    longca: str | None = None
    commit: str | None = None
    changed: bool | None = None
    packages: dict[str, str] = {}
    plugins: dict[str, list[str]] = {}
    clock: dict[str, float | int | str] = {}
    limits: dict[str, float | int | str] = {}
    date: str | None = None

    @property
    def name(self) -> str:
        return self.device or "unknown device"

    @property
    def on_cpu(self) -> bool:
        return self.device_kind == "cpu"

    @property
    def memory_gib(self) -> float | None:
        """The memory of a GPU; None on a CPU, and where the driver did not tell."""
        try:
            return None if self.gpu_memory_mib is None else float(self.gpu_memory_mib) / 1024
        except ValueError:  # [N/A]
            return None

    @property
    def warmup_s(self) -> float | None:
        value = self.clock.get("warmup_s")
        return float(value) if isinstance(value, int | float) else None


Masks = Mapping[tuple[str, str], MaskEntry]  # by digest and name: masks that show the same may be made otherwise
Environments = Mapping[str, Environment]
