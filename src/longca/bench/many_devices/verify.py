"""Checking methods without timing them, and measuring the transfers between their ranks: what a new cluster is tried with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from longca import devices
from longca.bench.many_devices import kit
from longca.bench.many_devices.grids import ranks_of, sharing_of
from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.ranks import Ranks
from longca.bench.many_devices.transfers import RankFacts, RankPlace, TransferTime, measure_transfers, places
from longca.bench.one_device.compiled_code import keep_on_disk
from longca.bench.one_device.verify import FAILED, Finding, finding, make_step
from longca.bench.plan.cells import mask_of, plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.plugins import load_masks
from longca.bench.plan.request import LocalRequest, Texts, refuse_no_ranks, refuse_several_values, suite_of
from longca.bench.plan.suite import Suite, check
from longca.bench.plan.workload import Step
from longca.bench.run.retry import outcomes, say_nothing
from longca.errors import LongcaError
from longca.parallel.grid import default_windows, divisors
from longca.processes.ranks import RankFailed
from longca.results.problem import Pass
from longca.results.record import LevelName, Outcome, Status
from longca.results.settings import Limits
from longca.results.shown import Part, Shown
from longca.text import parse_heads, parse_size, plural

ODD_MASKS = ("causal", "share_question", "block_causal_document")  # those that are checked at a length that divides by nothing, too
TOKENS_PER_RANK = {"cpu": 64, "cuda": 1024}
SHAPES = {"cpu": ("8:4", "32", "fp32"), "cuda": ("64:8", "128", "bf16")}  # heads, head size, dtype


@dataclass(frozen=True)
class CpRequest(LocalRequest):
    """What to check; None means the usual."""

    methods: Texts | None = None
    masks: Texts | None = None
    _: KW_ONLY
    kernels: Texts | None = None
    seqlens: Texts | None = None
    nproc: int | None = None
    ranks_per_gpu: int | None = None  # NCCL ranks that share a GPU
    pretend_nodes: int | None = None  # that NCCL takes the ranks of this machine for
    seed: int = 0
    out: str | Path | None = None  # the folder to pack into one file
    progress: bool = True

    @property
    def on(self) -> str:
        """The device: the one that is asked for, or a GPU where there is one."""
        return devices.named(self.device)


@dataclass(frozen=True)
class CpFinding(Finding):
    """A method on a mask: its status, and per tensor the worst error of any rank and the tolerance there."""

    method: str = ""
    grid: str = ""
    options: str = ""  # of the method, where they differ from its defaults: node=8
    ranks: int = 1

    def __str__(self) -> str:
        return f"{self.method} on {self.place}, {self.seqlen} tokens: {self.status}"

    @property
    def title(self) -> str:
        """The method as the table names it."""
        return " ".join(part for part in (self.method, self.grid, self.options, self.kernel) if part)

    @property
    def worst(self) -> float:
        """The largest error over its tolerance."""
        return max((error.share for error in self.errors.values()), default=0.0)


def make_level(request: CpRequest) -> ManyDevices:
    """The level with every method of LongCA and all peers that are installed, or the named ones."""
    refuse_no_ranks(request.nproc)
    devices.require(request.on)
    if request.on == "cuda":
        keep_on_disk()
    load_masks(request.plugin_files)
    refuse_several_values(request.params)
    heads, dim, dtype = SHAPES[request.on]
    usual = Suite(level=LevelName.CP, methods=("all", "peers"), heads=(heads,), head_dims=(dim,), dtypes=(dtype,))
    suite = suite_of(request, usual).changed(limits=Limits().with_deadline(request.deadline))
    ranks = ranks_of(suite, request.on)
    if request.seqlens is None:
        suite = suite.changed(seqlens=(TOKENS_PER_RANK[request.on] * ranks,))
    check(suite)
    suite = suite.changed(grid=_grids(ranks, parse_heads(str(suite.heads[0]))[0]))
    return ManyDevices(suite, request.on, request.plugin_files, nproc=request.nproc)


def _grids(ranks: int, heads: int) -> str:
    """A grid with a ring of two ranks or more, and one whose ring has windows, where the ranks divide so: by default heads alone would be
    split."""
    rings = [ring for ring in divisors(ranks) if ring > 1 and ranks // ring <= heads]
    plain = [f"{ranks // ring}x{ring}" for ring in rings[:1]]
    windowed = [f"{ranks // ring}x{ring}x{default_windows(ring)}" for ring in rings if default_windows(ring) > 1]
    return ",".join(plain + windowed[:1])


def make_steps(request: CpRequest, suite: Suite, ranks: int) -> list[Step]:
    """Every mask at a length that peers take, and some at one that divides by nothing; or the lengths asked for."""
    odd = (TOKENS_PER_RANK[request.on] - 2) * ranks - 1
    asked = [(name, parse_size(str(length))) for length in suite.seqlens for name in suite.mask_names]
    asked += [(name, odd) for name in suite.mask_names if name in ODD_MASKS and request.seqlens is None]
    return [make_step(name, length, request.seed, suite) for name, length in asked]


class CheckingRanks(Ranks):
    """Ranks that check a cell and time nothing."""

    def _measure(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        self._prepare(job.cell, mask_of(job.cell.problem))
        errors = self._check(job)
        for pass_ in job.passes:
            yield pass_, Outcome(status=Status.OK, grad=job.cell.grad, check=errors)


@dataclass(repr=False)
class CpVerification(Shown):
    """What was found so far; `broken` says why it ended early."""

    ranks: int
    places: list[RankPlace]
    findings: list[CpFinding]
    transfers: list[TransferTime]
    cases: int = 0
    broken: str = ""
    stopped: bool = False  # by Ctrl-C, or by SIGTERM

    packed: Path | None = None  # the file with all that was found

    @property
    def ok(self) -> bool:
        """Whether nothing failed and something was checked."""
        return not self.failed and self.checked

    @property
    def checked(self) -> bool:
        """Whether some method ran on some mask."""
        return any(finding.errors for finding in self.findings)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per method and mask."""
        return [msgspec.to_builtins(finding) for finding in self.findings]

    def parts(self) -> list[Part]:
        return [kit.cp_table(self), *([f"{self.broken}."] if self.broken else [])]

    @property
    def failed(self) -> bool:
        return bool(self.broken) or any(finding.status in FAILED for finding in self.findings)

    def place(self, rank: int) -> str:
        """A rank with its node, where there are several."""
        several = len({place.node for place in self.places}) > 1
        return f"rank {rank}" + (f" (node {self.places[rank].node}, {self.places[rank].facts.host})" if several else "")


