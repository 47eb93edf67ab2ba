"""Journals made for a test, and a browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from journals import Write, writer
from report.browser import Browser, missing


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing() and os.environ.get("CI") != "true":
        pytest.skip(f"{' and '.join(missing())} not installed; on Debian: apt-get install chromium chromium-driver")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
