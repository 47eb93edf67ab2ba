"""Figures for papers, as PNG and PDF. KINDS are all there are; each is drawn for a pass of a setting that has something to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from longca.errors import BadInput
from longca.report.figures import accuracy, bars, costs, heat, scaling, speed
from longca.report.figures.sheet import Drawing, save
from longca.report.figures.style import PAPER, Styles
from longca.results.dense import dense_beside, only_beside
from longca.results.naming import Row
from longca.results.points import by_pass, grouped
from longca.results.record import Status
from longca.results.shares import compared
from longca.text import slug

SPEEDS = {  # in which kernels are compared
    "speed": speed.over_length_or_ratio,
    "ratio": speed.beside_dense,
    "scaling": scaling.over_ranks,
    "bars": bars.at_the_longest,
    "peak": heat.share_of_peak,
}
KINDS = SPEEDS | {
    "accuracy": accuracy.errors,
    "memory": costs.memory,
    "preparing": costs.preparing,
}


def write_figures(rows: Sequence[Row], folder: str | Path) -> Iterator[Path]:
    """The files, as they are written: a large journal takes a while. Each pass of each setting gets its own figures, as PNG and as PDF;
    a kind that has nothing to show gets none, and neither does a dense mask that is there only for block patterns to be compared with."""
    import matplotlib

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; give another folder with --figures.") from error
    settings = grouped(rows, lambda row: row.setting)
    styles = Styles(_drawn([*group, *dense_beside(group, rows)]) for group in settings.values())
    with matplotlib.rc_context(PAPER):
        for setting, group in settings.items():
            if only_beside(group, rows):
                continue
            for pass_, own in by_pass(group).items():
                drawing = Drawing(f"{setting.title}, {pass_}", own, rows, styles)
                speeds = drawing._replace(rows=compared(own))
                for kind, draw in KINDS.items():
                    figure = draw(speeds if kind in SPEEDS else drawing)
                    if figure is not None:
                        yield from save(figure, Path(folder) / f"{kind}-{slug(pass_)}-{slug(setting.title)}")


def _drawn(rows: Iterable[Row]) -> list[str]:
    """Lines that have a style: those with a time, those that are wrong (they have an error), and both over ranks."""
    own = [row for row in rows if row.record.status in (Status.OK, Status.WRONG)]
    return [*sorted({row.series for row in own}), *sorted({row.line for row in own} - {row.series for row in own})]
