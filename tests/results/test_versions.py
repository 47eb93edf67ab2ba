"""Which records are of older code."""

from collections.abc import Iterator
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
    monkeypatch.setattr(versions, "_method_code", {"usp": "new method"}.get)
    versions._kernel_code.cache_clear()
    yield
    versions._kernel_code.cache_clear()  # of made up versions


def is_older(record: dict[str, Any], **fields: Any) -> bool:
    return versions.is_older(decode_record(line(record | fields).encode()))


@pytest.mark.parametrize(
    ("record", "kept", "older"),
    [
        *((kernel("fa4:bands", [1.0]), kept, True) for kept in (None, {}, {"code": "old"})),
        *((kernel("fa4:bands", [1.0]), {"code": "new"} | torch, False) for torch in ({}, {"torch": "2.9"})),
        (split("usp", 1.0), None, True),
        (split("usp", 1.0), {"code": "new", "method_code": "old"}, True),
        (split("usp", 1.0), {"code": "old", "method_code": "new method"}, True),
        (split("usp", 1.0), {"code": "new", "method_code": "new method"}, False),
        # what is not known here, and what was simulated, is never older
        *((record, None, False) for record in (kernel("somebodys", [1.0]), kernel("fa4:unheard_of", [1.0]))),
        *((record, None, False) for record in (split("somebodys_method", 1.0), split("usp", 1.0, simulated="h100-ib"))),
    ],
)
def test_which_records_are_of_older_code(record: dict[str, Any], kept: dict[str, str] | None, older: bool) -> None:
    assert is_older(record, versions=kept) is older
