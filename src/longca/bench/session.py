"""What a worker keeps between jobs: the device, the timer, the reference of the problem at hand; and how it speaks to its parent."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longca.bench.cell import Cell
from longca.bench.clock import Settings, Timer, Timing, measure, timer_for
from longca.bench.compilations import Compilations
from longca.bench.gauge import Gauge, gauge_for, joules_per_call
from longca.bench.outcome import NotTried, forget_frames
from longca.errors import Refused
from longca.kernels.base import Case, Layout
from longca.masks import AnyMask

if TYPE_CHECKING:
    from longca.bench.reference import Reference
    from longca.bench.torch_state import TorchState
    from longca.kernels.inputs import Inputs

Call = Callable[[], object]


class Session:
    """torch is imported only when the first kernel really runs, so that refusals cost nothing."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], device_model: str) -> None:
        self._tell, self.device_model = tell, device_model
        self.quadratic: int | None = None
        self.settings = Settings()
        self.given_up: dict[tuple[str, bool], tuple[str, str]] = {}  # status and reason, by variant and whether with a backward
        self.cache: Path | None = None  # where other workers look for references
        self.fatal = False  # the device will not work again in this process
        self.slow_plans: dict[str, float] = {}  # milliseconds, of kernels that take about as long to prepare a second time as the first
        self._timer: Timer | None = None
        self._gauge: Gauge | None = None
        self._references: Any = None
        self._problem: tuple[Cell, AnyMask, float] | None = None
        self._cuda: Any = None
        self._usual: TorchState | None = None  # torch's settings before any kernel ran
        self.compilations = Compilations()

    def configure(self, job: dict[str, Any]) -> None:
        self.settings, self.quadratic = Settings(**job["clock"]), job["quadratic"]
        self.cache = Path(job["cache"]) if job["cache"] else None
        self.given_up = {(label, grad): (status, reason) for label, grad, status, reason in job["given_up"]}
        if "torch" in sys.modules:
            self._keep_settings()

    def _keep_settings(self) -> None:
        from longca.bench.torch_state import TorchState

        self._usual = self._usual or TorchState()

    def phase(self, name: str) -> None:
        """Tells the parent which deadline runs now."""
        self._tell({"phase": name})

    def chose(self, label: str, grad: bool) -> None:
        """Tells the parent which variant a bare name means, to be blamed for what becomes of this process; not one that is given up."""
        if (label, grad) in self.given_up:
            raise NotTried(*self.given_up[label, grad])
        self._tell({"reply": {"chose": label, "grad": grad}})

    def start_device(self, device: str) -> None:
        if self._timer is not None:
            return
        import torch

        from longca.bench.references import References

        self._keep_settings()
        gc.freeze()  # what torch brought stays; looking through it after every job would cost more than a small job
        self._cuda = torch.cuda if device == "cuda" else None
        self._timer, self._gauge, self._references = timer_for(device), gauge_for(device), References()

    def synchronize(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize()

    def allocated(self) -> int:
        return int(self._cuda.memory_allocated()) if self._cuda is not None else 0

    def time(self, call: Call) -> tuple[int | None, Timing]:
        """The most bytes that one call needs beyond what is there, and its times; the call that shows the first warms up the other."""
        assert self._timer is not None
        peak_bytes, loaded_s = self._peak(call)
        return peak_bytes, measure(call, self._timer, self.settings, self._gauge, warmed_s=loaded_s)

    def _peak(self, call: Call) -> tuple[int | None, float]:
        """The bytes, and for how long the device was loaded for certain: while the host only waited. Nothing of it is known on a CPU."""
        if self._cuda is None:
            return None, 0.0
        self._cuda.synchronize()
        self._cuda.reset_peak_memory_stats()
        before = self.allocated()
        call()
        start = time.perf_counter()
        self._cuda.synchronize()
        return int(self._cuda.max_memory_allocated()) - before, time.perf_counter() - start

    def joules(self, call: Call) -> float | None:
        if self._gauge is None or self.settings.energy_s <= 0:
            return None
        return joules_per_call(call, self.synchronize, self._gauge, self.settings.energy_s)

    def inputs(self, case: Case, seed: int, layout: Layout) -> Inputs:
        from longca.kernels.inputs import make

        return make(case, seed, layout)

    def mask(self, cell: Cell) -> tuple[AnyMask, float]:
        """The mask of a problem and the milliseconds it took to make: once for all kernels that this worker runs on it."""
        if self._problem is None or self._problem[0] != cell.problem:
            self._problem = None  # a large pattern goes before the next one comes
            start = time.perf_counter()
            mask = cell.build_mask()
            self._problem = cell.problem, mask, (time.perf_counter() - start) * 1e3
        return self._problem[1:]

    def reference(self, mask: AnyMask, case: Case, seed: int) -> Reference:
        self.phase("reference")
        assert self._usual is not None
        with self._usual.instead():  # others are checked against it too, and this kernel may have changed some by now
            found: Reference = self._references.get(mask, case, seed, self.cache)
        return found

    def after_error(self, error: BaseException) -> None:
        """Give memory back, and see whether the device still answers. A refusal broke nothing, and what it held goes with its frames."""
        forget_frames(error)
        if isinstance(error, Refused):
            return
        gc.collect()
        if self._cuda is None:
            return
        try:
            self._cuda.synchronize()
            self._cuda.empty_cache()
        except Exception:  # any answer but success means that the context is lost
            self.fatal = True

    def after_job(self, last: bool) -> None:
        """After every job torch's settings are again what they were: the next kernel is another one. After the last job of a problem
        its mask and its reference go. The device's memory is given back then too, and whenever another worker may need it, or a
        library that allocates past torch: taking it again costs some time for every tensor."""
        if self._usual is not None:
            self._usual.restore()
        if last:
            self._problem = None
        if last and self._references is not None:
            self._references.forget()
        if self._cuda is not None and not self.fatal and (last or self.cache is not None or self._crowded()):
            self._cuda.empty_cache()

    def _crowded(self) -> bool:
        free, total = self._cuda.mem_get_info()
        return bool(free < total / 2)
