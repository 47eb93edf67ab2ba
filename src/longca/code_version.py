"""Versions of code that has no version number: a kernel's or a method's own files, found by walking imports.

A version is part of the key of every record, so that edited code is measured again. It covers the code that computes attention: a
kernel's adapter and its lowering, a method, its primitives and its transport, and all modules of a user's plugin. It covers neither base
classes, registries, inputs and masks nor the rest of the harness, so that a long campaign can go on while these change: their files declare
that with `FRAMEWORK = True`. It does not depend on
where files lie, so that machines can be compared. Of Python files it covers what runs: an edited comment, docstring or layout changes no
version.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent
ROOMS = ("kernels", "parallel")  # of LongCA, whose code is part of a version
FRAMEWORK = b"\nFRAMEWORK = True"  # in files of these that are not: they say what a kernel or method is, not what it does
PYTHON = [Path(path).resolve() for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))]
INSTALLED = {"site-packages", "dist-packages"}  # folders whose packages have version numbers
NUMBERED = {"torch", "triton", "numpy"}  # their version numbers are in every key, and a checkout of them has thousands of files
CODE = re.compile(r"\.(py|so)(\.[0-9.]+)?$")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NOT_CODE = ("ctx", "kind", "type_comment", "type_ignores")  # fields of a syntax tree that follow from others, or that do nothing
PIECE, PIECES = 1 << 14, 256  # bytes per piece that is read of a large binary, and how many pieces
_imported: dict[str, set[Path]] = {}  # by module: files of the modules that importing it loaded


def of_module(file: Path, module: str = "", own_files: Iterable[Path] = (), modules: Iterable[Path] = ()) -> str:
    """Returns the version of a module: a short hash of its file, of `own_files`, and of the code that its import statements reach, at its
    top or later, that importing `module` loaded, or that `modules` hold, as far as this is the user's or belongs to a kernel or method."""
    parts = _reached([file, *_imported.get(module, ()), *modules]) | {path.resolve() for path in own_files}
    parts.discard(file.resolve())
    if not parts:
        return of_code(file)
    lines = [of_code(file), *sorted(f"{part.name} {of_code(part)}" for part in parts)]
    return _hash("\n".join(lines).encode())


def of_code(path: Path) -> str:
    """Returns a short hash of the syntax tree of a Python file without docstrings, comments and positions; of other files and of folders,
    that of their contents."""
    if path.suffix != ".py" or not path.is_file():
        return of_path(path)
    return _of_python(path.read_bytes())


