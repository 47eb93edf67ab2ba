"""Ranks that share a GPU: which NCCL they get, what they are started with, and what becomes of their MPS daemon. Without a GPU a small
library and a script stand in for NCCL and the daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from longca.errors import Unavailable
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from longca.processes.shared_gpu import find_library, loaded_version, rank_environment, start_mps
from longca.results.problem import Sharing

Gone = Callable[[Iterable[int]], bool]
DAEMON = """#!/bin/sh
if [ "$1" = -d ]; then
    test -z "$LD_PRELOAD" || { echo "it got a preload"; exit 1; }
    test -d "$CUDA_MPS_LOG_DIRECTORY" || exit 1
    setsid sleep 1000 > /dev/null 2>&1 < /dev/null &
    echo $! > "$TOLD"
else
    read asked
    echo "$asked" >> "$TOLD.asked"
    case "$asked" in *-t*) kill $(cat "$TOLD") ;; esac
fi
"""


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Libraries that say they are some NCCL, by version."""
    built = {}
    for name, number in {"2.28.9": 22809, "2.32.3": 23203}.items():
        folder = tmp_path_factory.mktemp("nccl")
        (folder / "nccl.c").write_text(f"int ncclGetVersion(int *v) {{ *v = {number}; return 0; }}")
        built[name] = folder / "libnccl.so.2"
        compiled = subprocess.run(["cc", "-shared", "-fPIC", "-o", built[name], folder / "nccl.c"], check=False)
        if compiled.returncode:
            pytest.skip("no C compiler")
    return built


