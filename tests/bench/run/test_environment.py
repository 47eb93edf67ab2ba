"""Where something was measured: the commit of the code, what holds the device's clocks, and a name that is the same for the same."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from longca import devices
from longca.bench.plan.suite import Suite
from longca.bench.run.environment import clocks_policy, dated, describe, git_state, name_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "longca"
    package.mkdir(parents=True)
    for file in (tmp_path / "pyproject.toml", package / "code.py"):
        file.write_text("")
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_a_checkout_has_a_commit_and_says_whether_it_was_changed(repository: Path) -> None:
    commit, changed = git_state(repository / "src" / "longca")
    assert (len(commit or ""), changed) == (40, False)
    (repository / "src" / "longca" / "code.py").write_text("more")
    assert git_state(repository / "src" / "longca") == (commit, True)


def test_another_projects_commit_is_not_ours(repository: Path) -> None:
    installed = repository / ".venv" / "lib" / "longca"
    installed.mkdir(parents=True)
    assert git_state(installed) == (None, None)
    (installed.parents[1] / "pyproject.toml").write_text("")
    assert git_state(installed) == (None, None)


def test_what_holds_the_clocks_is_part_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the GPUs that are visible the one that is held back most; a field that the driver does not know hides no other."""
    told = {"power.limit": ("700.00", "500.00", "300.00"), "uuid": ("GPU-a", "GPU-b", "GPU-c")}

    def ask(query: str, fields: Sequence[str]) -> list[dict[str, str]]:
        assert query == "gpu"
        return [{name: told[name][gpu] for name in fields} for gpu in range(3)] if told.keys() >= set(fields) else []

    monkeypatch.setattr(devices, "ask", ask)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    unknown: dict[str, float | None] = dict.fromkeys(("power_limit_w", "application_sm_mhz", "application_memory_mhz"))
    assert clocks_policy("cuda") == unknown | {"power_limit_w": 500.0}
    told |= {"clocks.applications.graphics": ("1980", "1410", "1"), "clocks.applications.memory": ("3201", "[N/A]", "1")}
    assert clocks_policy("cuda") == unknown | {"power_limit_w": 500.0, "application_sm_mhz": 1410.0}
    assert clocks_policy("cpu") == unknown
    assert asdict(describe("cpu", Suite())).items() >= unknown.items()


def test_the_name_is_of_the_settings_and_not_of_the_day() -> None:
    machine = describe("cpu", Suite(), ["torch:plain"], {"mine.py": ["mine"]})
    assert (machine.device_kind, machine.plugins, machine.clock["budget_s"]) == ("cpu", {"mine.py": ["mine"]}, 0.5)
    assert "code" not in machine.packages  # each record has that of its own kernel
    day = dated(machine)
    assert len(day.date or "") == len("2026-01-31")
    assert name_of(replace(day, date=None)) == name_of(machine)
    assert name_of(describe("cpu", Suite().changed(deterministic=True), ["torch:plain"], {"mine.py": ["mine"]})) == name_of(machine)
    for changed in (replace(machine, commit="other"), replace(machine, cores=1000), replace(machine, clock={"budget_s": 9.0})):
        assert name_of(changed) != name_of(machine)
