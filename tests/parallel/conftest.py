"""Pools of gloo ranks that all tests of this folder share: each rank imports torch, which takes two seconds."""

from collections.abc import Iterator

import pytest

from longca.processes.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool(4) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def pair() -> Iterator[Pool]:
    with Pool(2) as ranks:
        yield ranks
