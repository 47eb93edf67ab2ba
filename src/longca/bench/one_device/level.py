"""The level of kernels on one device, dense or block-sparse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from longca.bench.one_device.ahead import number_of_compilers
from longca.bench.one_device.compiled_code import is_cold
from longca.bench.one_device.messages import Hello
from longca.bench.one_device.workers import Start, Workers, start_worker
from longca.bench.plan.catalogue import Entry, make_catalogue
from longca.bench.plan.cells import Planned
from longca.bench.plan.estimate import COMPILE_S
from longca.bench.plan.suite import Suite
from longca.bench.run.level import Level
from longca.errors import BadInput, Unavailable
from longca.kernels import registry
from longca.kernels.base import No
from longca.plugins import refuse_twice
from longca.processes.lost import ChildLost
from longca.results.settings import Limits


class OneDevice(Level):
    def __init__(self, suite: Suite, device: str, plugins: Sequence[str] = (), only_named: bool = False, in_process: bool = False) -> None:
        """With `only_named` the kernels of plugins are measured only where the suite names them; with `in_process` this process is the
        worker."""
        self.start: Start = start_worker
        if in_process:
            from longca.bench.one_device.in_process import InProcess

            self.start = InProcess
        offered = offered_by(plugins, device, suite.limits, self.start)
        super().__init__(suite, device, make_catalogue(suite, offered, device, only_named))
        if device == "cuda" and is_cold():
            self.compile_s = COMPILE_S / (1 + number_of_compilers())

    def admit(self, planned: Sequence[Planned], dry: bool) -> None:
        """Admits everything: kernels are tried, and each record says what became of its cell."""

    def executor(self, device_model: str, cache: Path, full: bool) -> Workers:
        self._refuse_nothing_runs()
        return Workers(self.suite, self.catalogue, self.device, device_model, cache, full, start=self.start)

    def _refuse_nothing_runs(self) -> None:
        """Raises where every cell would be `unavailable`."""
        missing = dict[str, str]()
        for label, entry in self.catalogue.entries.items():
            answers = [registry.available(kernel, self.device) for kernel in registry.choices(label)] if entry.plugin is None else []
            reasons = [answer.reason for answer in answers if isinstance(answer, No)]
            if not answers or len(reasons) < len(answers):
                return
            missing[label] = reasons[0]
        if missing:
            raise Unavailable(f"none of the kernels runs here: {'; '.join(f'{label}: {why}' for label, why in missing.items())}.")


def offered_by(paths: Sequence[str], device: str, limits: Limits, start: Start = start_worker) -> dict[str, Entry]:
    """The kernels of plugins by label; a file that cannot be loaded is refused. A worker loads each file, and no run does that has other
    processes: importing one may do anything."""
    offered = dict[str, Entry]()
    for path in paths:
        if not Path(path).is_file():
            raise BadInput(f"there is no plugin file {path}; give the path of a Python file with a kernel in it.")
        try:
            with closing(start(limits, Hello(device, plugin=path))) as worker:
                offers = worker.wait_ready()
        except ChildLost as lost:
            words = lost.reason.rstrip(".")
            raise BadInput(f"{words}." if path in words else f"the plugin {path} cannot be loaded: {words}.") from lost
        loaded = {entry.name: entry.plugin for entry in offered.values() if entry.plugin}
        refuse_twice((label.partition(":")[0] for label in offers), loaded, path, "kernel")
        offered |= offers
    return offered
