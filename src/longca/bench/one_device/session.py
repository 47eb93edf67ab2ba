"""What a worker keeps between jobs: the device, the timer, the mask and the reference of the current problem."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from longca.bench.check.own_memory import REFERENCE, memory_for
from longca.bench.clock.clock import Call, Timer, Timing, measure
from longca.bench.clock.telemetry import CallEnergy, Telemetry, energy_of_call, telemetry_for
from longca.bench.clock.timers import timer_for
from longca.bench.one_device.compiled_code import CompiledGraphs
from longca.bench.one_device.messages import Chosen, WorkerJob
from longca.bench.plan.cell import Cell
from longca.bench.run.outcomes import CellFailed, drop_frames
from longca.bench.run.retry import Suspect
from longca.errors import Refused
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.results.metrics import reference_clock
from longca.results.problem import Problem
from longca.results.record import Outcome, Status
from longca.results.settings import ClockSettings

if TYPE_CHECKING:
    from longca.bench.check.reference import Reference
    from longca.bench.check.reference_store import ReferenceStore
    from longca.bench.check.verdict import Verdict
    from longca.bench.one_device.job import PassTimer
    from longca.bench.one_device.torch_state import TorchState
    from longca.kernels.inputs import Inputs

DRAWN_ROWS = 16  # per timed pass: a kernel that leaves out every tenth row is found with 81 % in one cell


class Session:
    """torch is imported only when the first kernel really runs, so that refusals cost nothing."""

    def __init__(
        self,
        phase: Callable[[str], None],
        device_model: str,
        own_process: bool = True,
        tell_outcome: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self.phase, self.device_model = phase, device_model  # `phase` tells the run which deadline applies now
        self.tell_outcome = tell_outcome  # tells the run the outcome that counts if the process breaks from now on
        self._own_process = own_process  # False: the user's, whose garbage is not ours
        self.quadratic: int | None = None
        self.clock = ClockSettings()
        self.device_lost = self._all_rows = False
        self.slow_plans: dict[str, float] = {}  # milliseconds, of kernels that take about as long to prepare a second time as the first
        self.tried: dict[tuple[str, Case], Verdict | None] = {}  # verdicts of a short trial, by label and shape; None: it could not run
        self.graphs = CompiledGraphs()
        self.held: tuple[Cell, PassTimer] | None = None  # a prepared kernel that the next job times again
        self._given_up: dict[Suspect, Outcome] = {}
        self._cache: Path | None = None  # where other workers look for references
        self._timer: Timer | None = None
        self._telemetry: Telemetry | None = None
        self._references: ReferenceStore | None = None
        self._problem: tuple[Problem, AnyMask, float] | None = None
        self._cuda: Any = None
        self._usual: TorchState | None = None  # torch's settings before any kernel ran

    def configure(self, job: WorkerJob) -> None:
        self.clock, self.quadratic, self._all_rows = job.clock, job.quadratic, job.all_rows
        self._cache = Path(job.cache) if job.cache else None
        self._given_up = dict(job.given_up)
        if "torch" in sys.modules:
            self._keep_settings()

    def _keep_settings(self) -> None:
        from longca.bench.one_device.torch_state import TorchState

        self._usual = self._usual or TorchState()

    def choose(self, label: str, grad: bool) -> Chosen:
        """The message that names the variant which runs now; raises CellFailed for one that is given up."""
        variant = Suspect(label, grad)
        if outcome := self._given_up.get(variant):
            raise CellFailed(outcome.status, outcome.reason)
        return Chosen(variant)

    def start_device(self, device: str) -> None:
        if self._timer is not None:
            return
        import torch

        from longca.bench.check.reference_store import ReferenceStore

        self._keep_settings()
        if self._own_process:
            gc.freeze()  # what torch brought stays; looking through it after every job would cost more than a small job
        self._cuda = torch.cuda if device == "cuda" else None
        self._timer = timer_for(device)
        self._telemetry, self._references = telemetry_for(device), ReferenceStore()

    def synchronize(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize()

    def allocated(self) -> int:
        return int(self._cuda.memory_allocated()) if self._cuda is not None else 0

    def time(self, call: Call, before: Call) -> tuple[int | None, Timing]:
        """The most bytes that one call needs beyond what is allocated, and its times, each after an untimed `before`; the call that shows
        the bytes warms up for the times."""
        assert self._timer is not None
        peak_bytes, loaded_s = self._peak(call)
        return peak_bytes, measure(call, self._timer, self.clock, loaded_s, before, reference_clock(self.device_model))

    def _peak(self, call: Call) -> tuple[int | None, float]:
        """The bytes, and for how long the device was certainly loaded: while the host only waited. Neither is known on a CPU."""
        if self._cuda is None:
            return None, 0.0
        self._cuda.synchronize()
        self._cuda.reset_peak_memory_stats()
        before = self.allocated()
        call()
        start = perf_counter()
        self._cuda.synchronize()
        return int(self._cuda.max_memory_allocated()) - before, perf_counter() - start

    def energy(self, call: Call) -> CallEnergy | None:
        if self._telemetry is None or self.clock.energy_s <= 0:
            return None
        return energy_of_call(call, self.synchronize, self._telemetry, self.clock.energy_s)

    def mask(self, cell: Cell, digest: str) -> AnyMask:
        """The mask of a problem: made once for all kernels that this worker runs on it."""
        if self._problem is None or self._problem[0] != cell.problem.every_pass:
            self._problem = None  # a large pattern is dropped before the next one is made
            start = perf_counter()
            mask = cell.problem.build_mask()
            if mask.digest != digest:
                raise CellFailed(Status.ERROR, f"the worker built another mask ({mask.digest}) than was planned ({digest})")
            self._problem = cell.problem.every_pass, mask, (perf_counter() - start) * 1e3
        return self._problem[1]

    @property
    def build_ms(self) -> float | None:
        """The milliseconds that the current mask took to make."""
        return self._problem[2] if self._problem else None

    def reference(self, mask: AnyMask, case: Case, seed: int) -> Reference:
        self.phase("reference")
        assert self._usual is not None
        assert self._references is not None
        # other kernels are checked against it too, and this one may have changed torch's settings
        with self._usual.instead(), memory_for(REFERENCE):
            try:
                return self._references.get(mask, case, seed, self._cache, all_rows=self._all_rows)
            except OSError:  # somebody removed the cache: this worker computes the reference for itself
                return self._references.get(mask, case, seed, None, all_rows=self._all_rows)

    def short_reference(self, mask: AnyMask, case: Case, seed: int) -> Reference:
        """The reference of a trial beside that of the problem, which is kept."""
        from longca.bench.check.reference import reference

        assert self._usual is not None
        with self._usual.instead(), memory_for(REFERENCE):
            return reference(mask, case, seed)

    def drawn_rows(self, mask: AnyMask, case: Case, inputs: Inputs) -> Reference:
        """The reference of rows that nobody could know before they are drawn."""
        from numpy.random import default_rng

        from longca.bench.check.reference import reference_of_rows

        assert self._usual is not None
        rows = default_rng().choice(case.seqlen_q, min(DRAWN_ROWS, case.seqlen_q), replace=False)
        rows.sort()
        with self._usual.instead():
            return reference_of_rows(mask, case, inputs, rows)

    def after_error(self, error: BaseException) -> None:
        """Drops the error's frames and recovers. A refusal broke nothing, and what it held goes with its frames."""
        drop_frames(error)
        if not isinstance(error, Refused):
            self.recover()

    def recover(self) -> None:
        """Frees memory after a call that raised, and sets `device_lost` where the device does not answer any more."""
        gc.collect()
        if self._cuda is None:
            return
        try:
            self._cuda.synchronize()
            self._cuda.empty_cache()
        except Exception:  # any answer but success means that the context is lost
            self.device_lost = True

    def end_job(self) -> None:
        """Restores torch's settings for the next kernel. Gives the device's memory back where another worker, or a library that allocates
        past torch, may need it: taking it again costs some time for every tensor."""
        if self._usual is not None and self.held is None:
            self._usual.restore()
        if self._cuda is not None and not self.device_lost and (self._cache is not None or self._crowded()):
            self._cuda.empty_cache()

    def end_problem(self) -> None:
        """Drops the mask and the reference, and gives the device's memory back."""
        self._problem = self.held = None
        if self._references is not None:
            self._references.forget()
        if self._cuda is not None and not self.device_lost:
            self._cuda.empty_cache()

    def _crowded(self) -> bool:
        free, total = self._cuda.mem_get_info()
        return bool(free < total / 2)
