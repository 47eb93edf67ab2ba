"""ncu: its CSV is read, and what keeps it from running is one sentence. No GPU was asked: the texts follow its documentation."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longca.bench.one_device import ncu
from longca.bench.one_device.ncu import METRICS, NcuFailed
from longca.kernels.backends import torch_attention
from longca.results.problem import Pass
from made_cells import make_cell

CELL = make_cell(kernel="torch:plain", mask="causal", seqlen=64, pass_=Pass.BWD)
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")


def line(*values: str) -> str:
    return ",".join(f'"{value}"' for value in values)


PRINTED = "\n".join(
    [
        "==PROF== Connected to process 7 (/usr/bin/python3)",
        '==PROF== Profiling "attend" - 0: 0%....50%....100% - 9 passes',
        "what the program prints, with a comma",
        line(*IDENTITY, *METRICS.values()),
        line(*[""] * len(IDENTITY), "ns", "%", "%", "%", "%", "inst", "inst"),
        line("0", "7", "python3", "host", "void attend<64, 128>(float*)", "1", "7", "(128, 1, 1)", "(64, 8, 1)", "0", "9.0")
        + "," + line("2,013,440", "37.5", "61.25", "12.5", "n/a", "1.75", "0.5"),
        line("1", "7", "python3", "host", "fill", "1", "7", "(128, 1, 1)", "(64, 8, 1)", "0", "9.0")
        + "," + line("4,000", "", "1", "1", "1", "1", "1"),
    ]
)  # fmt: skip


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str | None) -> None:
    """Makes a program `ncu` of a Python script, or none."""
    if script is not None:
        program = folder / "ncu"
        program.write_text(f"#!{sys.executable}\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_each_kernel_has_its_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, f"print({PRINTED!r})")
    first, second = ncu.count(CELL, None)
    assert first.name == "void attend<64, 128>(float*)"
    assert first.values.pop("ms") == pytest.approx(2.01344)
    assert first.values == {"occupancy": 37.5, "tensor cores": 61.25, "memory": 12.5, "stalled on memory": 1.75, "stalled on barriers": 0.5}
    assert second.values["ms"] == pytest.approx(0.004)
    assert "occupancy" not in second.values


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission')", "ncu may not read the counters"),
        ("import sys; print('==ERROR== no driver'); sys.exit(9)", "ncu failed with exit code 9: ==ERROR== no driver"),
        ("pass", "ncu failed with exit code 0: it printed nothing"),
        (None, "ncu was not found"),
    ],
)
def test_what_keeps_ncu_from_running_is_one_sentence(
    script: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, script)
    with pytest.raises(NcuFailed, match=sentence):
        ncu.count(CELL, None)


def test_the_program_that_ncu_runs_counts_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    backward = torch_attention._Plain.backward

    @contextmanager
    def counted(cuda: bool) -> Iterator[None]:
        log.append("begin")
        yield
        log.append("end")

    def called(*given: Any) -> Any:
        log.append("backward")
        return backward(*given)

    monkeypatch.setattr(ncu, "counted", counted)
    monkeypatch.setattr(torch_attention._Plain, "backward", called)
    ncu.main([msgspec.json.encode((CELL, None)).decode()])
    assert log == ["backward", "begin", "backward", "end"]
