"""Several NCCL ranks on one GPU: an NCCL that can, a share of the multiprocessors for each rank, and a private MPS daemon."""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from longca.errors import Unavailable
from longca.parallel.joining import Launch
from longca.processes.child import GUARD
from longca.results.problem import Sharing

LEAST_NCCL = (2, 30)
VARIABLE = "LONGCA_NCCL"  # the path of an NCCL library
SONAME = "libnccl.so.2"
INSTALL = f"install it with `pip install -U 'nvidia-nccl-cu13>=2.30'` (beside any torch), or set {VARIABLE} to the path of a {SONAME}"
MPS = "nvidia-cuda-mps-control"
CTAS, MOST_PER_GPU = 2, 8  # of NCCL; with more ranks on a GPU their transfers would take all multiprocessors of a share
BUFFER_BYTES = 1 << 20  # of a connection; with NCCL's default 8 ranks of 12 masks took 139 GiB
MPS_START_S, MPS_END_S = 30.0, 10.0
READY = b"longca-ready"  # a word that no message of the daemon has
# By ending, the first command tells that the daemon listens; the guard lives as long as the shell does. If something kills the guard, and
# the shell with it, what runs beside them ends the daemon.
SCRIPT = f"""{MPS} -d || exit 1
(while kill -0 $$; do sleep 1; done; echo quit -t 5 | {MPS}) > /dev/null 2>&1 &
echo {READY.decode()}
exec sleep 1000000000
"""
ASK = "import ctypes, sys; n = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(n)); print(n.value)"


def has_mps() -> bool:
    return shutil.which(MPS) is not None


def version_of(number: int) -> tuple[int, int, int]:
    """Returns the parts of a number of ncclGetVersion."""
    return number // 10000, number % 10000 // 100, number % 100


def loaded_version() -> str:
    """Returns the version of the NCCL that this process calls, whatever torch was built with; empty where it has none. A preloaded library
    comes first, though torch maps its own as well."""
    mapped = (line[line.index("/") :] for line in Path("/proc/self/maps").read_text().splitlines() if re.search(r"/libnccl[^/]*\.so", line))
    for library in (None, *mapped):
        number = ctypes.c_int()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(library).ncclGetVersion(ctypes.byref(number))
            return ".".join(map(str, version_of(number.value)))
    return ""


def find_library(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns an NCCL with which ranks can share a GPU: the one that LONGCA_NCCL names, else the newest of pip's. Raises Unavailable."""
    if named := environment.get(VARIABLE):
        if (version := _file_version(Path(named))) < LEAST_NCCL:
            raise Unavailable(f"{VARIABLE} is {named}, which is {_words(version)}; ranks share a GPU with NCCL 2.30 or newer: {INSTALL}.")
        return Path(named).resolve()
    folders = [Path(entry) / "nvidia" / kind / "lib" / SONAME for entry in sys.path for kind in ("nccl", "cu13", "cu12")]
    versions = {path: _file_version(path) for path in folders if path.is_file()}
    newest = max(versions, key=lambda path: versions[path], default=None)
    if newest is None or versions[newest] < LEAST_NCCL:
        here = f"here is {_words(versions[newest])}" if newest is not None else "none was found"
        raise Unavailable(f"ranks share a GPU with NCCL 2.30 or newer, and {here}; {INSTALL}.")
    return newest.resolve()


@cache
def _file_version(path: Path) -> tuple[int, ...]:
    """Returns the version of a library, asked in a process of its own; () where it is none."""
    with suppress(OSError, subprocess.TimeoutExpired, ValueError):
        command = [sys.executable, "-I", "-S", "-c", ASK, str(path)]
        return version_of(int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout))
    return ()


def _words(version: tuple[int, ...]) -> str:
    return f"NCCL {'.'.join(map(str, version))}" if version else "no NCCL library"


def share_gpus(per_gpu: int, nodes: int = 1) -> Sharing | None:
    """Returns how ranks share GPUs on this machine; None where each has its own. NCCL_MAX_CTAS may say how much of a share its transfers
    take."""
    if per_gpu == nodes == 1:
        return None
    if per_gpu == 1:
        return Sharing(nodes=nodes)
    ctas = int(os.environ.get("NCCL_MAX_CTAS", CTAS if per_gpu <= MOST_PER_GPU else 1))
    return Sharing(ranks=per_gpu, mps=has_mps(), ctas=ctas, nodes=nodes)


