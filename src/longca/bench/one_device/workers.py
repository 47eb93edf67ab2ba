"""The workers of a run: one per kernel, started when first needed, replaced when broken."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from longca.bench.check.trial_names import TrialName
from longca.bench.check.verdict import LATER
from longca.bench.one_device.ahead import Compilers, number_of_compilers
from longca.bench.one_device.messages import Answer, Chosen, Hello, Offers, Profiled, Provisional, Reply, WorkerJob
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.jobs import Job
from longca.bench.plan.suite import Suite
from longca.bench.run.retry import Executor, Suspect, waiting
from longca.masks import own
from longca.processes import host_memory
from longca.processes.child import Child
from longca.processes.lost import ChildLost
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from longca.results.settings import Limits
from longca.text import with_remark

if TYPE_CHECKING:
    from longca.bench.one_device.in_process import InProcess

SERVICE = "longca.bench.one_device.worker:Worker"
DEVICE_LOST = "it lost its device"
UNASKED = "its process sent a reply that nobody asked for"
UNANSWERED = "its process ended the job without an answer"


def start_worker(limits: Limits, hello: Hello) -> Child:
    memory = host_memory.limit(limits.memory)
    # a CUDA context maps more than any limit on a CPU allows; there only the resident size is watched
    data_limit = memory if hello.device == "cpu" else 0
    deadlines = {"start": limits.start_s, "build": limits.build_s, "reference": limits.build_s}
    deadlines |= {"check": limits.check_s, "time": limits.time_s}
    return Child(SERVICE, msgspec.to_builtins(hello), deadlines, memory=memory, data_limit=data_limit, ready_type=Offers, reply_type=Reply)


MEASURING = WorkerJob()
Start = Callable[[Limits, Hello], "Child | InProcess"]


class Workers(Executor):
    """Only one worker is busy at a time, so that they do not disturb each other's times."""

    def __init__(
        self,
        suite: Suite,
        catalogue: Catalogue,
        device: str,
        device_model: str,
        cache: Path,
        full: bool,
        settings: WorkerJob = MEASURING,
        show_output: Callable[[str, str], None] | None = None,
        start: Start | None = None,
    ) -> None:
        """`settings` are those of every job. `show_output` gets the name of a kernel of a plugin, and what it printed during a job; `start`
        starts a worker, in a process of its own where it is not given."""
        super().__init__()
        self.profiled, self._show_output, self._start = dict[Pass, Profiled](), show_output, start or start_worker
        self._suite, self._catalogue, self._device, self._model = suite, catalogue, device, device_model
        # a worker that does everything itself keeps references in memory: nobody would read them from the disk
        alone = suite.limits.workers == "one" and not any(entry.plugin for entry in catalogue.entries.values())
        quadratic = None if full else suite.quadratic_length
        self._settings = replace(settings, clock=suite.clock, quadratic=quadratic, cache=None if alone else str(cache))
        self._workers: dict[str, Child | InProcess] = {}
        self._compilers: Compilers | None = None

    def start(self, jobs: Iterable[Job]) -> None:
        """Starts the workers of these jobs together: on a GPU each takes many seconds, most of them waiting. Compilers start, too."""
        ours = list[Job]()
        for job in jobs:
            entry = self._catalogue.entries[job.cell.kernel]
            if self._name(job, entry) not in self._workers:
                self._spawn(self._name(job, entry), entry)
            ours += [job] if entry.plugin is None else []
        number = number_of_compilers() if self._start is start_worker and self._device == "cuda" else 0
        hello = Hello(self._device, masks=list(own.files()))
        self._compilers = Compilers(ours, lambda: start_worker(self._suite.limits, hello), number)

    def attempt(self, job: Job, trial: TrialName | None = None) -> Iterator[tuple[Pass, Outcome]]:
        """An outcome for every pass of the job; with `trial`, the outcome of that trial of its kernel. Where the worker dies, loses its
        device, which is the same to all jobs after it, or answers what nobody asked for (a kernel can write to its worker's channel), the
        passes without an answer get that outcome; a kernel that was found wrong before stays wrong."""
        entry, suspect, left = self._catalogue.entries[job.cell.kernel], Suspect(job.cell.kernel, job.cell.grad), job.passes
        others = self.strikes.given_up().get(suspect)
        if others is not None:
            yield from ((pass_, others) for pass_ in left)
            return
        name, ran, failed = self._name(job, entry), False, Outcome(status=Status.ERROR, reason=DEVICE_LOST)
        wrong: Outcome | None = None
        try:
            with closing(self._replies(name, entry, job, trial)) as replies:
                for reply in replies:
                    if isinstance(reply, Answer):
                        if reply.pass_ not in left:
                            raise ChildLost("error", UNASKED)
                        left.remove(reply.pass_)
                        failed = failed if reply.outcome.status is Status.OK else reply.outcome
                        yield reply.pass_, reply.outcome
                    elif isinstance(reply, Chosen):
                        if reply.variant != suspect:
                            self.strikes.answered(suspect)  # from now on the variant is blamed
                        suspect, ran = reply.variant, True
                    elif isinstance(reply, Provisional):
                        wrong = reply.outcome
                    elif isinstance(reply, Profiled):
                        self.profiled[reply.pass_] = reply
                    else:
                        raise ChildLost(failed.status, failed.reason)
            if left:
                raise ChildLost("error", UNANSWERED)
            if ran:  # a kernel that refuses a mask has not shown that it can run one
                self.strikes.answered(suspect)
        except ChildLost as gone:
            self._drop(name)
            self.strikes.broke(suspect, Status(gone.status), gone.reason)
            others = Outcome(status=Status(gone.status), reason=gone.reason, grad=job.cell.grad)
            if wrong is not None:
                others = replace(wrong, reason=with_remark(wrong.reason, f"{LATER} {gone.reason}"))
            yield from ((pass_, others) for pass_ in left)

    def _replies(self, name: str, entry: Entry, job: Job, trial: TrialName | None) -> Generator[Reply, None, None]:
        """What the worker of this name says about a job; it is started first where there is none."""
        if name not in self._workers:
            self._spawn(name, entry)
        worker = self._workers[name]

        def tell(phase: str, deadline_s: float) -> None:
            self.say(waiting(job.cell, phase, deadline_s, trial or ""))

        try:
            worker.silent = tell
            if self._compilers and isinstance(worker, Child):
                self._compilers.reached(job)
                worker.entered = self._compilers.enter
            worker.wait_ready()
            yield from worker.run(msgspec.to_builtins(self._message(job, trial)))
        finally:
            for phase, seconds in worker.take_seconds().items():
                self.spent_s[phase] += seconds
            if self._show_output is not None and entry.plugin is not None and (output := worker.take_output().strip()):
                self._show_output(job.cell.kernel, output)

    def _name(self, job: Job, entry: Entry) -> str:
        """A plugin never shares its worker with kernels of other files: importing it may harm them."""
        return job.worker if entry.plugin is None else f"{job.worker}/{entry.plugin}"

    def _spawn(self, name: str, entry: Entry) -> None:
        self._workers[name] = self._start(self._suite.limits, Hello(self._device, self._model, entry.plugin, list(own.files())))

    def _message(self, job: Job, trial: TrialName | None) -> WorkerJob:
        return replace(
            self._settings,
            cells=[entry.cell for entry in job.planned],
            digest=job.planned[0].mask.digest,
            trial=trial,
            reference_grad=job.reference_grad,
            given_up=[*self.strikes.given_up().items()],
        )

    def release(self, job: Job) -> None:
        name = self._name(job, self._catalogue.entries[job.cell.kernel])
        worker = self._workers.get(name)
        if worker is None:
            return
        try:
            worker.wait_ready()  # where all jobs before this one were skipped, it is still starting
            for _ in worker.run(msgspec.to_builtins(WorkerJob())):
                pass
        except ChildLost:  # it broke after its last answer: the next job gets a new one
            self._drop(name)

    def _drop(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        if self._compilers:
            self._compilers.close()
        for worker in self._workers.values():
            worker.end()  # all together: a process with a CUDA context takes a while
        for name in list(self._workers):
            self._drop(name)
