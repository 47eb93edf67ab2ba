"""Refusing empty arguments: a variable of a CI script that is not set."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from longca.errors import BadInput


def refuse_empty(args: argparse.Namespace, positional: Mapping[str, str] | None = None) -> None:
    """Raises BadInput where an argument is an empty text. `positional` has the shown names of arguments without a flag."""
    names = positional or {}
    for name, value in vars(args).items():
        values = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and not text.strip() for text in values):
            shown = names.get(name, f"--{name.rstrip('_').replace('_', '-')}")
            raise BadInput(f"{shown} is empty; give a value, or leave it out.")
