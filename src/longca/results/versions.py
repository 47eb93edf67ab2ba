"""Whether a record was measured with an older version of the kernel's or the method's code than this LongCA has."""

from __future__ import annotations

from functools import cache

from longca.errors import LongcaError
from longca.kernels import registry
from longca.results.record import Record


def is_older(record: Record) -> bool:
    """Whether the measured code differs from that of this LongCA, or the record is from before code versions were kept.

    A kernel or method that is not known here, such as that of a plugin that is not loaded, is never older; nor is a simulated record.
    """
    if record.simulated or not _is_known(record.label) or (record.method and not _is_known_method(record.method)):
        return False
    versions = record.versions
    if versions is None or versions.get("code") != _kernel_code(record.label):
        return True
    return record.method is not None and versions.get("method_code") != _method_code(record.method)


@cache
def _is_known(label: str) -> bool:
    try:
        registry.get(label)
    except LongcaError:
        return False
    return True


@cache
def _kernel_code(label: str) -> str | None:
    return registry.versions(registry.get(label)).get("code")


@cache
def _is_known_method(name: str) -> bool:
    from longca.parallel import registry as methods

    return name in methods.names()


@cache
def _method_code(name: str) -> str:
    from longca.parallel import registry as methods

    return methods.code_version(name)
