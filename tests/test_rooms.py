"""The order of rooms: each imports only rooms above it, wherever in a file the import stands."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import longca

PACKAGE = Path(longca.__file__).parent
HELPERS = ("errors", "text", "devices", "code_version", "plugins")
# from top to bottom; rooms of one line do not import each other
ROOMS = [
    {"lengths"},
    {"masks"},
    {"kernels"},
    {"parallel"},
    {"integrations"},
    {"results"},
    {"processes"},
    {"probe", "numerics"},
    {"bench"},
    {"simulate"},
    {"compare", "recommend"},
    {"report"},
    {"api"},
    {"cli", "testing"},
]
BENCH = [{"plan"}, {"check", "clock"}, {"run"}, {"one_device"}, {"many_devices"}]
READERS = {"results", "compare", "recommend", "report"}  # they read journals, and need nothing that measures
EXEMPT = {"__init__", "__main__"}  # the package's own front

File = tuple[str, ...]  # the parts of a module's name below longca


def modules() -> dict[File, Path]:
    paths = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    named = {tuple(path.with_suffix("").parts): PACKAGE / path for path in paths}
    return {parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts: path for parts, path in named.items()}


MODULES = modules()


def imports(path: Path) -> Iterator[File]:
    """The modules of longca that a file imports: at its top, in functions, and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for parts in (tuple(name.split(".")) for name in names):
            if parts[0] == "longca":
                yield _module(parts[1:])


def _module(parts: File) -> File:
    """The module that a name is of; what is none is one's name in it."""
    return parts if parts in MODULES or not parts else _module(parts[:-1])


def place(parts: File) -> int:
    """How far down a module is: helpers first, then the rooms."""
    if parts[0] in HELPERS:
        return -1
    return next(number for number, rooms in enumerate(ROOMS) if parts[0] in rooms)


def edges() -> Iterator[tuple[File, File]]:
    for module, path in MODULES.items():
        if module[0] not in EXEMPT:
            yield from ((module, imported) for imported in imports(path) if imported and imported[0] not in EXEMPT)


EDGES = sorted(set(edges()))


def words(found: list[tuple[File, File]]) -> list[str]:
    return [f"{'.'.join(module)} imports {'.'.join(imported)}" for module, imported in found]


def test_every_file_is_in_a_room() -> None:
    rooms = set().union(*ROOMS)
    assert {module[0] for module in MODULES} - EXEMPT <= rooms | set(HELPERS)
    assert {module[1] for module in MODULES if module[0] == "bench" and len(module) > 1} <= set().union(*BENCH)


def test_helpers_import_no_room() -> None:
    wrong = [edge for edge in EDGES if edge[0][0] in HELPERS and edge[1][0] not in HELPERS]
    assert words(wrong) == []
    below = {"errors": 0, "text": 1, "devices": 1, "code_version": 1, "plugins": 2}
    assert words([edge for edge in EDGES if edge[0][0] in HELPERS and below[edge[1][0]] >= below[edge[0][0]]]) == []


@pytest.mark.parametrize("room", sorted(set().union(*ROOMS)))
def test_a_room_imports_only_rooms_above_it(room: str) -> None:
    wrong = [edge for edge in EDGES if edge[0][0] == room and edge[1][0] != room and place(edge[1]) >= place(edge[0])]
    assert words(wrong) == []


@pytest.mark.parametrize("room", sorted(set().union(*BENCH)))
def test_the_rooms_of_bench_have_an_order_too(room: str) -> None:
    number = {name: number for number, rooms in enumerate(BENCH) for name in rooms}
    inside = [edge for edge in EDGES if edge[0][:2] == ("bench", room) and edge[1][0] == "bench" and edge[1][1:2] != (room,)]
    assert words([edge for edge in inside if number[edge[1][1]] >= number[room]]) == []


def test_readers_of_journals_import_nothing_that_measures() -> None:
    assert words([edge for edge in EDGES if edge[0][0] in READERS and edge[1][0] in ("bench", "processes")]) == []


def test_longca_offers_no_pickle() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text, path
        assert text.count("torch.load(") == text.count("weights_only=True"), path
        assert "allow_pickle=True" not in text, path
