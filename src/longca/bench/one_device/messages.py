"""What a run and its workers say to each other: typed, so that a malformed message costs its cell and nothing else."""

from __future__ import annotations

import msgspec

from longca.bench.check.trial_names import TrialName
from longca.bench.plan.catalogue import Entry
from longca.bench.plan.cell import Cell
from longca.bench.run.retry import Suspect
from longca.results.problem import Pass
from longca.results.record import Outcome
from longca.results.settings import ClockSettings

Offers = dict[str, Entry]  # the kernels of a plugin, by label


class Hello(msgspec.Struct):
    """The first message to a worker. It starts the device at once where `device_model` is given: that takes seconds on a GPU."""

    device: str
    device_model: str = ""
    plugin: str | None = None
    masks: list[str] = []  # files with masks of the user's own


class WorkerJob(msgspec.Struct, kw_only=True):
    """The passes of one kernel on one problem; without cells: drop what is kept for the last problem."""

    cells: list[Cell] = []
    digest: str = ""  # of the mask that was planned
    timed: bool = True  # False: check only
    compile_only: bool = False  # call the kernel once, for the code that its library keeps on disk; there are no answers
    repeats: int = 1  # of the check on each data set
    all_rows: bool = False  # are compared
    trial: TrialName | None = None  # in place of the check on the mask of the cells
    reference_grad: bool = True
    holds: bool = False  # keep the kernel prepared: the next job on these cells only times them again
    traces: str | None = None  # the folder for traces of torch's profiler; None: nothing is profiled
    clock: ClockSettings = ClockSettings()
    quadratic: int | None = None  # longest sequence for memory in O(S²); None: any
    cache: str | None = None  # folder in which workers share references
    given_up: list[tuple[Suspect, Outcome]] = []  # variants that are not tried again, and the outcome of their cells


class Chosen(msgspec.Struct, tag="chosen"):
    """The variant that runs now: it is blamed if the process breaks."""

    variant: Suspect


class Answer(msgspec.Struct, tag="answer"):
    """The outcome of one pass."""

    pass_: Pass
    outcome: Outcome


class Provisional(msgspec.Struct, tag="provisional"):
    """The outcome of all passes without an answer if the process breaks from now on: a kernel was wrong, and is called again."""

    outcome: Outcome


class Spent(msgspec.Struct):
    """Where time goes: a GPU kernel, or an operation on a CPU, how often it runs in a call, and its milliseconds per call."""

    name: str
    count: float
    ms: float


class Profiled(msgspec.Struct, tag="profiled"):
    """Where the time of one pass goes, and the file with the trace."""

    pass_: Pass
    spent: list[Spent]
    trace: str


class DeviceLost(msgspec.Struct, tag="device_lost"):
    """The device does not work any more in this process."""

    reason: str = ""


Reply = Chosen | Answer | Provisional | Profiled | DeviceLost
