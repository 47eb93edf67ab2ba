"""An answer as facts: the ways to compute the attention that is asked for, the records they rest on, and what is out. `words` makes
sentences of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from longca.errors import LongcaError
from longca.kernels import registry
from longca.recommend import shipped
from longca.recommend.commands import run_command
from longca.recommend.match import Near, Nearest
from longca.recommend.question import Question
from longca.results.ranking import NOT_MEASURED, Out
from longca.results.record import Environment, Masks, Record
from longca.results.reproduce import command
from longca.results.versions import is_older
from longca.results.words import excluded

NOT_COUNTED, TOO_LARGE = "not counted", "too large"  # statuses beside those of records


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """A record that an answer rests on, with its file and the machine it was measured on."""

    record: Record
    file: Path
    environment: Environment
    masks: Masks

    def __repr__(self) -> str:
        record = self.record
        return f"Source({str(self.file)!r}, key={record.key!r}, pass={record.problem.pass_.value!r}, seed={record.problem.seed!r})"

    def to_json(self) -> dict[str, Any]:
        record, environment = self.record, self.environment
        return {
            "file": shipped.portable(self.file), "device": environment.name, "date": environment.date, "commit": environment.commit,
            "key": record.key, "pass": record.problem.pass_, "seed": record.problem.seed, "older": is_older(record),
            "command": command(record, environment, self.masks),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to compute the attention that was asked for, and the records it rests on; a simulation has none."""

    name: str  # fa4:bands; on many GPUs usp 8x8 fa4:bands
    kernel: str
    method: str | None
    grid: str | None
    options: str | None
    tflops: float  # per GPU; of several masks all work over all time
    ms: float  # the mean over the masks
    ms_over_masks: tuple[float, float]  # the least and the most: documents of other seeds have more or fewer visible pairs
    ms_range: tuple[float, float] | None = None  # of a nearest answer, where its error is known
    memory_gib: float | None  # per GPU, inputs included; None: not counted
    plan_ms: float | None = None  # of one plan, the median over the masks; `ms` holds its part where the question counts planning
    joules: float | None = None  # of one call on one GPU, where it was measured
    against_best: float  # this speed over the best one's
    as_good: bool  # not the best, but within the noise of it, or so close that it does not matter
    noisy: bool = False
    samples: int  # of the record that has the fewest
    older: bool = False  # a record is of an older version of the kernel's code
    simulated: str | None = None  # the cluster it was simulated for
    sources: tuple[Source, ...] = ()  # of a nearest answer those of the nearest length

    def command(self, seeds: Sequence[int]) -> str:
        """The command that measures it again: this variant, also where its record asked for the kernel's own choice."""
        source = self.sources[0]
        return command(self._asked(source.record), source.environment, source.masks, seeds)

    def _asked(self, record: Record) -> Record:
        try:
            registry.get(self.kernel)
        except LongcaError:  # of a plugin that is not here: as it was typed then
            return record
        return replace(record, asked=self.kernel)

    def to_json(self) -> dict[str, Any]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "sources"}
        return values | {"records": [source.to_json() for source in self.sources]}


@dataclass(frozen=True, kw_only=True)
class Pair(Choice):
    """The forward of one kernel with the backward of another. `kernel` is `best`, which combines them; `against_best` is over 1."""

    forward: str
    backward: str

    def _asked(self, record: Record) -> Record:
        """Both kernels. A forward alone may be of inference: both passes make it one of training."""
        return replace(record, asked=f"{self.forward},{self.backward}", planned_grad=True)


@dataclass(frozen=True)
class ModelNote:
    """What a model adds to a question: its window, and how many of its layers share a plan."""

    name: str
    layers: int
    layers_per_plan: int | None  # where documents are new at every step
    window: int | None  # of its local layers, counting the token itself
    local_layers: int
    windowed_mask: str | None  # what asks for such a layer, where the mask that is asked for has no window


@dataclass(frozen=True)
class Answer:
    """What the records say about a question; `choices` are empty where they say nothing."""

    question: Question
    device: str
    on_cpu: bool
    seeds: tuple[int, ...]
    masks: int  # how many different masks the times are of
    choices: tuple[Choice, ...]  # the fastest first
    pair: Pair | None  # faster than the best kernel by what matters
    out: tuple[Out, ...]  # what was measured and cannot be recommended
    unmeasured: tuple[str, ...]  # kernels that LongCA knows and of which there is no record
    nearest: Nearest | None  # what the times were scaled from; None where records answer exactly
    closest: tuple[Near, ...]  # where no record answers: those that differ in the fewest fields
    model: ModelNote | None = None

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    @property
    def ways(self) -> tuple[Choice, ...]:
        """The pair, where there is one, and the choices: the fastest first."""
        return self.choices if self.pair is None else (self.pair, *self.choices)

    @property
    def is_too_large(self) -> bool:
        """Whether a kernel needs more memory than there is, and no other can do it."""
        return not self.choices and TOO_LARGE in {out.status for out in self.out}

    @property
    def measure(self) -> str:
        """The command that measures what is asked for; empty where records answer, be it that no kernel can do it."""
        is_open = self.nearest is not None or not (self.choices or self.out)
        if not self.choices:
            is_open |= NOT_MEASURED in {out.status for out in self.out}
        return run_command(self.question) if is_open and not self.is_too_large else ""

    def to_json(self) -> dict[str, Any]:
        choices = [choice.to_json() for choice in self.choices]
        return {
            "question": self.question.to_json(),
            "device": self.device,
            "seeds": list(self.seeds),
            "best": choices[0] if choices else None,
            "runners_up": choices[1:],
            "pair": self.pair.to_json() if self.pair else None,
            "out": [{"name": out.line, "status": out.status, "reason": excluded(out)} for out in self.out],
            "not_measured": list(self.unmeasured),
            "nearest": self.nearest.to_json() if self.nearest else None,
            "measure": self.measure or None,
            "model": vars(self.model) if self.model else None,
        }
