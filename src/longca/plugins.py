"""Loading a user's plugin file: it is imported once, as a module of its own, and searched for the classes that it defines."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

from longca.code_version import imports_of, recording_imports, shadowing_module
from longca.errors import BadInput, LongcaError
from longca.text import short

PREFIX = "longca_plugin_"
NAME = re.compile(r"\w[\w.-]*")


def import_file(path: str | Path, wanted: str) -> ModuleType:
    """Returns the module in a file; `wanted` names what it should hold, for the message about a file that does not exist.

    The file's folder becomes the first entry of sys.path, as with `python FILE`, and stays there: a kernel may import a module beside it
    only when it is prepared.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise BadInput(f"there is no plugin file {path}; give the path of a Python file with a {wanted} in it.")
    spec = importlib.util.spec_from_file_location(module_name(path), path)
    if spec is None or spec.loader is None:
        raise BadInput(f"the plugin {path} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    if path in imports_of(path):
        raise BadInput(f"the plugin {path} imports a module {path.stem!r}, and would find itself by that name; rename the file.")
    if other := shadowing_module(path):
        raise BadInput(f"the plugin {path} imports its own {other.name}, but {other} is imported by that name already; rename one of them.")
    sys.modules[spec.name] = module
    sys.path[:] = [str(path.parent), *(entry for entry in sys.path if entry != str(path.parent))]
    try:
        with recording_imports(spec.name):
            spec.loader.exec_module(module)
    except LongcaError as error:
        raise type(error)(f"{str(error).rstrip('.')}{place(error)}.") from error
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the plugin {path} needs the module {error.name!r}, which is not found{place(error)}; put it into the plugin's folder, "
            "or install the package that it is part of."
        ) from error
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"the plugin {path} fails when it is imported: {short(f'{type(error).__name__}: {error}')}{place(error)}."
        ) from error
    return module


def module_name(path: str | Path) -> str:
    """Returns the name of a plugin's module; it differs between two files of one name."""
    path = Path(path).resolve()
    return f"{PREFIX}{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"


def place(error: BaseException) -> str:
    """Returns " (FILE line N)", the last line of a plugin in an error's traceback; empty where no plugin is in it."""
    last, trace = "", error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(PREFIX):
            last = f" ({Path(trace.tb_frame.f_code.co_filename).name} line {trace.tb_lineno})"
        trace = trace.tb_next
    return last


def defined_in(place: Any, kind: Any) -> dict[str, Any]:
    """Returns the named classes of a kind, by name: `place` itself if it is a class, or those that the module `place` defines; a class
    that it only imports belongs to another module."""
    return {name: defined for defined in _classes(place, kind) if (name := getattr(defined, "name", ""))}


def nameless_in(place: Any, kind: Any) -> list[type]:
    """Returns the classes of a kind that have no name and that no other class derives from: nobody could ask for them."""
    own = _classes(place, kind)
    return [defined for defined in own if not getattr(defined, "name", "") and not any(defined in other.__mro__[1:] for other in own)]


def refuse_same_names(place: Any, kind: Any, path: str | Path, what: str) -> None:
    """Raises BadInput where two classes share a name; a class that derives from another may have its name."""
    own = [defined for defined in _classes(place, kind) if getattr(defined, "name", "")]
    for first, second in combinations(own, 2):
        if first.name == second.name and not (issubclass(first, second) or issubclass(second, first)):
            raise BadInput(f"the plugin {path} has two {what}s of the name {first.name!r}; choose another name for one.")


def _classes(place: Any, kind: Any) -> list[Any]:
    values = [place] if isinstance(place, type) else list(vars(place).values())
    listed = [entry for value in values if isinstance(value, list | tuple) for entry in value]  # as a factory makes them
    classes = dict.fromkeys(value for value in [*values, *listed] if isinstance(value, type))
    return [defined for defined in classes if issubclass(defined, kind) and (defined is place or defined.__module__ == place.__name__)]


def refuse_odd_name(name: object, path: str | Path, what: str) -> None:
    """Raises BadInput for a name that cannot stand between commas, before a colon, or in a file name."""
    if not (isinstance(name, str) and NAME.fullmatch(name)) or name == "all":
        raise BadInput(f"the plugin {path} calls its {what} {name!r}; a name is made of letters, digits, _, - and ., and is not 'all'.")


def refuse_taken(defined: Mapping[str, Any], taken: Mapping[str, Any], path: str | Path, what: str) -> None:
    """Raises BadInput where a plugin uses a name of LongCA's own."""
    for name in defined:
        if name in taken:
            raise BadInput(f"the plugin {path} calls its {what} {name!r}, which is a {what} of LongCA; choose another name.")


def refuse_twice(names: Iterable[str], files: Mapping[str, str | Path], path: str | Path, what: str) -> None:
    """Raises BadInput where another plugin file has one of these names; `files` are those of the names that are loaded. One file may be
    loaded twice."""
    for name in names:
        if name in files and Path(files[name]).resolve() != Path(path).resolve():
            raise BadInput(f"the plugins {files[name]} and {path} both have a {what} of the name {name!r}; choose another name for one.")


def files_of(plugged: Mapping[str, type]) -> dict[str, str]:
    """Returns the files that loaded classes come from."""
    return {name: str(sys.modules[defined.__module__].__file__) for name, defined in plugged.items()}
