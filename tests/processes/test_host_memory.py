"""Free memory where a control group allows less than the machine has."""

from pathlib import Path

import pytest

from longca.processes.host_memory import free_bytes

GIB = 1 << 30


def write(folder: Path, **texts: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """64 GiB are free on it; a folder for /proc, and one for control groups."""
    write(tmp_path / "proc", meminfo=f"MemTotal: 99 kB\nMemAvailable: {64 << 20} kB")
    return tmp_path / "proc", tmp_path / "groups"


def test_a_machine_without_groups_has_what_it_says(machine: tuple[Path, Path]) -> None:
    assert free_bytes(*machine) == 64 * GIB
    write(machine[0] / "self", cgroup="0::/user.slice")
    write(machine[1] / "user.slice", memory__max="max", memory__current=5 * GIB)
    assert free_bytes(*machine) == 64 * GIB


def test_the_tightest_group_above_counts_and_files_that_were_read_do_not(machine: tuple[Path, Path]) -> None:
    proc, groups = machine
    write(proc / "self", cgroup="0::/job_7/step_0/user")
    write(groups / "job_7", memory__max=16 * GIB, memory__current=10 * GIB, memory__stat=f"anon 5\ninactive_file {2 * GIB}\nfile 9")
    write(groups / "job_7" / "step_0", memory__max=32 * GIB, memory__current=10 * GIB)
    assert free_bytes(*machine) == 8 * GIB
    write(groups / "job_7", memory__max=16 * GIB, memory__current=17 * GIB, memory__stat="inactive_file 0")
    assert free_bytes(*machine) == 0


def test_old_groups_and_containers_that_see_their_own_as_the_top_one(machine: tuple[Path, Path]) -> None:
    proc, groups = machine
    write(proc / "self", cgroup="4:cpu,memory:/docker/abc\n1:name=systemd:/x\n0::/")
    write(groups / "memory", memory__limit_in_bytes=4 * GIB, memory__usage_in_bytes=GIB, memory__stat=f"total_inactive_file {GIB}")
    assert free_bytes(*machine) == 4 * GIB
