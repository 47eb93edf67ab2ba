"""`longca ls`: what there is to choose from."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from longca.errors import BadInput, unknown

HELP = "list what there is: kernels, masks, context parallel methods, suites, models, distributions, packings"


class Listing(NamedTuple):
    """Something that can be listed: each entry is a dictionary, of which the table shows `columns`."""

    about: str
    columns: tuple[str, ...]
    entries: Callable[[], list[dict[str, Any]]]


def masks() -> list[dict[str, Any]]:
    from longca.masks import BLOCK_PATTERNS, PATTERNS

    static = [
        {
            "name": pattern.name,
            "group": pattern.group,
            "documents": pattern.has_documents,
            "params": {name: default if isinstance(default, int) else "drawn" for name, default in pattern.defaults.items()},
            "about": pattern.about,
        }
        for pattern in PATTERNS.values()
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
        "kernels, what runs here, and which mask each can do",
        ("kernel", "here", "backward", "gqa", "softcap", "sinks", "tested"),
        kernels,
    ),
    "masks": Listing("the static and dynamic masks", ("name", "group", "params", "about"), masks),
    "cp": Listing("context parallel methods, what each needs, which take block patterns", ("name", "blocks", "about", "needs"), methods),
    "suites": Listing("what `longca run` can measure by name", ("name", "about"), suites),
    "models": Listing(
        "shapes of well-known models, for `--model` of run, verify and recommend",
        ("name", "heads", "head size", "window", "softcap", "sinks", "scale", "layers", "about"),
        models,
    ),
    "distributions": Listing("where document lengths are drawn from", ("name", "buckets", "longest"), distributions),
    "packings": Listing("how drawn lengths fill a sequence", ("name", "about"), packings),
}


WITH_PLUGINS = ("kernels", "cp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", help=f"one of {', '.join(LISTINGS)}; without it, these are listed")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="FILE", help="a Python file whose kernels or methods are listed too; repeatable"
    )


def run(args: argparse.Namespace) -> int:
    columns: tuple[str, ...] = ("name", "about")
    _load(args.plugin, args.what)
    if args.what is None:
        entries = [{"name": name, "about": listing.about} for name, listing in LISTINGS.items()]
    elif args.what in LISTINGS:
        columns, entries = LISTINGS[args.what].columns, LISTINGS[args.what].entries()
    else:
        raise unknown("listing", args.what, list(LISTINGS))
    if args.json:
        import json

        print(json.dumps(entries, indent=1))
        return 0
    from longca.cli._tables import show_table

    show_table(columns, [[_cell(entry[column]) for column in columns] for entry in entries])
    if args.what == "kernels":
        _show_mask_matrix(entries)
    return 0


def _load(plugins: list[str], what: str | None) -> None:
    if plugins and what not in WITH_PLUGINS:
        raise BadInput(f"--plugin is for `longca ls {'` and `longca ls '.join(WITH_PLUGINS)}`; leave it out.")
    for path in plugins:
        from longca.bench.many_devices.plugins import load_carefully
        from longca.results.settings import Limits

        load_carefully(path, Limits().start_s)


SIGNS = {"native": "N", "lowered": "L", "no": "."}


def _show_mask_matrix(entries: list[dict[str, Any]]) -> None:
    """Which kernel can do which mask, and why not."""
    from longca.cli._tables import show_table

    names = list(entries[0]["masks"])
    short = {name: "".join(word[:2] if len(name.split("_")) < 3 else word[0] for word in name.split("_")) for name in names}
    print(
        "\nN: the kernel knows the mask; L: through a lowering of its bands; .: no. " + ", ".join(f"{short[name]} {name}" for name in names)
    )
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
            print(f"{entry['kernel']} not on {', '.join(where)}: {reason}")


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    return {None: "-", False: "-", True: "yes"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