def is_shared() -> bool:
    """Whether this process is a rank that shares its GPU."""
    return os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"


def rank_environment(sharing: Sharing, mps_folder: Path | None, rank: int, ranks: int) -> dict[str, str]:
    """Returns the variables that a rank's process is started with."""
    environment = {}
    if sharing.nodes > 1:
        environment["NCCL_HOSTID"] = f"longca-node-{rank * sharing.nodes // ranks}"
    if sharing.ranks > 1:
        before = [part for part in os.environ.get("LD_PRELOAD", "").split(":") if part and SONAME not in part]
        environment |= {
            "LD_PRELOAD": ":".join([str(find_library()), *before]),  # torch's own has an rpath, which LD_LIBRARY_PATH does not change
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_MAX_CTAS": str(sharing.ctas),
            "NCCL_BUFFSIZE": str(BUFFER_BYTES),
        }
    if mps_folder is not None:
        environment |= _mps_environment(mps_folder) | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(sharing.percent)}
    return environment


def _mps_environment(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


class MpsDaemon:
    """A private MPS daemon with its files in a folder. It is below a guard, which ends it and its servers when this process ends, however
    that is. Another daemon of the machine has another folder and is not touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in ("pipe", "log"):
            (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        # which GPUs a rank sees is its own matter: the daemon would number those that it sees anew
        without = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")}
        self._environment = without | _mps_environment(folder)
        command = ["/bin/sh", "-c", SCRIPT]
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, "1", "0", *command],  # the guard itself needs no stdout
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            env=self._environment,
        )
        output = self._first_output()
        if READY not in output:
            self.close()
            said = output.decode(errors="replace").strip().splitlines()
            raise Unavailable(f"the MPS daemon, through which ranks share a GPU, did not start: {said[-1] if said else 'it says nothing'}.")
        (folder / READY.decode()).touch()

    def _first_output(self) -> bytes:
        assert self._guard.stdout is not None
        output, end = b"", time.monotonic() + MPS_START_S
        while READY not in output and (left := end - time.monotonic()) > 0:
            if select.select([self._guard.stdout], [], [], left)[0]:
                data = self._guard.stdout.read(1 << 16)
                if not data:
                    break
                output += data
        return output

    def close(self) -> None:
        """Ends the daemon: it is asked to, and then killed with its servers. A second call does nothing."""
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        if self._guard.stdin.closed:
            return
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run([MPS], input=b"quit\n", env=self._environment, capture_output=True, timeout=MPS_END_S, check=False)
        self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(MPS_END_S)
        self._guard.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_mps(sharing: Sharing | None) -> MpsDaemon | None:
    """Returns a daemon in a new folder; None where ranks share no GPU, or without MPS."""
    if sharing is None or sharing.ranks == 1 or not sharing.mps:
        return None
    return MpsDaemon(Path(tempfile.mkdtemp(prefix="longca-mps-")))


@contextmanager
def as_launched(sharing: Sharing | None, launch: Launch) -> Iterator[None]:
    """Makes this process a rank that shares its GPU, where torchrun or srun started it: starts its program again with what must be set
    before it begins, and has the first rank of each node start the node's MPS daemon, which ends with that rank."""
    if sharing is None:
        yield
        return
    folder = _node_folder() if sharing.ranks > 1 and sharing.mps else None
    wanted = rank_environment(sharing, folder, launch.rank, launch.ranks)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | wanted)
    daemon = None
    if folder is not None and launch.local_rank == 0:
        daemon = MpsDaemon(folder)
    elif folder is not None:
        _await(folder / READY.decode())
    try:
        yield
    finally:
        if daemon is not None:
            daemon.close()


def _node_folder() -> Path:
    """Returns a folder that the ranks of one node and one launch share: the process that started them is the same."""
    parent = os.getppid()
    with suppress(OSError, IndexError):
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return Path(tempfile.gettempdir()) / f"longca-mps-{os.getuid()}-{parent}-{started}-{restarts}"
    return Path(tempfile.gettempdir()) / f"longca-mps-{os.getuid()}-{parent}"


def _await(ready: Path) -> None:
    end = time.monotonic() + MPS_START_S
    while not ready.exists():
        if time.monotonic() > end:
            raise Unavailable(f"the first rank of this node started no MPS daemon within {MPS_START_S:g} s; look at its output.")
        time.sleep(0.05)
