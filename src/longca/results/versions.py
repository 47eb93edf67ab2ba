"""Whether a record was measured with an older version of the kernel's or the method's code than this LongCA has."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError

from longca.errors import LongcaError
from longca.kernels import registry
from longca.results.record import Record


def is_older(record: Record) -> bool:
    """Whether the measured code differs from that of this LongCA, or the record is from before code versions were kept.

    A kernel or method that is not known here, such as that of a plugin that is not loaded, is never older; nor is a simulated record, or
    one of a kernel that cannot tell its version here.
    """
    if record.simulated or (record.method and not _is_known_method(record.method)):
        return False
    versions, code = record.versions, _kernel_code(record.label)
    if code is None:
        return False
    if versions is None or versions.get("code") != code:
        return True
    return record.method is not None and versions.get("method_code") != _method_code(record.method)


@cache
def _kernel_code(label: str) -> str | None:
    """The version of a kernel's code; None where the kernel is not known here, or needs the version of a package that is not installed."""
    with suppress(LongcaError, PackageNotFoundError):
        return registry.versions(registry.get(label)).get("code")
    return None


@cache
def _is_known_method(name: str) -> bool:
    from longca.parallel import registry as methods

    return name in methods.names()


@cache
def _method_code(name: str) -> str:
    from longca.parallel import registry as methods

    return methods.code_version(name)
