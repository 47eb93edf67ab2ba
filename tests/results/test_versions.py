"""Which records are of older code."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from longca.kernels import registry
from longca.results import versions
from longca.results.schema import decode_record
from report.made import kernel, line, split

VERSIONS = {"code": "new", "torch": "2.11"}


@pytest.fixture(autouse=True)
def _codes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "versions", lambda kernel: VERSIONS)
    monkeypatch.setattr(versions, "_method_code", lambda name: "new method")
    versions._kernel_code.cache_clear()
    yield
    versions._kernel_code.cache_clear()  # of made up versions


def is_older(record: dict[str, Any], **fields: Any) -> bool:
    return versions.is_older(decode_record(line(record | fields).encode()))


@pytest.mark.parametrize(
    ("kept", "older"),
    [(None, True), ({}, True), ({"code": "old"}, True), ({"code": "new"}, False), ({"code": "new", "torch": "2.9"}, False)],
)
def test_a_record_of_other_code_is_older(kept: dict[str, str] | None, older: bool) -> None:
    assert is_older(kernel("fa4:bands", [1.0]), versions=kept) is older


def test_a_method_has_code_too() -> None:
    record = split("usp", 1.0)
    assert is_older(record)
    assert is_older(record, versions={"code": "new", "method_code": "old"})
    assert is_older(record, versions={"code": "old", "method_code": "new method"})
    assert not is_older(record, versions={"code": "new", "method_code": "new method"})


def test_what_is_not_known_here_is_never_older() -> None:
    assert not is_older(kernel("somebodys", [1.0]))
    assert not is_older(kernel("fa4:unheard_of", [1.0]))
    assert not is_older(split("somebodys_method", 1.0))
    assert not is_older(split("usp", 1.0, simulated="h100-ib"))


def test_a_kernel_that_cannot_tell_its_version_is_not_older(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(kernel: object) -> dict[str, str]:
        raise PackageNotFoundError("flash-attn-4")

    monkeypatch.setattr(registry, "versions", not_installed)
    assert not is_older(kernel("fa4:bands", [1.0]), versions={"code": "old"})
