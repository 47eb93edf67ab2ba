"""Where something was measured: the device, the versions, the settings. Found without importing torch."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

import longca
from longca import __version__, devices
from longca.bench.plan.cell import fingerprint
from longca.bench.plan.suite import Suite
from longca.bench.plan.versions import CODE, installed, kernel_versions
from longca.bench.run.health import number
from longca.results.record import Environment

# what nvidia-smi calls the settings of power and clocks; asked apart, as a driver that does not know one field answers nothing
POLICY = (
    {"power_limit_w": "power.limit"},
    {"application_sm_mhz": "clocks.applications.graphics", "application_memory_mhz": "clocks.applications.memory"},
)
PACKAGES = ("torch", "triton", "numpy", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


def git_state(package: Path) -> tuple[str | None, bool | None]:
    """The commit of LongCA's own source and whether files differ from it; None where `package` is not part of such a checkout.

    The commits of another project's repository, below which LongCA may be installed, do not count.
    """
    home = package.parents[1]
    if not (home / "pyproject.toml").is_file() or _git(home, "rev-parse", "--show-toplevel") != str(home.resolve()):
        return None, None
    changes = _git(home, "status", "--porcelain", "--untracked-files=no")
    return _git(home, "rev-parse", "HEAD"), None if changes is None else bool(changes)


def _git(folder: Path, *command: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", str(folder), *command], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def clocks_policy(device: str) -> dict[str, Any]:
    """What holds the GPUs' clocks, the lowest of those visible here; None on a CPU, or where the driver does not say.

    No driver tells clocks that are locked (`nvidia-smi -lgc`): they show in the clock that is read beside the samples.
    """
    policy: dict[str, Any] = {}
    for fields in POLICY:
        seen = devices.ask("gpu", (*fields.values(), "uuid")) if device == "cuda" else []
        seen = devices.visible(seen, os.environ.get("CUDA_VISIBLE_DEVICES"))
        for name, asked in fields.items():
            values = [number(gpu[asked]) for gpu in seen]
            known = [value for value in values if value is not None]
            policy[name] = min(known) if known and len(known) == len(values) else None
    return policy


def describe(device: str, suite: Suite, labels: Iterable[str] = (), plugins: Mapping[str, list[str]] | None = None) -> Environment:
    """Everything about this machine and these settings that may move a figure."""
    gpus = devices.gpus() if device == "cuda" else []
    packages = {name: number for name in PACKAGES if (number := installed(name))}
    for label in labels:
        packages |= {name: number for name, number in kernel_versions(label).items() if name != CODE}
    commit, changed = git_state(Path(longca.__file__).parent)
    return Environment(
        device=devices.model(device),
        device_kind=device,
        gpus=len(gpus),
        gpu_memory_mib=gpus[0]["memory.total"] if gpus else None,
        driver=gpus[0]["driver_version"] if gpus else None,
        **clocks_policy(device),
        cpu=devices.model("cpu"),
        cores=len(os.sched_getaffinity(0)),
        threads=os.environ.get("OMP_NUM_THREADS"),
        system=platform.platform(),
        python=platform.python_version(),
        longca=__version__,
        commit=commit,
        changed=changed,
        packages=packages,
        plugins=dict(plugins or {}),
        clock=asdict(suite.clock),
        limits=asdict(suite.limits),
    )


def dated(environment: Environment) -> Environment:
    """The environment with today's date. The date is not part of its name, so the first day of a resumed run stays."""
    return replace(environment, date=datetime.now(UTC).date().isoformat())


def name_of(environment: Environment) -> str:
    """A short id: the same for the same environment."""
    return fingerprint(environment)[:10]
