"""`longca doctor`: what this machine can do, what disturbs measurements, what to install."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_device, add_json
from longca.cli._tables import show

HELP = "show what this machine can measure, what disturbs measurements, and what to install"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_device(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from longca.api.doctor import doctor
    from longca.devices import gpus

    show(doctor(args.device), args.json)
    return 0 if args.device != "cuda" or gpus() else 1
