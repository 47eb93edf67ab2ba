"""Kernels that do their worst, in real processes: each ends as its own status, and the others are measured all the same."""

import re
from pathlib import Path
from typing import Any

import pytest

from longca.results.reading import history

EXPECTED = {
    "good": ("ok", ""),
    "segfaults": ("error", "SIGSEGV"),
    "hangs": ("timeout", "preparation or the first call took longer than its 15 s"),
    "greedy": ("oom", "memory"),
    "corrupts": ("wrong", "changes its input k"),
    "gives_nan": ("wrong", "NaN"),
    "raises": ("error", "ValueError: no, thank you"),
    "babbles": ("error", "sent a malformed message"),
}


@pytest.mark.slow
def test_each_ends_as_its_own_status_with_a_reason_and_the_others_are_measured(
    start_run: Any, tmp_path: Path, plugins: Path, living_workers: Any
) -> None:
    # one worker for all is the hardest: each must leave it usable, or have it replaced, for the next
    arguments = ["--kernels", ",".join(EXPECTED), "--passes", "fwd", "--workers", "one"]
    arguments += ["--deadline", "15", "--memory", "2G", "--out", str(tmp_path)]
    with start_run("--plugin", plugins / "hostile.py", *arguments, LONGCA_TEST=tmp_path) as process:
        output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    assert living_workers(tmp_path) == []  # nor any child of theirs
    building = re.search(r"it took .*building and compiling (\d+) s", output)
    assert building is not None
    assert int(building[1]) >= 15  # what hangs there, hangs in no other part of the time
    assert len(re.findall(r"^waiting for hangs on .* takes more than 10 s; its deadline is 15 s\.$", errors, re.MULTILINE)) == 1
    written = history(tmp_path)
    records = {record.asked: record for record in written}
    assert len(written) == len(records) == len(EXPECTED)
    for kernel, (status, reason) in EXPECTED.items():
        record = records[kernel]
        assert record.status == status, f"{kernel}: {record.reason}"
        assert reason in record.reason, kernel
        assert (record.timed is None) == (status != "ok"), kernel
