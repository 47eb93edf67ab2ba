"""Where something was measured: the device, the versions, the settings. Found without importing torch."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import longca
from longca import __version__, code_version, devices
from longca.bench.cell import fingerprint
from longca.bench.health import number
from longca.bench.suite import Suite
from longca.kernels import registry
from longca.plugins import module_name

# what nvidia-smi calls the settings of power and clocks; asked apart, as a driver that does not know one field answers nothing
POLICY = (
    {"power_limit_w": "power.limit"},
    {"application_sm_mhz": "clocks.applications.graphics", "application_memory_mhz": "clocks.applications.memory"},
)
PACKAGES = ("torch", "triton", "numpy", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


@cache
def device_model(device: str) -> str:
    """What two machines must share for their times to be the same measurement: the name of the GPU or of the CPU."""
    if device == "cuda":
        return devices.title()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def kernel_versions(label: str) -> dict[str, str]:
    """The versions that are part of a cell's key: torch's, and those of the kernel's own packages and code."""
    found = {"torch": installed("torch") or ""}
    with suppress(PackageNotFoundError):  # not here: the cell will say so, and there is no version to tell
        found |= registry.versions(registry.get(label))
    return found


def plugin_version(*paths: str) -> dict[str, str]:
    """Plugins have no version but their text, and that of the modules of their author's that they import."""
    return {"plugin": "+".join(code_version.of_module(Path(path), module_name(path)) for path in paths)} if paths else {}


def methods_version() -> dict[str, str]:
    """The methods of context parallelism are code of ours, and share most of it."""
    return {"longca.parallel": code_version.of_texts(sorted((Path(longca.__file__).parent / "parallel").rglob("*.py")))}


def git_state(package: Path) -> tuple[str | None, bool | None]:
    """The commit of LongCA's own source and whether files differ from it; None where `package` is not part of such a checkout.

    A package that is installed somewhere below another project's repository is none of that project's commits.
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


def clocks_policy(device: str) -> dict[str, float | None]:
    """What holds the GPUs' clocks, the lowest of those visible here; None on a CPU, or where the driver does not say.

    Clocks that are locked (`nvidia-smi -lgc`) no driver tells: they show in the clock that is read beside the samples.
    """
    found: dict[str, float | None] = {}
    for fields in POLICY:
        seen = devices.ask("gpu", (*fields.values(), "uuid")) if device == "cuda" else []
        seen = devices.visible(seen, os.environ.get("CUDA_VISIBLE_DEVICES"))
        for name, asked in fields.items():
            values = [number(gpu[asked]) for gpu in seen]
            known = [value for value in values if value is not None]
            found[name] = min(known) if known and len(known) == len(values) else None
    return found


def describe(device: str, suite: Suite, labels: Iterable[str] = ()) -> dict[str, Any]:
    """Everything about this machine and these settings that may move a figure."""
    gpus = devices.gpus() if device == "cuda" else []
    packages = {name: installed(name) for name in PACKAGES if installed(name)}
    for label in labels:
        packages |= kernel_versions(label)
    commit, changed = git_state(Path(__file__).parents[1])
    return {
        "device": device_model(device),
        "device_kind": device,
        "gpus": len(gpus),
        "gpu_memory_mib": gpus[0]["memory.total"] if gpus else None,
        "driver": gpus[0]["driver_version"] if gpus else None,
        **clocks_policy(device),
        "cpu": device_model("cpu"),
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "longca": __version__,
        "commit": commit,
        "changed": changed,
        "packages": packages,
        "clock": asdict(suite.clock),
        "limits": asdict(suite.limits),
    }


def today() -> str:
    """The day, for the journal: it is no part of an environment's name, so the first day of a resumed run stays."""
    return datetime.now(UTC).date().isoformat()


def name_of(environment: dict[str, Any]) -> str:
    """A short id: the same for the same environment."""
    return fingerprint(environment)[:10]
