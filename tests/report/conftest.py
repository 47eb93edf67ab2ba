"""A browser."""

import os
from collections.abc import Iterator

import pytest

from report.browser import Browser, missing


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing() and os.environ.get("CI") != "true":
        pytest.skip(f"{' and '.join(missing())} not installed; on Debian: apt-get install chromium chromium-driver")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