@cache  # kernels share files, and parsing takes milliseconds
def _of_python(source: bytes) -> str:
    try:
        return _hash(repr(_plain(ast.parse(source))).encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # importing the file will report what is wrong with it
        return _hash(source)


def _plain(node: object) -> object:
    """Returns a syntax tree as lists and texts, without docstrings and without empty fields, which newer Pythons have more of."""
    if isinstance(node, list):
        return [_plain(child) for child in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != [] and name not in NOT_CODE}
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    return [type(node).__name__, *([name, _plain(fields[name])] for name in sorted(fields))]


def of_texts(files: Iterable[Path]) -> str:
    """Returns a short hash of the contents of files."""
    return _hash(b"".join(file.read_bytes() for file in files))


def of_path(path: Path) -> str:
    """Returns a short hash of a file, or of all code in a folder; of large binaries it reads evenly spaced pieces, as reading all of them
    takes seconds."""
    files = [file for file in sorted(path.rglob("*")) if CODE.search(file.name) and file.is_file()] if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.relative_to(path)} {size}\n".encode())
        with file.open("rb") as content:
            for start in range(0, size, max(PIECE, size // PIECES)):
                content.seek(start)
                digest.update(content.read(PIECE))
    return digest.hexdigest()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def module_path(module: str) -> Path | None:
    """Returns the folder of a package or the file of a module without importing it, which may take seconds, or a GPU; None where it is
    not installed."""
    package, *rest = module.split(".")
    spec = find_spec(package)
    if spec is None:
        return None
    places = [Path(place, *rest) for place in spec.submodule_search_locations or ()]
    if not rest and not places:
        return Path(spec.origin) if spec.has_location and spec.origin else None
    return next((path for place in places for path in (place, place.with_suffix(".py")) if path.exists()), None)


def is_users(path: Path) -> bool:
    """Whether code is the user's: part of neither Python, nor an installed package, nor LongCA."""
    path = path.resolve()
    return not INSTALLED.intersection(path.parts) and not any(path.is_relative_to(place) for place in (*PYTHON, PACKAGE))


def is_covered(path: Path) -> bool:
    """Whether a file of LongCA belongs to a kernel or a method, and not to the framework around them."""
    if not path.is_relative_to(PACKAGE):
        return False
    room, *parts = path.relative_to(PACKAGE).parts
    is_door = len(parts) <= 2 and path.name == "__init__.py"  # of a room, or of a folder in it
    return room in ROOMS and not is_door and not (path.suffix == ".py" and _is_framework(path))


@cache
def _is_framework(file: Path) -> bool:
    return file.is_file() and FRAMEWORK in file.read_bytes()


@contextmanager
def recording_imports(module: str) -> Iterator[None]:
    """Records which modules an import loads, by whatever means."""
    before = set(sys.modules)
    try:
        yield
    finally:
        new = [sys.modules[name] for name in set(sys.modules) - before]
        files = [vars(loaded).get("__file__") for loaded in new if isinstance(loaded, ModuleType)]
        _imported.setdefault(module, set()).update(path for file in files if isinstance(file, str) and is_users(path := Path(file)))


def shadowing_module(file: Path) -> Path | None:
    """Returns the file of a loaded module that has the name of another one beside `file` which `file` imports: it would get the wrong
    one. None where there is no such module."""
    beside = {path.stem: path for path in imports_of(file) if path.parent == file.parent and path != file}
    loaded = {name: getattr(sys.modules.get(name), "__file__", None) for name in beside}
    return next((Path(other) for name, other in loaded.items() if other and Path(other).resolve() != beside[name]), None)


def _reached(roots: Iterable[Path]) -> set[Path]:
    """Returns the files and folders among the roots that a version covers, and those that they import."""
    reached, left = set[Path](), _covered(roots)
    while left:
        path = left.pop()
        if path not in reached:
            reached.add(path)
            left += _covered_imports(path) if path.suffix == ".py" else ()
    return reached


def _covered(paths: Iterable[Path]) -> list[Path]:
    """Returns those of the paths that exist and that a version covers."""
    resolved = dict.fromkeys(path.resolve() for path in dict.fromkeys(paths))
    return [path for path in resolved if path.exists() and (is_users(path) or is_covered(path))]


@cache
def _covered_imports(file: Path) -> list[Path]:
    return _covered(imports_of(file))


@cache
def imports_of(file: Path) -> list[Path]:
    """Returns the files that import statements anywhere in a file name: kernels often import slow modules only in `prepare`. A process
    reads each file once, as it runs what it imported and not a later edit."""
    try:
        nodes = list(_statements(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):  # importing the file will report what is wrong with it
        return []
    files: list[Path] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            files += [path for alias in node.names for path in _absolute(alias.name.split("."), file)]
        elif isinstance(node, ast.ImportFrom):
            package = node.module.split(".") if node.module else []
            for alias in node.names if node.level <= len(file.parents) else ():
                parts = [*package, alias.name]
                files += _below(file.parents[node.level - 1], parts) if node.level else _absolute(parts, file)
    return files


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Returns all statements below a node. Expressions, which are most nodes, hold none and are passed over."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


def _absolute(parts: list[str], importer: Path) -> list[Path]:
    """Returns the files of a module by its full name: in LongCA, or beside a plugin that imports it and wherever Python finds it."""
    if parts[0] == PACKAGE.name:
        return _own_files(tuple(parts))
    if importer.is_relative_to(PACKAGE) or parts[0] in sys.stdlib_module_names or parts[0] in NUMBERED:
        return []
    files, top = _below(importer.parent, parts), None
    with suppress(ValueError, ImportError):  # a module without a spec, such as the program itself
        top = module_path(parts[0])
    if top is not None and is_users(top):
        files += [top] if top.is_file() else [*_files(top), *_below(top, parts[1:])]
    return files


@cache
def _own_files(parts: tuple[str, ...]) -> list[Path]:
    """Returns the files of all packages of LongCA on the way to a module, and its own. They do not change while it runs."""
    return [file for count in range(1, len(parts) + 1) for file in _python_file(PACKAGE.parent.joinpath(*parts[:count]))]


def _below(folder: Path, parts: list[str]) -> list[Path]:
    """Returns the files of all packages on the way to a module, and its own."""
    return [file for count in range(1, len(parts) + 1) for file in _files(folder.joinpath(*parts[:count]))]


def _files(module: Path) -> list[Path]:
    """Returns the file of a package or else of a module, as Python does, and compiled ones, which have more in their names."""
    compiled = [] if module.name == "*" else sorted(module.parent.glob(f"{module.name}.*.so"))
    return _python_file(module) + compiled


def _python_file(module: Path) -> list[Path]:
    usual = [module / "__init__.py", module.with_name(f"{module.name}.py")]
    return [file for file in usual if file.is_file()][:1]
