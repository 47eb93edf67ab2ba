"""Figures for papers, as PNG and PDF. KINDS are all there are; each is drawn for a pass of a setting that has something to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from longca.errors import BadInput
from longca.report.figures import accuracy, bars, costs, heat, scaling, speed
from longca.report.figures.sheet import Drawing, save
from longca.report.figures.style import PAPER, Styles
from longca.report.gather import Gathered
from longca.report.measures import beside, described, only_beside
from longca.report.reading import Record
from longca.report.settings import PASSES, by_setting, slug

KINDS = {
    "speed": speed.over_length_or_ratio,
    "ratio": speed.beside_dense,
    "scaling": scaling.over_ranks,
    "bars": bars.at_the_longest,
    "peak": heat.share_of_peak,
    "accuracy": accuracy.errors,
    "memory": costs.memory,
    "preparing": costs.preparing,
}


def write_figures(found: Gathered, folder: str | Path) -> Iterator[Path]:
    """The files, as they are written: a large journal takes a while. Each pass of each setting gets its own figures, as PNG and as PDF;
    a kind that has nothing to show gets none, and neither does a dense mask that is there only for block patterns to be compared with."""
    import matplotlib

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; give another folder with --figures.") from error
    named = described(found)
    settings = by_setting(named, found.environments)
    styles = Styles(_drawn([*group, *beside(group, named)]) for group in settings.values())
    with matplotlib.rc_context(PAPER):
        for setting, group in settings.items():
            if only_beside(group, named):
                continue
            for which in (name for name in PASSES if any(record["pass"] == name for record in group)):
                own = [record for record in group if record["pass"] == which]
                drawing = Drawing(f"{setting}, {which}", own, named, styles)
                for kind, draw in KINDS.items():
                    figure = draw(drawing)
                    if figure is not None:
                        yield from save(figure, Path(folder) / f"{kind}-{slug(which)}-{slug(setting)}")


def _drawn(records: Iterable[Record]) -> list[str]:
    """What has a time has a style, and so has what is wrong, which has an error."""
    return sorted({record["line"] for record in records if record["status"] in ("ok", "wrong")})
