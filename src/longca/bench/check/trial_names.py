"""The names of the trials of `longca verify`, for processes that do not import torch."""

from __future__ import annotations

from enum import StrEnum

TRIAL_TOKENS = 256


class TrialName(StrEnum):
    """What is tried once per kernel besides its masks."""

    NO_GRAD = "forward under no_grad"
    SCALE = "another scale"
    SOFTCAP = "capped scores"
    SINKS = "attention sinks"
    BLIND_ROWS = "rows without keys"
    RING = "out and lse of all ring steps"
    STRIDED = "strided inputs"
    STREAM = "another stream"
    LATER = "later calls in the same memory"
    GUARDED = "memory around tensors"


OPTIONAL = (TrialName.SOFTCAP, TrialName.SINKS)  # a kernel without them is none the worse, so a refused trial is skipped


def trials_on(device: str) -> list[TrialName]:
    """The trials of a device."""
    return [name for name in TrialName if name is not TrialName.STREAM or device == "cuda"]