@pytest.fixture
def told(tmp_path: Path, nccl: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the daemon writes its number; NCCL and the daemon are found."""
    script = tmp_path / "nvidia-cuda-mps-control"
    script.write_text(DAEMON)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.setenv("LONGCA_NCCL", str(nccl["2.32.3"]))
    return tmp_path / "told"


def test_an_nccl_that_can_is_found_or_what_to_install_is_said(
    nccl: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_library({"LONGCA_NCCL": str(nccl["2.32.3"])}) == nccl["2.32.3"]
    for wrong in (nccl["2.28.9"], tmp_path / "none.so", Path(__file__)):
        with pytest.raises(Unavailable, match=r"LONGCA_NCCL is .*; ranks share a GPU with NCCL 2\.30 or newer: install it with `pip"):
            find_library({"LONGCA_NCCL": str(wrong)})
    entries = [tmp_path / name for name in nccl]
    for entry, library in zip(entries, nccl.values(), strict=True):
        (entry / "nvidia/nccl/lib").mkdir(parents=True)
        (entry / "nvidia/nccl/lib/libnccl.so.2").symlink_to(library)
    monkeypatch.setattr(sys, "path", [*map(str, entries)])
    assert find_library({}) == nccl["2.32.3"]  # the newest, wherever it stands
    monkeypatch.setattr(sys, "path", [str(entries[0])])
    with pytest.raises(Unavailable, match=r"here is NCCL 2\.28\.9; install"):
        find_library({})


def test_the_version_is_that_of_the_library_that_is_loaded(nccl: dict[str, Path]) -> None:
    code = f"from {loaded_version.__module__} import loaded_version; print(loaded_version())"
    own = f"import ctypes; ctypes.CDLL({str(nccl['2.28.9'])!r}); {code}"  # as torch loads its own
    for preload, program, version in (("", code, ""), ("", own, "2.28.9"), (str(nccl["2.32.3"]), own, "2.32.3")):
        environment = os.environ | {"LD_PRELOAD": preload}
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
        assert answer.stdout.strip() == version


def test_shares_and_nodes(told: Path) -> None:
    """Shares fit on the GPU together; nodes have neighbours, as many each."""
    for ranks in (2, 3, 8, 16):
        of_ranks = [rank_environment(Sharing(ranks=ranks), told.parent, rank, ranks) for rank in range(ranks)]
        assert sum(int(each["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) for each in of_ranks) <= 100
    nodes = [rank_environment(Sharing(nodes=2), None, rank, 6) for rank in range(6)]
    assert [len({entry["NCCL_HOSTID"] for entry in part}) for part in (nodes[:3], nodes[3:], nodes)] == [1, 1, 2]
    assert all(set(entry) == {"NCCL_HOSTID"} for entry in nodes)  # whole GPUs


@pytest.mark.slow
def test_ranks_of_a_pool_share_a_daemon_which_ends_with_them(told: Path, nccl: dict[str, Path], gone: Gone) -> None:
    with Pool(2, sharing=Sharing(ranks=2)) as pool:
        for has_failed in (False, True):
            settings = pool.run("processes.services:environment", {}, 60)
            daemon = int(told.read_text())
            os.kill(daemon, 0)  # it is there
            assert {entry["LD_PRELOAD"] for entry in settings} == {str(nccl["2.32.3"])}
            assert len({entry["CUDA_MPS_PIPE_DIRECTORY"] for entry in settings}) == 1
            assert {entry["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for entry in settings} == {"50"}
            folder = Path(settings[0]["CUDA_MPS_PIPE_DIRECTORY"]).parent
            if not has_failed:
                with pytest.raises(RankFailed, match="killed by SIGKILL"):
                    pool.run("parallel.jobs:die", {"rank": 1}, 60)
                assert gone([daemon])  # the next job gets new ranks and a new daemon
    assert gone([daemon])
    assert not folder.exists()
    assert Path(f"{told}.asked").read_text().split() == ["quit", "quit"]


def test_a_daemon_ends_with_a_process_that_is_killed(told: Path, tmp_path: Path, gone: Gone) -> None:
    program = tmp_path / "holder.py"
    program.write_text(
        "import time\nfrom longca.processes.shared_gpu import start_mps\nfrom longca.results.problem import Sharing\n"
        "daemon = start_mps(Sharing(ranks=2))\nprint('started', flush=True)\ntime.sleep(1000)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"started\n"
        daemon = int(told.read_text())
        os.kill(daemon, 0)  # it is there
        holder.send_signal(signal.SIGKILL)
    assert gone([daemon])


def test_a_daemon_ends_where_its_guard_is_killed(told: Path, gone: Gone) -> None:
    daemon = start_mps(Sharing(ranks=2))
    assert daemon is not None
    os.kill(daemon._guard.pid, signal.SIGKILL)
    assert gone([int(told.read_text())])
    assert Path(f"{told}.asked").read_text() == "quit -t 5\n"
    daemon.close()


def test_a_daemon_that_does_not_start_is_told(told: Path) -> None:
    (told.parent / "nvidia-cuda-mps-control").write_text("#!/bin/sh\necho 'An instance of this daemon is already running'\nexit 1\n")
    with Pool(2, sharing=Sharing(ranks=2)) as pool, pytest.raises(Unavailable, match="did not start: An instance of this daemon"):
        pool.run("parallel.jobs:greet", {}, 60)


def test_a_daemon_ends_where_no_rank_can_start(told: Path, nccl: dict[str, Path], monkeypatch: pytest.MonkeyPatch, gone: Gone) -> None:
    monkeypatch.setenv("LONGCA_NCCL", str(nccl["2.28.9"]))
    pool = Pool(2, sharing=Sharing(ranks=2))
    with pytest.raises(Unavailable, match=r"NCCL 2\.28\.9"):
        pool.run("parallel.jobs:greet", {}, 60)
    assert gone([int(told.read_text())])


def test_a_launched_rank_starts_again_with_what_nccl_needs_and_the_first_one_keeps_the_daemon(
    told: Path, tmp_path: Path, nccl: dict[str, Path], gone: Gone
) -> None:
    program = tmp_path / "rank.py"
    program.write_text(
        "import os, sys\nfrom longca.parallel.joining import launched\nfrom longca.processes.shared_gpu import as_launched\n"
        "from longca.results.problem import Sharing\n"
        "with as_launched(Sharing(ranks=2, nodes=2), launched()):\n"
        "    print(*sys.argv[1:], os.environ['LD_PRELOAD'], os.environ['NCCL_HOSTID'], os.environ['CUDA_MPS_PIPE_DIRECTORY'], flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    shared = os.environ | {"TMPDIR": str(tmp_path), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), "a", "--b"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (1, 0)
    ]
    lines = [rank.stdout.readline().split() for rank in ranks if rank.stdout is not None]
    pipe = lines[0][4]
    assert lines == [["a", "--b", str(nccl["2.32.3"]), f"longca-node-{rank}", pipe] for rank in (1, 0)]
    daemon = int(told.read_text())
    os.kill(daemon, 0)  # it is there
    for rank in ranks:
        rank.communicate("\n", timeout=60)
        assert rank.returncode == 0
    assert gone([daemon])
    assert not Path(pipe).exists()
