"""What one device and many devices do differently: which kernels and cells there are, what is refused, and who runs the jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from longca.bench.plan.catalogue import Catalogue
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, make_cells
from longca.bench.plan.suite import Suite
from longca.bench.plan.workload import Step
from longca.bench.run.retry import Executor


class Level(ABC):
    """A suite on a device, with the kernels that it measures."""

    notes: Sequence[str] = ()  # which settings were chosen, for the user
    compile_s = 0.0  # seconds that a kernel needs to compile for a mask that it has not run here before

    def __init__(self, suite: Suite, device: str, catalogue: Catalogue) -> None:
        self.suite, self.device, self.catalogue = suite, device, catalogue

    def cells(self, steps: Sequence[Step]) -> list[Cell]:
        return make_cells(self.suite, self.catalogue.for_all_masks, self.device, steps)

    @abstractmethod
    def admit(self, planned: Sequence[Planned], dry: bool) -> None:
        """Raises where the planned cells make no sense together; a dry run is not refused for what this machine cannot start."""

    def details(self, planned: Sequence[Planned]) -> list[str]:
        """Lines of a dry run about what the plans of cells decided."""
        return []

    @abstractmethod
    def executor(self, device_model: str, cache: Path, full: bool) -> Executor:
        """Who runs the jobs; raises where nothing could be measured on this machine."""
