"""`longca.tune`: measures the kernels that `best` may choose for a call, so that no call autotunes later."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec

from longca import devices
from longca.api.call import CallRequest, call_of, load_plugins
from longca.api.explain import explain
from longca.api.run import Run, run
from longca.api.takes import takes
from longca.errors import Refused
from longca.kernels.choice import chooser, records, words
from longca.report.explanation import Explanation
from longca.results.choices import table
from longca.results.reading import read
from longca.results.shown import Part, Shown
from longca.text import format_dims, format_heads


@dataclass(frozen=True, repr=False)
class Tuned(Shown):
    """What was measured, and what `best` chooses from now on."""

    run: Run
    explanation: Explanation

    @property
    def ok(self) -> bool:
        return self.run.ok and self.explanation.choice is not None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records, as those of a run."""
        return self.run.rows

    @property
    def folder(self) -> Path:
        """The journal; `best` reads the table beside it."""
        return self.run.folder

    def parts(self) -> list[Part]:
        return [
            *self.run.parts(),
            "",
            *self.explanation.parts(),
            "",
            f"`longca recommend --results {self.folder}` reads these records, too.",
        ]


@dataclass(frozen=True, kw_only=True)
class TuneRequest(CallRequest):
    """A call of `longca.attention`, and how long to measure each kernel."""

    budget: float | None = None  # seconds of samples per kernel and pass
    progress: bool = True


@takes(TuneRequest)
def tune(request: TuneRequest) -> Tuned:
    """Measures all candidates of `best` for a call of this shape, and all calls of its class, as `longca.run` does: a kernel must be right
    before it is timed. The records go into the journal `tuned` of the cache folder (LONGCA_CACHE or XDG_CACHE_HOME moves it), where `best`
    of every later process finds them. Cells that the journal holds are not measured again.

    >>> longca.tune("causal_document", "32K", heads="64:8")
    """
    kind = devices.require(request.device)
    load_plugins(request)
    mask, case = call_of(request, kind)
    able = chooser.contest(mask, case).all
    if not able:
        raise Refused(words.missing(mask, case))
    shape, drawing = vars(case), {name: getattr(request, name) for name in ("params", "documents", "distribution", "packing", "model")}
    done = run(
        kernels=[kernel.label for kernel in able.all], masks=request.mask, seqlens=mask.seqlen_k, seed=request.seed, dtypes=case.dtype,
        heads=format_heads(shape), head_dims=format_dims(shape), passes="fwd,bwd" if case.backward else "fwd",
        softcap=case.softcap or None, sinks=case.sinks or None, device=kind, out=records.tuned_folder(), budget=request.budget,
        plugins=request.plugins, progress=request.progress, **drawing,
    )  # fmt: skip
    write_table(done.folder)
    call = {field.name: getattr(request, field.name) for field in fields(CallRequest)}
    return Tuned(done, explain(**call))


def write_table(folder: Path) -> None:
    """Writes the table that `best` reads beside a journal, in one step."""
    contents = msgspec.json.encode(table(read(folder), with_failed=True))
    with NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as file:
        file.write(contents)
    Path(file.name).replace(records.tuned_file())
    chooser.forget()
