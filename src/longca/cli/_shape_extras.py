"""Flags for properties of some models besides heads and head sizes; `run`, `verify`, `plan` and `simulate` share them."""

from __future__ import annotations

import argparse


def add_shape_extras(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--softcap", type=float, metavar="C", help="cap scores: s becomes C * tanh(s / C), such as 50 for Gemma 2")
    parser.add_argument("--sinks", action="store_true", default=None, help="attention sinks: a learned logit per query head, as in gpt-oss")
    parser.add_argument("--scale", type=float, metavar="X", help="the factor of the scores (default: 0, which means 1/sqrt(head size))")
    parser.add_argument("--model", metavar="NAME", help="heads, head size, window, softcap and sinks of a model (`longca ls models`)")
