"""A user's own file: imported once, as a module of its own, and searched for what it defines."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

from longca.errors import BadInput, LongcaError
from longca.sources import imported_by, namesake, noting

PREFIX = "longca_plugin_"
NAME = re.compile(r"\w[\w.-]*")


def import_file(path: str | Path, wanted: str) -> ModuleType:
    """The module in a file; `wanted` says what should be in it, for the sentence where there is no such file.

    Its folder becomes the first place where modules are looked for, as with `python FILE`, and stays it: a kernel may import what lies
    beside it only when it is prepared.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise BadInput(f"there is no plugin file {path}; give the path of a Python file with a {wanted} in it.")
    spec = importlib.util.spec_from_file_location(module_name(path), path)
    if spec is None or spec.loader is None:
        raise BadInput(f"the plugin {path} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    if path in imported_by(path):
        raise BadInput(f"the plugin {path} imports a module {path.stem!r}, and would find itself by that name; rename the file.")
    if other := namesake(path):
        raise BadInput(f"the plugin {path} imports its own {other.name}, but {other} is imported by that name already; rename one of them.")
    sys.modules[spec.name] = module
    sys.path[:] = [str(path.parent), *(entry for entry in sys.path if entry != str(path.parent))]
    try:
        with noting(spec.name):
            spec.loader.exec_module(module)
    except LongcaError:
        raise
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the plugin {path} needs the module {error.name!r}, which is not found{place(error)}; put it into the plugin's folder, "
            "or install the package that it is part of."
        ) from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"the plugin {path} fails when it is imported: {type(error).__name__}: {error}{place(error)}") from error
    return module


def module_name(path: str | Path) -> str:
    """What a plugin is called among the modules; two files may have one name."""
    path = Path(path).resolve()
    return f"{PREFIX}{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"


def place(error: BaseException) -> str:
    """Where in a plugin an error was raised or passed through last, as words behind a message; empty where no plugin is part of it."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(PREFIX):
            found = f" ({Path(trace.tb_frame.f_code.co_filename).name} line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def defined_in(place: Any, kind: Any) -> dict[str, Any]:
    """The classes of a kind, by name: a class itself, or those that a module defines; what it only imports belongs to another."""
    return {name: found for found in _classes(place, kind) if (name := getattr(found, "name", ""))}


def nameless_in(place: Any, kind: Any) -> list[type]:
    """Classes of a kind that nobody can ask for and that no other class builds on: their author forgot the name."""
    own = _classes(place, kind)
    return [found for found in own if not getattr(found, "name", "") and not any(found in other.__mro__[1:] for other in own)]


def refuse_same_names(place: Any, kind: Any, path: str | Path, what: str) -> None:
    """Of two that share a name only one could be asked for; a class that another builds on has its name on loan."""
    own = [found for found in _classes(place, kind) if getattr(found, "name", "")]
    for first, second in combinations(own, 2):
        if first.name == second.name and not (issubclass(first, second) or issubclass(second, first)):
            raise BadInput(f"the plugin {path} has two {what}s of the name {first.name!r}; choose another name for one.")


def _classes(place: Any, kind: Any) -> list[Any]:
    classes = [place] if isinstance(place, type) else [value for value in vars(place).values() if isinstance(value, type)]
    return [found for found in classes if issubclass(found, kind) and (found is place or found.__module__ == place.__name__)]


def refuse_odd_name(name: object, path: str | Path, what: str) -> None:
    """A name stands between commas, before a colon, and in file names."""
    if not (isinstance(name, str) and NAME.fullmatch(name)) or name == "all":
        raise BadInput(f"the plugin {path} calls its {what} {name!r}; a name is made of letters, digits, _, - and ., and is not 'all'.")


def refuse_taken(found: Mapping[str, Any], taken: Mapping[str, Any], path: str | Path, what: str) -> None:
    for name in found:
        if name in taken:
            raise BadInput(f"the plugin {path} calls its {what} {name!r}, which is a {what} of LongCA; choose another name.")


def refuse_twice(found: Mapping[str, Any], plugged: Mapping[str, Any], path: str | Path, what: str) -> None:
    """Two files with one name would be measured under it without a word; the same file again is no harm."""
    for name in found:
        if name in plugged and plugged[name].__module__ != found[name].__module__:
            raise BadInput(f"the plugin {path} calls its {what} {name!r}, as another plugin does; choose another name.")
