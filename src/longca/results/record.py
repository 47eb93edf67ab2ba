"""The record: one typed line per cell. This is the only definition of the schema; docs/results.md explains each field.

msgspec reads and writes the structs and names the field where a value is not what the schema says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from longca.errors import unknown

SCHEMA = 2  # raise it when a field changes its meaning

Milliseconds = Annotated[float, Meta(ge=1e-6, le=1e12)]  # a picosecond is no time of a kernel, and 30 years are not either
Size = Annotated[int, Meta(ge=1, le=1 << 40)]
Ranks = Annotated[int, Meta(ge=1, le=1 << 20)]
Options = Annotated[str, Meta(pattern=r"^([^=,]+=-?\d{1,18}(,|$))*$")]  # of a method: stages=4,node=8
Natural = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0, le=1e18)]
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


OK, WRONG = Status.OK, Status.WRONG
AT_FAULT = (Status.WRONG, Status.ERROR, Status.INVALID, Status.TIMEOUT, Status.DOUBTFUL)  # what the end of a run points out
RETRIED = frozenset({*AT_FAULT, Status.OOM, Status.UNAVAILABLE})  # by `--retry failed`
NEVER_RAN = frozenset({Status.UNSUPPORTED, Status.UNAVAILABLE, Status.SKIPPED})


class Pass(StrEnum):
    FWD = "fwd"
    BWD = "bwd"
    BOTH = "fwd+bwd"

    @property
    def parts(self) -> tuple[Pass, ...]:
        """The passes that it consists of."""
        return (Pass.FWD, Pass.BWD) if self is Pass.BOTH else (self,)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that it computes."""
        return {"fwd": ("out", "lse"), "bwd": TENSORS[2:], "fwd+bwd": TENSORS}[self.value]


TENSORS = ("out", "lse", "dq", "dk", "dv", "dsinks")


def parse_pass(name: str) -> Pass:
    """The pass that a user typed."""
    if name not in [pass_.value for pass_ in Pass]:
        raise unknown("pass", name, [pass_.value for pass_ in Pass])
    return Pass(name)


class LevelName(StrEnum):
    KERNEL = "kernel"
    SPARSE = "sparse"
    CP = "cp"


class Times(Struct, frozen=True, gc=False):
    """Milliseconds per call. `spread` is the relative half width of the median's 95 % interval; None for a single sample."""

    median: Milliseconds
    p20: Milliseconds
    p80: Milliseconds
    samples: Annotated[list[Milliseconds], Meta(min_length=1)]
    n: int = 0
    spread: NotNegative | None = None
    stop: str = ""  # "target": known well enough; "budget": time ran out; "most": enough samples


class TensorError(Struct, frozen=True, gc=False):
    """The error of the worst token against fp64, and the tolerance there. `error` is None where it is not finite."""

    error: NotNegative | None
    allowed: NotNegative | None

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


class Given(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was asked for and no other field says: with it the same cell can be planned again."""

    params: Params = {}
    distribution: str | None = None
    packing: str | None = None
    documents: bool = False  # document lengths were given; masks.jsonl has them
    grad: bool = False  # a forward that was planned beside a backward


class Outcome(Struct, kw_only=True):
    """What a worker or a group of ranks answers for one pass of one cell. A time exists only where the status is ok."""

    status: Status
    reason: str = ""
    variant: str | None = None
    backward_kind: str | None = None
    chose: str | None = None  # by a kernel that chooses: which kernel runs, or the forward's + the backward's
    grad: bool = True
    check: Check | None = None
    build_ms: NotNegative | None = None
    plan_ms: NotNegative | None = None
    compile_ms: NotNegative | None = None
    ms: Times | None = None
    noisy: bool | None = None
    call_ms: NotNegative | None = None
    host_bound: bool | None = None
    nondeterministic: bool | None = None  # timed calls on the same inputs gave different bits
    tflops: Speed | None = None
    mfu: NotNegative | None = None
    peak_gib: Gib | None = None
    clock_mhz: NotNegative | None = None
    watts: NotNegative | None = None
    joules: NotNegative | None = None
    # context parallelism
    imbalance: NotNegative | None = None
    mean_ms: NotNegative | None = None
    imbalance_ms: NotNegative | None = None
    bytes_sent: list[Natural] | None = None
    peak_gib_ranks: list[Gib] | None = None
    wait_share: float | None = None
    exposed_share: NotNegative | None = None  # of the time, that ranks wait for bytes under way
    hidden_share: NotNegative | None = None  # of the time of transfers, that runs beside compute


class Record(Outcome, kw_only=True):
    """One line of a journal: what was asked for, what it was measured with, and the outcome."""

    schema: int
    key: str
    env: str
    level: LevelName
    kernel: str
    asked: str
    mask: str
    params: Params
    mask_digest: str
    seed: Natural
    seqlen: Size
    heads_q: Size
    heads_kv: Size
    head_dim: Size
    head_dim_v: Size
    dtype: str
    deterministic: bool
    pass_: Pass = field(name="pass")
    source: str | None = None
    seqlen_q: Size | None = None
    seqlen_k: Size | None = None
    given: Given = Given()
    area: Natural | None = None
    flops: Annotated[int, Meta(ge=1)] | None = None
    versions: dict[str, str] | None = None  # packages, and `code`
    method: str | None = None
    ranks: Ranks | None = None
    grid: str | None = None
    options: Options | None = None  # of the method, where they differ from its defaults
    simulated: str | None = None
    softcap: NotNegative = 0.0  # 0: scores are not capped
    sinks: bool = False
    scale: float = 0.0  # 0: 1/sqrt(head_dim)

    def __post_init__(self) -> None:
        if self.status is Status.OK and (self.ms is None or self.tflops is None or self.flops is None):
            missing = next(name for name in ("ms", "tflops", "flops") if getattr(self, name) is None)
            raise ValueError(f"the status is ok, but the record has no {missing}")
        if self.heads_q % self.heads_kv:
            raise ValueError(f"{self.heads_q} query heads are not a multiple of {self.heads_kv} KV heads")

    @property
    def ok(self) -> bool:
        return self.status is OK

    @property
    def times(self) -> Times:
        """The times of a record that has them: one whose status is ok."""
        assert self.ms is not None
        return self.ms

    @property
    def speed(self) -> float:
        """TFLOP/s of a record whose status is ok; over many ranks of each of them."""
        assert self.tflops is not None
        return self.tflops

    @property
    def label(self) -> str:
        """The kernel with the variant that ran."""
        return f"{self.kernel}:{self.variant}" if self.variant else self.kernel

    @property
    def split_name(self) -> str:
        """The method with its grid and its options; empty on one device."""
        return " ".join(part for part in (self.method, self.grid, self.options) if part) if self.method else ""

    @property
    def pattern_source(self) -> str:
        return self.source or "random"


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
