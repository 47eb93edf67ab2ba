"""Memory that the harness needs for itself: where there is none, the kernel is not to blame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from longca.errors import NoMemory, is_out_of_memory
from longca.text import asked_memory, with_remark

INPUTS, REFERENCE, CHECK = "the inputs", "the reference of the check", "the check"
ADVICE = "the kernel is not to blame: give shorter --seqlens or fewer --heads, or use a device with more memory"


@contextmanager
def memory_for(step: str) -> Iterator[None]:
    """Names the step in the error that is raised where its memory runs out; no kernel may be called in it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NoMemory) or not is_out_of_memory(error):
            raise
        words = asked_memory(str(error)) or str(error)
        raise NoMemory(with_remark(f"no memory for {step}{f': {words}' if words else ''}", ADVICE)) from error
