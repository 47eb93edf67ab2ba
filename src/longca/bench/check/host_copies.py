"""Copies between a GPU and the host through a pinned buffer: a GPU writes to it at full speed, and many threads copy from there.

Without one, a single thread of the driver does that, and also waits for every page of new memory.
"""

from __future__ import annotations

import torch


def copy_into(place: torch.Tensor, part: torch.Tensor) -> None:
    """Copies a part to its place, which may lie on another device."""
    place.copy_(_pinned(part) if part.is_cuda and place.device.type == "cpu" else part)


def to(device: torch.device, x: torch.Tensor) -> torch.Tensor:
    """The tensor on this device."""
    return (_pinned(x) if x.device.type == "cpu" and device.type == "cuda" else x).to(device)


def _pinned(x: torch.Tensor) -> torch.Tensor:
    """A dense copy: `Tensor.pin_memory` would pin all that lies between the elements of a slice. Torch keeps the memory for the next one.
    Where no memory can be pinned, the tensor itself."""
    try:
        buffer = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    except RuntimeError:
        return x
    return buffer.copy_(x)
