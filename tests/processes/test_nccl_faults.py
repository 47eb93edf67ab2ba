"""What becomes of NCCL ranks that share a GPU when one of them fails: the reason names it, nothing of them stays, and new ranks work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from longca.errors import Unavailable
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from longca.processes.shared_gpu import MPS, find_library, has_mps
from longca.results.problem import Sharing

pytestmark = pytest.mark.gpu
Gone = Callable[[Iterable[int]], bool]
RANKS = 4


def daemons() -> set[int]:
    """The MPS daemons and servers of this user, private ones and others."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (entry / "comm").exists():
            try:
                command = (entry / "comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if command and (MPS.startswith(command) or command.startswith("nvidia-cuda-mps")):
                found.add(int(entry.name))
    return found


@pytest.fixture(params=["1", "0"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, gone: Gone) -> Iterator[Pool]:
    """Ranks with NCCL's watchdog and without; after the test nothing of them is left."""
    try:
        find_library()
    except Unavailable as error:
        pytest.skip(str(error))
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", request.param)
    before = daemons()
    with Pool(RANKS, "nccl", sharing=Sharing(ranks=RANKS, mps=has_mps())) as ranks:
        processes = [pid for _, pid in ranks.run("processes.nccl_jobs:greet", {}, 60)]
        yield ranks
        processes += [pid for _, pid in ranks.run("processes.nccl_jobs:greet", {}, 60)]  # new ranks work as before
        own = daemons() - before
    assert gone([*processes, *own])


@pytest.mark.parametrize(
    ("job", "seconds", "kind", "words"),
    [
        ("die", 60, "died", "rank 1 was killed by SIGKILL"),
        ("hang", 8, "timeout", "did not answer within 8 s"),
        ("fail", 60, "error", "rank 1 failed: seven is not prime enough"),
        ("take_all_memory", 60, "oom", "rank 1 failed"),
    ],
)
def test_a_rank_that_fails_in_a_collective_is_named(pool: Pool, job: str, seconds: float, kind: str, words: str) -> None:
    with pytest.raises(RankFailed, match=words) as caught:
        pool.run(f"processes.nccl_jobs:{job}", {"rank": 1}, seconds)
    assert caught.value.kind == kind
    assert not pool.running


def test_a_rank_that_never_comes_and_an_error_in_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_library()
    except Unavailable as error:
        pytest.skip(str(error))
    late = "import os, time\nif os.environ.get('NCCL_HOSTID') == 'longca-node-1':\n    time.sleep(1000)\n"
    (tmp_path / "sitecustomize.py").write_text(late)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        late_pool = Pool(2, "nccl", start_s=20, sharing=Sharing(ranks=2, mps=has_mps(), nodes=2))
        with late_pool as pool, pytest.raises(RankFailed, match="did not answer within 20 s"):
            pool.run("processes.nccl_jobs:greet", {}, 60)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=nosuchinterface")
    with Pool(2, "nccl", sharing=Sharing(ranks=2, mps=has_mps())) as pool, pytest.raises(RankFailed, match="NCCL error"):
        pool.run("processes.nccl_jobs:greet", {}, 60)
