"""Masks of users by name: `@longca.mask` makes one of a function, in a plugin file or an installed package (entry point longca.masks)."""

from __future__ import annotations

import ast
import inspect
import keyword
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, overload

from longca.errors import BadInput, LongcaError
from longca.masks.bands import Bands, read_rows, refuse_inverted
from longca.masks.mask import Mask
from longca.masks.pattern import PATTERNS, Pattern, Shape
from longca.masks.random_blocks import BLOCK_PATTERNS
from longca.plugins import import_file, place
from longca.text import short

GROUP = "own"
WORDS = ("all", "every")  # which stand for several masks
OWN: dict[str, Pattern] = {}
_files: dict[str, str] = {}  # by module: the plugin file as the user typed it


@overload
def mask(function: Callable[..., Any], /) -> Pattern: ...


@overload
def mask(*, name: str = ...) -> Callable[[Callable[..., Any]], Pattern]: ...


def mask(plain: Callable[..., Any] | None = None, /, *, name: str = "") -> Pattern | Callable[[Callable[..., Any]], Pattern]:
    """Makes a named mask of `f(seqlen, w=512, ...)`, which returns a Mask, or rows of six numbers (q0, q1, lo, a, hi, b).

    The other arguments of the function are the mask's parameters; their defaults are numbers. An argument `documents` gets the lengths of
    the documents, and an argument `seed` gets the seed. Call the result like any mask of LongCA: `window(8192, w=64)`.
    """

    def decorate(function: Callable[..., Any]) -> Pattern:
        return _register(_pattern(function, name or function.__name__))

    if plain is not None and not callable(plain):
        raise BadInput(f"@longca.mask takes its settings by name, such as name={plain!r}; write that.")
    return decorate if plain is None else decorate(plain)


def _pattern(function: Callable[..., Any], name: str) -> Pattern:
    refuse_name(name)
    parameters = [*inspect.signature(function).parameters.values()]
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise BadInput(f"the mask {name!r} must take the sequence length as its first argument, such as def {name}(seqlen).")
    arguments = {parameter.name: parameter.default for parameter in parameters[1:]}
    special = arguments.keys() & {"documents", "seed"}
    defaults = {parameter: default for parameter, default in arguments.items() if parameter not in special}
    for parameter, default in defaults.items():
        if isinstance(default, bool) or not isinstance(default, int | float):
            raise BadInput(f"the argument {parameter!r} of the mask {name!r} needs a number as default, such as {parameter}=512.")

    def made(shape: Shape, **params: float) -> Bands:
        given = {"documents": list(shape.lengths), "seed": shape.seed}
        try:
            return _bands(function(shape.seqlen, **{key: given[key] for key in special}, **params), name, shape.seqlen)
        except LongcaError as error:
            raise type(error)(f"{name}: {str(error).rstrip('.')}{place(error)}.") from error
        except Exception as error:
            raise BadInput(f"the mask {name!r} fails: {short(f'{type(error).__name__}: {error}')}{place(error)}.") from error

    about = (inspect.getdoc(function) or "").strip() or "a mask of a plugin"
    return Pattern(name, GROUP, about.splitlines()[0].rstrip("."), made, defaults, "documents" in special, None, function.__module__)


def _bands(result: Any, name: str, seqlen: int) -> Bands:
    if isinstance(result, Bands):
        return result
    if isinstance(result, Mask):
        if (result.seqlen_q, result.seqlen_k) != (seqlen, seqlen):
            raise BadInput(f"it returned a mask of {result.seqlen_q}x{result.seqlen_k} tokens, not of {seqlen}x{seqlen}.")
        return result.bands
    if isinstance(result, list | tuple):
        return refuse_inverted(read_rows(result))
    raise BadInput(f"it must return a Mask, or rows of six numbers (q0, q1, lo, a, hi, b), not {type(result).__name__}.")


def refuse_name(name: str) -> None:
    """Raises BadInput for a name that an expression could not hold, or that LongCA uses."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise BadInput(f"a mask cannot be called {name!r}; a name is made of letters, digits and _, as in Python.")
    if name in WORDS or name in PATTERNS or name in BLOCK_PATTERNS:
        raise BadInput(f"a mask of your own cannot be called {name!r}, which is a name of LongCA's; choose another name.")


def _register(made: Pattern) -> Pattern:
    if (other := OWN.get(made.name)) and other.module != made.module:
        raise BadInput(f"two masks are called {made.name!r}, in the modules {other.module} and {made.module}; rename one of them.")
    OWN[made.name] = made
    return made


def load_plugin(path: str | Path) -> list[str]:
    """Imports a user's file and returns the names of its masks."""
    module = import_file(path, "mask")
    _files[module.__name__] = str(path)
    return of_module(module.__name__)


def of_module(module: str) -> list[str]:
    """Returns the names of the masks that a module defines."""
    return [name for name, made in OWN.items() if made.module == module]


def files() -> dict[str, list[str]]:
    """Returns the loaded plugin files that define masks, as they were typed, with the names of these."""
    return {path: names for module, path in _files.items() if (names := of_module(module))}


def mentioned_in(path: str | Path) -> bool:
    """Returns whether a Python file may define masks: it uses `longca.mask`, under any name of the module, or cannot be parsed, which
    importing it will tell. It is read, not imported."""
    try:
        tree = ast.parse(Path(path).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return not isinstance(error, OSError)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "mask" and isinstance(node.value, ast.Name) and node.value.id != "self":
            return True  # `self.mask` is what classes of kernels keep
        imported = node.names if isinstance(node, ast.ImportFrom) and str(node.module).startswith("longca") else []
        if any(alias.name == "mask" for alias in imported):
            return True
    return False


@cache
def load_installed() -> None:
    """Imports the modules that installed packages name as `longca.masks`; a package that cannot be imported offers none."""
    for entry in entry_points(group="longca.masks"):
        try:
            entry.load()
        except Exception as error:  # a broken package of somebody else must not hide the others
            broken[entry.name] = f"{type(error).__name__}: {error}"


broken: dict[str, str] = {}  # by entry point: why an installed mask cannot be loaded
