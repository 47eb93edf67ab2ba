"""Journals made for a test."""

from pathlib import Path

import pytest

from journals import Write, writer


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)
