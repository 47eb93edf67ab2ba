"""`longca.ls`: what there is: kernels, masks, context-parallel methods, suites, models, distributions and packings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from longca.errors import BadInput, unknown
from longca.results.shown import Part, Shown
from longca.results.tables import entry_table


class Kind(NamedTuple):
    """What can be listed: each entry is a dictionary, and the table shows its `columns`."""

    about: str
    columns: tuple[str, ...]
    entries: Callable[[], list[dict[str, Any]]]


def masks() -> list[dict[str, Any]]:
    from longca.masks import BLOCK_PATTERNS, PATTERNS, find, own_names

    patterns = (*PATTERNS.values(), *map(find, own_names()), *BLOCK_PATTERNS.values())
    return [
        {
            "name": pattern.name,
            "group": pattern.group,
            "documents": pattern.has_documents,
            "params": {name: "drawn" if callable(default) else default for name, default in pattern.defaults.items()},
            "about": pattern.about,
        }
        for pattern in patterns
    ]


def distributions() -> list[dict[str, Any]]:
    from longca.lengths import named, names

    return [{"name": name, "buckets": len(named(name).uppers), "longest": named(name).uppers[-1]} for name in names()]


def packings() -> list[dict[str, Any]]:
    from longca.lengths.packers import PACKERS

    return [{"name": name, "about": (packer.__doc__ or "").strip().split("\n")[0]} for name, packer in PACKERS.items()]


def kernels() -> list[dict[str, Any]]:
    from longca.kernels.overview import overview

    return overview()


def suites() -> list[dict[str, Any]]:
    import tomllib

    from longca.bench.plan.suite import folder, names

    return [{"name": name, **tomllib.loads((folder("suites") / f"{name}.toml").read_text("utf-8"))} for name in names()]


def models() -> list[dict[str, Any]]:
    from longca.bench.plan.suite import names
    from longca.bench.plan.workload import model

    return [
        {
            "name": name,
            "heads": shape.heads,
            "head size": shape.head_dim,
            "window": shape.window,
            "softcap": shape.softcap or None,
            "sinks": shape.sinks,
            "scale": shape.scale or None,
            "layers": f"{shape.layers}: {shape.layer_pattern}",
            "about": shape.about,
        }
        for name, shape in ((name, model(name)) for name in names("models"))
    ]


def methods() -> list[dict[str, Any]]:
    from longca.parallel.registry import listing

    return listing()


KINDS = {
    "kernels": Kind(
        "kernels, whether they run here, and how many masks each takes",
        ("kernel", "here", "backward", "gqa", "softcap", "sinks", "tested"),
        kernels,
    ),
    "masks": Kind("static masks and block patterns", ("name", "group", "params", "about"), masks),
    "cp": Kind("context-parallel methods and their requirements", ("name", "here", "blocks", "options", "about", "needs"), methods),
    "suites": Kind("grids that `longca run` measures by name", ("name", "about"), suites),
    "models": Kind(
        "shapes of well-known models, for --model",
        ("name", "heads", "head size", "window", "softcap", "sinks", "scale", "layers", "about"),
        models,
    ),
    "distributions": Kind("distributions of document lengths", ("name", "buckets", "longest"), distributions),
    "packings": Kind("how documents fill a sequence", ("name", "about"), packings),
}
WITH_PLUGINS = ("kernels", "masks", "cp")


@dataclass(frozen=True, repr=False)
class Listing(Shown):
    """Entries with the columns that their table shows; kernels are summed up, or have all details."""

    entries: list[dict[str, Any]]
    columns: tuple[str, ...]
    kernels: bool = False
    details: bool = False
    png: Path | None = None
    ok = True

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.entries

    def parts(self) -> list[Part]:
        if not self.kernels:
            return [entry_table(self.entries, self.columns), *([f"wrote {self.png}"] if self.png else [])]
        from longca.report.listings import kernel_summary, mask_matrix

        return [entry_table(self.entries, self.columns), *mask_matrix(self.entries)] if self.details else kernel_summary(self.entries)


def ls(
    what: str | None = None,
    *names: str,
    details: bool = False,
    plugins: Sequence[str] = (),
    png: str | Path | None = None,
    lengths: str | Path | None = None,
) -> Listing:
    """Returns a listing: kernels, masks, cp, suites, models, distributions or packings; without `what`, these.

    `names` are the entries to list; a kernel's name means all its variants, with all details. `details` gives those of all kernels.
    `plugins` are files with kernels, masks or methods to list too. For distributions, `png` draws them into a file, and `lengths` is a file
    of your own document lengths that is listed with them.

    >>> [row["name"] for row in longca.ls("masks").rows]
    """
    if plugins and what not in WITH_PLUGINS:
        raise BadInput(f"--plugin is for `longca ls {'`, `longca ls '.join(WITH_PLUGINS)}`; leave it out.")
    for path in plugins:
        from longca.bench.plan.plugins import load_carefully
        from longca.results.settings import Limits

        load_carefully(path, Limits().start_s)  # this imports the file, and so its masks
    if details and what != "kernels":
        raise BadInput("--details is for `longca ls kernels`; leave it out.")
    if what == "distributions":
        return _distributions(names, png, lengths)
    if png is not None or lengths is not None:
        raise BadInput("--png and --lengths are for `longca ls distributions`; leave them out.")
    if what is None:
        return Listing([{"name": name, "about": kind.about} for name, kind in KINDS.items()], ("name", "about"))
    if what not in KINDS:
        raise unknown("listing", what, list(KINDS), listed=True)  # `methods` is near `models`, and means `cp`
    entries = _named(KINDS[what].entries(), names)
    return Listing(entries, KINDS[what].columns, what == "kernels", details or bool(names))


def _distributions(names: Sequence[str], png: str | Path | None, lengths: str | Path | None) -> Listing:
    from longca.lengths import named, read_lengths, shares

    entries, columns = _named(distributions(), names), KINDS["distributions"].columns
    known = {entry["name"]: shares.of_distribution(named(entry["name"])) for entry in entries}
    if lengths is not None:
        own, name = read_lengths(lengths), Path(lengths).name
        entries.append({"name": name, "buckets": None, "longest": max(own)})
        known[name] = shares.of_lengths(own)
    if png is None:
        return Listing(entries, columns)
    from longca.api.files import refuse_no_png

    refuse_no_png(png)
    from longca.masks.draw_lengths import write_lengths

    return Listing(entries, columns, png=write_lengths(known, png))


def _named(entries: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The entries with these names, or all. The name of a kernel means all its variants."""
    known = [entry.get("kernel") or entry["name"] for entry in entries]
    families = [name.partition(":")[0] for name in known]
    for name in names:
        if name not in known and name not in families:
            raise unknown("name", name, list(dict.fromkeys([*families, *known])))
    wanted = [not names or name in names or family in names for name, family in zip(known, families, strict=True)]
    return [entry for entry, shown in zip(entries, wanted, strict=True) if shown]
