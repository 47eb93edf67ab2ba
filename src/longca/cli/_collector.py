"""Python's garbage collector, paused while a large journal is read: it would look at every record again and again, and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor does it look at what is left when the command ends
        if enabled:
            gc.enable()
