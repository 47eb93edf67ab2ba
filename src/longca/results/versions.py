"""Whether a record was measured with an older version of the kernel's or the method's code than this LongCA has."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from longca.errors import LongcaError
from longca.kernels import registry
from longca.results.record import Record


def is_older(record: Record) -> bool:
    """Whether the measured code differs from that of this LongCA, or the record is from before code versions were kept.

    A kernel or method that is not known here, such as that of a plugin that is not loaded, is never older; nor is a simulated record.
    """
    here = {"code": _kernel_code(record.label)}
    if record.method:
        here["method_code"] = _method_code(record.method)
    if record.simulated or None in here.values():
        return False
    return any((record.versions or {}).get(name) != code for name, code in here.items())


@cache
def _kernel_code(label: str) -> str | None:
    """The version of a kernel's code; None where the kernel is not known here."""
    with suppress(LongcaError):
        return registry.versions(registry.get(label)).get("code")
    return None


@cache
def _method_code(name: str) -> str | None:
    """The version of a method's code; None where the method is not known here."""
    from longca.parallel import registry as methods

    return methods.code_version(name) if name in methods.names() else None
