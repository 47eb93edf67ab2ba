"""`longca schema`: the JSON schema of the files of a journal."""

from __future__ import annotations

import argparse

HELP = "print the JSON schema of journals: results.jsonl, masks.jsonl and env.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments."""


def run(args: argparse.Namespace) -> int:
    import msgspec

    from longca.results.schema import json_schema

    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
    return 0
