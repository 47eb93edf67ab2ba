"""Which commit a measurement is of."""

import subprocess
from pathlib import Path

import pytest

from longca.bench.environment import git_state


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