def verify(
    level: ManyDevices, steps: Sequence[Step], tell: Callable[[CpVerification], None], say: Callable[[str], None] = say_nothing
) -> CpVerification:
    """Checks every method on every mask, then measures transfers. `tell` is called after each case, with all that is known; `say` gets a
    sentence for a method that is silent for long.

    No rank starts if no method supports any of the masks.
    """
    model = devices.model(level.device)
    planned = plan(level.cells(steps), model, level.catalogue.versions)
    jobs = make_jobs(planned, "one")
    level.refuse_if_all_are(job.cell for job in jobs)
    number = jobs[0].cell.problem.ranks if jobs and jobs[0].cell.split else 0
    done = CpVerification(number, [], [], [], len(jobs))
    deadline = level.suite.limits.time_s
    with TemporaryDirectory(prefix="longca-verify-") as folder:
        ranks = CheckingRanks(level.suite, level.catalogue, level.device, model, Path(folder))
        ranks.say = say
        try:
            facts = ranks.group(number).run("longca.bench.many_devices.transfers:facts", {}, level.suite.limits.start_s)
            done.places = places(msgspec.convert(facts, list[RankFacts]))
            for job in jobs:
                done.findings.append(_finding(job, dict(outcomes(job, ranks))))
                tell(done)
                if ranks.lost:
                    left = plural(len(jobs) - len(done.findings), "case")
                    done.broken = f"the ranks of this job broke on {done.findings[-1].method}; {left} not checked"
                    return done
            sharing = str(sharing_of(level.suite, level.device) or "")
            for line in measure_transfers(ranks.group(number).run, done.places, level.device, deadline, sharing):
                done.transfers.append(line)
        except RankFailed as failed:
            where = done.place(failed.rank) if done.places else f"rank {failed.rank}"
            words = f"; its last words: {failed.last_words}" if failed.last_words else ""
            done.broken = f"{where} {failed.message.rstrip('.')}{words}"
        except LongcaError as error:
            done.broken = str(error).rstrip(".")
        except KeyboardInterrupt:
            done.stopped = True
            done.broken = f"stopped; {plural(len(jobs) - len(done.findings), 'case')} not checked"
        finally:
            ranks.close()
    return done


def _finding(job: Job, found: Mapping[Pass, Outcome]) -> CpFinding:
    split = job.cell.split
    assert split is not None
    return CpFinding(**vars(finding(job, found)), method=split.method, grid=split.grid, options=split.options, ranks=job.cell.problem.ranks)
