"""`longca ls`: lists kernels, masks, methods, suites, models, distributions and packings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from longca.errors import BadInput, unknown

HELP = "list kernels, masks, context-parallel methods, suites, models, distributions or packings"


class Listing(NamedTuple):
    """A listing. Each entry is a dictionary, and the table shows its `columns`."""

    about: str
    columns: tuple[str, ...]
    entries: Callable[[], list[dict[str, Any]]]


def masks() -> list[dict[str, Any]]:
    from longca.masks import BLOCK_PATTERNS, PATTERNS, find, own_names

    static = [
        {
            "name": pattern.name,
            "group": pattern.group,
            "documents": pattern.has_documents,
            "params": {name: "drawn" if callable(default) else default for name, default in pattern.defaults.items()},
            "about": pattern.about,
        }
        for pattern in (*PATTERNS.values(), *map(find, own_names()))
    ]
    dynamic = [
        {"name": pattern.name, "group": pattern.group, "documents": False, "params": pattern.defaults, "about": pattern.about}
        for pattern in BLOCK_PATTERNS.values()
    ]
    return static + dynamic


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
    return _toml_files("suites")


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


def _toml_files(kind: str) -> list[dict[str, Any]]:
    import tomllib

    from longca.bench.plan.suite import folder, names

    return [{"name": name, **tomllib.loads((folder(kind) / f"{name}.toml").read_text())} for name in names(kind)]


def methods() -> list[dict[str, Any]]:
    from longca.parallel.registry import listing

    return listing()


# what can be listed; a room that has more to offer adds its line here
LISTINGS = {
    "kernels": Listing(
        "kernels, whether they run here, and how many masks each takes",
        ("kernel", "here", "backward", "gqa", "softcap", "sinks", "tested"),
        kernels,
    ),
    "masks": Listing("static masks and block patterns", ("name", "group", "params", "about"), masks),
    "cp": Listing(
        "context-parallel methods and their requirements",
        ("name", "here", "blocks", "options", "about", "needs"),
        methods,
    ),
    "suites": Listing("grids that `longca run` measures by name", ("name", "about"), suites),
    "models": Listing(
        "shapes of well-known models, for --model",
        ("name", "heads", "head size", "window", "softcap", "sinks", "scale", "layers", "about"),
        models,
    ),
    "distributions": Listing("distributions of document lengths", ("name", "buckets", "longest"), distributions),
    "packings": Listing("how documents fill a sequence", ("name", "about"), packings),
}


WITH_PLUGINS = ("kernels", "masks", "cp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", help=f"one of {', '.join(LISTINGS)}")
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries to show; a kernel is shown with all details")
    parser.add_argument("--details", action="store_true", help="for kernels: all details of each")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file with kernels, masks or methods to list too; repeatable",
    )


def run(args: argparse.Namespace) -> int:
    columns: tuple[str, ...] = ("name", "about")
    _load(args.plugin, args.what)
    if args.details and args.what != "kernels":
        raise BadInput("--details is for `longca ls kernels`; leave it out.")
    if args.what is None:
        entries = [{"name": name, "about": listing.about} for name, listing in LISTINGS.items()]
    elif args.what in LISTINGS:
        columns, entries = LISTINGS[args.what].columns, _named(LISTINGS[args.what].entries(), args.names)
    else:
        raise unknown("listing", args.what, list(LISTINGS))
    if args.json:
        import json

        print(json.dumps(entries, indent=1))
        return 0
    from longca.cli._tables import show_table

    if args.what == "kernels" and not args.names and not args.details:
        _show_kernels(entries)
        return 0
    show_table(columns, [[_cell(entry[column]) for column in columns] for entry in entries])
    if args.what == "kernels":
        _show_mask_matrix(entries)
    return 0


def _named(entries: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Returns the entries with these names, or all. The name of a kernel means all its variants."""
    known = [entry.get("kernel") or entry["name"] for entry in entries]
    families = [name.partition(":")[0] for name in known]
    for name in names:
        if name not in known and name not in families:
            raise unknown("name", name, list(dict.fromkeys([*families, *known])))
    wanted = [not names or name in names or family in names for name, family in zip(known, families, strict=True)]
    return [entry for entry, shown in zip(entries, wanted, strict=True) if shown]


def _show_kernels(entries: list[dict[str, Any]]) -> None:
    """Prints one line per kernel."""
    from longca.cli._tables import show_table

    families: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        families.setdefault(entry["kernel"].partition(":")[0], []).append(entry)
    show_table(("kernel", "variants", "here", "backward", "masks", "blocks"), [_summary(*family) for family in families.items()])
    print("\n`longca ls kernels NAME` shows how to install it, where it was tested, and which masks it takes; --details shows all.")


def _summary(name: str, variants: list[dict[str, Any]]) -> list[str]:
    """Returns the row of a kernel: what runs here, its kinds of backward, how many static masks it takes, and which block patterns."""
    from longca.masks import block_names

    short = {entry["kernel"]: entry["kernel"].partition(":")[2] for entry in variants}
    runs = [short[entry["kernel"]] for entry in variants if entry["available"]]
    here = variants[0]["here"].partition(";")[0] if not runs else "yes" if len(runs) == len(variants) else f"yes: {', '.join(runs)}"
    takes = [mask for mask in variants[0]["masks"] if any(entry["masks"][mask]["answer"] != "no" for entry in variants)]
    blocks = [mask.removesuffix("_block") for mask in takes if mask in block_names()]
    static = sum(mask not in block_names() for mask in variants[0]["masks"])
    backward = "/".join(dict.fromkeys(entry["backward"] for entry in variants))
    return [name, ", ".join(filter(None, short.values())), here, backward, f"{len(takes) - len(blocks)} of {static}", ", ".join(blocks)]


def _load(plugins: list[str], what: str | None) -> None:
    if plugins and what not in WITH_PLUGINS:
        raise BadInput(f"--plugin is for `longca ls {'`, `longca ls '.join(WITH_PLUGINS)}`; leave it out.")
    for path in plugins:
        from longca.bench.many_devices.plugins import load_carefully
        from longca.results.settings import Limits

        load_carefully(path, Limits().start_s)  # this imports the file, and so its masks


SIGNS = {"native": "N", "lowered": "L", "no": "."}


def _show_mask_matrix(entries: list[dict[str, Any]]) -> None:
    """Prints which kernel takes which mask, and the reasons if not."""
    from longca.cli._tables import show_table

    names = list(entries[0]["masks"])
    short = {name: "".join(word[:2] if len(name.split("_")) < 3 else word[0] for word in name.split("_")) for name in names}
    print("\nN: native support; L: by lowering the mask; .: unsupported. " + ", ".join(f"{short[name]} {name}" for name in names))
    show_table(
        ("kernel", *short.values()),
        [[entry["kernel"], *(SIGNS[entry["masks"][name]["answer"]] for name in names)] for entry in entries if entry["masks"]],
    )
    for entry in entries:
        reasons: dict[str, list[str]] = {}
        for name, said in entry["masks"].items():
            if said["answer"] == "no":
                reasons.setdefault(said["note"], []).append(name)
        for reason, where in reasons.items():
            print(f"{entry['kernel']} does not support {', '.join(where)}: it {reason}")


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    return {None: "-", False: "-", True: "yes"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
