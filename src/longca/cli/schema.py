"""`longca schema`: the JSON schema of the files of a journal."""

from __future__ import annotations

import argparse

from longca.cli._tables import print_json

HELP = "print the JSON schema of journals: results.jsonl, masks.jsonl and env.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments."""


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import schema

    print_json(schema(), indent=2)
    return 0
