"""Pools of ranks that all tests of this folder share: each rank imports torch, which takes two seconds."""

from collections.abc import Iterator

import pytest

from longca.errors import Unavailable
from longca.processes.pool import Pool
from longca.processes.shared_gpu import find_library, has_mps
from longca.results.problem import Sharing


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool(4) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def nccl_pool() -> Iterator[Pool]:
    """NCCL ranks that share the first GPU."""
    try:
        find_library()
    except Unavailable as error:
        pytest.skip(str(error))
    with Pool(4, "nccl", sharing=Sharing(ranks=4, mps=has_mps())) as ranks:
        yield ranks


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def ranks(request: pytest.FixtureRequest) -> Pool:
    """Gloo ranks, or NCCL ranks that share a GPU."""
    return request.getfixturevalue("pool" if request.param == "cpu" else "nccl_pool")  # type: ignore[no-any-return]
