"""Which files a user's own code is made of: an edit of any of them makes another version, which is measured again."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType

import longca
from longca.kernels.base import code_version, module_path, source_version

OTHERS = [Path(place).resolve() for place in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(longca.__file__).parent)]
NUMBERED = {"torch", "triton", "numpy"}  # their versions are in every key, and a checkout of them has thousands of files
INSTALLED = {"site-packages", "dist-packages"}  # what lies there has a version number
_brought: dict[str, set[Path]] = {}  # by module: the files of the user's own modules that importing it brought in


def is_users(path: Path) -> bool:
    """Whether code is the user's: part of neither Python, nor an installed package, nor LongCA."""
    path = path.resolve()
    return not INSTALLED.intersection(path.parts) and not any(path.is_relative_to(place) for place in OTHERS)


@contextmanager
def noting(module: str) -> Iterator[None]:
    """Remember which modules an import brings in, by whatever means."""
    before = set(sys.modules)
    try:
        yield
    finally:
        new = [sys.modules[name] for name in set(sys.modules) - before]
        files = [vars(one).get("__file__") for one in new if isinstance(one, ModuleType)]
        _brought.setdefault(module, set()).update(Path(file) for file in files if isinstance(file, str))


def namesake(file: Path) -> Path | None:
    """A module that was imported before and has the name of one which lies beside a file that imports it: the file would get the wrong
    one without a word."""
    wanted = {path.stem: path for path in imported_by(file) if path.parent == file.parent and path != file}
    loaded = {name: getattr(sys.modules.get(name), "__file__", None) for name in wanted}
    return next((Path(other) for name, other in loaded.items() if other and Path(other).resolve() != wanted[name]), None)


def version(file: Path, module: str = "", more: Iterable[Path] = ()) -> str:
    """A short hash of a file and of all modules of the user's that it imports, at its top or later, that importing `module` brought in,
    and `more`. It does not depend on where they lie, so that machines can be compared."""
    parts = _reached([file, *_brought.get(module, ()), *more]) - {file.resolve()}
    if not parts:
        return source_version([file])
    said = [source_version([file]), *sorted(f"{part.name} {code_version(part)}" for part in parts)]
    return hashlib.blake2b("\n".join(said).encode(), digest_size=8).hexdigest()


def _reached(roots: Iterable[Path]) -> set[Path]:
    """The user's own files, and folders, among the roots, and what these import."""
    found, left = set[Path](), list(roots)
    while left:
        path = left.pop().resolve()
        if path not in found and path.exists() and is_users(path):
            found.add(path)
            left += imported_by(path) if path.suffix == ".py" else ()
    return found


@cache
def imported_by(file: Path) -> list[Path]:
    """What import statements anywhere in a file name: kernels often import what is slow to load only when they are prepared. A process
    looks once: what is edited later it does not run."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):  # importing it will say what is wrong with it
        return []
    found: list[Path] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [path for alias in node.names for path in _absolute(alias.name.split("."), file.parent)]
        elif isinstance(node, ast.ImportFrom):
            package = node.module.split(".") if node.module else []
            for alias in node.names if node.level <= len(file.parents) else ():
                parts = [*package, alias.name]
                found += _below(file.parents[node.level - 1], parts) if node.level else _absolute(parts, file.parent)
    return found


def _absolute(parts: list[str], beside: Path) -> list[Path]:
    """Of a module by its full name: beside the file that asks for it, as in a plugin's folder, and wherever Python finds it."""
    if parts[0] in sys.stdlib_module_names or parts[0] in NUMBERED:
        return []
    found, top = _below(beside, parts), None
    with suppress(ValueError, ImportError):  # a module without a spec, such as the program itself
        top = module_path(parts[0])
    if top is not None and is_users(top):
        found += [top] if top.is_file() else [*_files(top), *_below(top, parts[1:])]
    return found


def _below(folder: Path, parts: list[str]) -> list[Path]:
    """The files of all packages on the way to a module, and its own."""
    return [file for count in range(1, len(parts) + 1) for file in _files(folder.joinpath(*parts[:count]))]


def _files(module: Path) -> list[Path]:
    """The file of a package or of a module, if there is one, of which Python takes the first; compiled ones have more in their names."""
    usual = [module / "__init__.py", module.with_name(f"{module.name}.py")]
    compiled = [] if module.name == "*" else sorted(module.parent.glob(f"{module.name}.*.so"))
    return [file for file in usual if file.is_file()][:1] + compiled
