"""Zones around the tensors that a kernel allocates through torch, which nobody may write to.

A kernel that writes a few bytes past out changes what lies there, and its own results show nothing of it. So its allocations are replaced
by larger ones, with bytes before and behind whose values are known. What a library allocates without torch's operations has no zones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ZONE, BYTE = 4096, 0xA5  # bytes on each side, and the value of each: no number that kernels write
KINDS = ("empty", "zeros", "ones", "full")
ALLOCATES = {form.format(kind) for kind in KINDS for form in ("{}", "{}_like", "new_{}", "{}_strided", "new_{}_strided")}


class Guarded(TorchDispatchMode):
    """While it is on, tensors are allocated with zones around them; they are held until the end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held: list[tuple[torch.Tensor, torch.Tensor]] = []  # the whole memory, and the tensor in it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        is_dense = type(made) is torch.Tensor and not made.is_meta and made.numel() > 0
        if func.overloadpacket.__name__ not in ALLOCATES or not is_dense:
            return made
        size = made.untyped_storage().nbytes()
        whole = torch.full((ZONE + size + -size % ZONE + ZONE,), BYTE, dtype=torch.uint8, device=made.device)
        place = torch.empty(0, dtype=made.dtype, device=made.device)
        place.set_(whole.untyped_storage(), ZONE // made.element_size(), made.shape, made.stride())
        place.copy_(made)
        self._held.append((whole, place))
        return place

    @property
    def problem(self) -> str:
        """What was written outside of a tensor, in words; empty where nothing was."""
        for whole, place in self._held:
            size = place.untyped_storage().nbytes()
            used = 1 + sum((length - 1) * stride for length, stride in zip(place.shape, place.stride(), strict=True))
            last = ZONE + used * place.element_size()
            changed = whole != BYTE
            for words, count in (("before the start", int(changed[:ZONE].sum())), ("behind the end", int(changed[last:size].sum()))):
                if count:
                    what = f"{list(place.shape)} {str(place.dtype).removeprefix('torch.')}"
                    return f"it writes {words} of a tensor that it allocates ({what}): {count} bytes are changed"
        return ""


def eagerly() -> AbstractContextManager[object]:
    """Compiled functions run as they are written: they cannot be compiled while allocations are replaced."""
    stance: Callable[[str], AbstractContextManager[object]] | None = getattr(torch.compiler, "set_stance", None)
    return nullcontext() if stance is None else stance("force_eager")
