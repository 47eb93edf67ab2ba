"""Journals made for a test."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from longca import masks
from longca.bench.journal import describe_mask
from report.browser import Browser, missing
from report.made import ENVIRONMENT, Record


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a journal and returns its folder."""

    def _write(name: str, records: Iterable[Record], environment: Record | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (folder / "env.json").write_text(json.dumps({"e": ENVIRONMENT | (environment or {})}))
        drawn = [masks.build(mask, 8192, seed=0) for mask in ("causal", "causal_document")]
        (folder / "masks.jsonl").write_text("".join(json.dumps(describe_mask(mask)) + "\n" for mask in drawn))
        return folder

    return _write


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing() and os.environ.get("CI") != "true":
        pytest.skip(f"{' and '.join(missing())} not installed; on Debian: apt-get install chromium chromium-driver")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
