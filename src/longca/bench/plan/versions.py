"""The versions that are part of a cell's key: torch's, those of the kernel's packages, and the code versions of kernel and method."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from longca.kernels import registry

CODE, METHOD_CODE = "code", "method_code"


@cache
def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def kernel_versions(label: str) -> dict[str, str]:
    return {"torch": installed("torch") or ""} | registry.versions(registry.get(label))


def method_versions(name: str) -> dict[str, str]:
    """The code version of a method; of another project's method also the version of its package."""
    from longca.parallel import registry as methods

    package = methods.classes()[name].package.partition(">")[0]
    theirs = {package: installed(package) or ""} if package and package != "torch" else {}
    return {METHOD_CODE: methods.code_version(name)} | theirs
