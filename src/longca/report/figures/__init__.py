"""Figures for papers, as PNG, PDF and SVG. KINDS are all there are; each is drawn for a pass of a setting that has something to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from longca.errors import BadInput
from longca.report.figures import kinds
from longca.report.figures.sheet import Drawing, save
from longca.report.figures.style import PAPER, Line, Styles
from longca.results.grouping import dense_beside, line_of, only_beside
from longca.results.groups import Groups
from longca.results.naming import Row
from longca.text import slug

KINDS = {"speed": kinds.speed, "ratio": kinds.ratio, "scaling": kinds.scaling, "memory": kinds.memory}


def write_figures(groups: Groups, folder: str | Path) -> Iterator[Path]:
    """The files, as they are written: a large journal takes a while. Each pass of each setting has its own; a kind that has nothing to show
    gets none, and neither does a dense mask that is there only for block patterns to be compared with."""
    import matplotlib

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; give another folder with --figures.") from error
    rows = groups.rows
    styles = Styles(_timed([*own.rows, *dense_beside(own.rows, rows)]) for own in groups.settings.values())
    with matplotlib.rc_context(PAPER):
        for setting, group in groups.settings.items():
            if only_beside(group.rows, rows):
                continue
            for pass_, own in group.passes.items():
                drawing = Drawing(f"{setting.title}, {pass_}", own.compared, rows, styles)
                for kind, draw in KINDS.items():
                    figure = draw(drawing)
                    if figure is not None:
                        yield from save(figure, Path(folder) / f"{kind}-{slug(pass_)}-{slug(setting.title)}")


def _timed(rows: Sequence[Row]) -> list[Line]:
    """Lines that have a time, and before them those over ranks."""
    own = [row for row in rows if row.record.ok]
    series, lines = ({Line(name(row), row.base, row.record.simulated) for row in own} for name in (attrgetter("series"), line_of))
    return [*sorted(series), *sorted(lines - series)]
