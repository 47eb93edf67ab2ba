"""`longca verify`: what it checks by default, what it says of kernels that fail, and that none of them takes it along."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longca.bench.check.trial_names import OPTIONAL, trials_on
from longca.bench.one_device.verify import limits
from longca.cli import main
from longca.kernels import registry

BLIND = '''
import torch, longca

@longca.kernel()
def blind(q, k, v, mask, scale):
    """causal, whatever the mask"""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale).transpose(0, 1)
'''
FAULTY = '''
import ctypes, longca

@longca.kernel()
def misshapen(q, k, v, mask, scale):
    """half of the tokens"""
    return q[: len(q) // 2]

@longca.kernel()
def raises(q, k, v, mask, scale):
    """an error with a long message"""
    raise ValueError("first words\\nand the second line")

@longca.kernel()
def crashes(q, k, v, mask, scale):
    """takes its process along"""
    print("tokens:", len(q))
    ctypes.string_at(0)
'''
NAN = '''
import longca

@longca.kernel()
def gives_nan(q, k, v, mask, scale):
    """no number at all"""
    return q * (k.sum() + v.sum()) * float("nan")
'''
HANGS = '''
import os, time, pathlib, longca

@longca.kernel(differentiable=False)
def hangs(q, k, v, mask, scale):
    """answers on the first mask alone"""
    if mask.name == "causal":
        return q * 0
    pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
    time.sleep(3600)
'''
WRONG = Path(__file__).parents[1] / "bench" / "check" / "wrong"
SMALL = ["--heads", "2:1", "--head-dim", "16", "--device", "cpu"]
TRIALS = len(trials_on("cpu"))  # of each kernel that is right on some mask


def verify(tmp_path: Path, source: str, *flags: str) -> int:
    (tmp_path / "plugin.py").write_text(source)
    return main(["verify", "--plugin", str(tmp_path / "plugin.py"), *SMALL, *flags])


@pytest.mark.usefixtures("in_process")
def test_a_kernel_that_ignores_the_mask_passes_on_the_causal_one_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path, BLIND, "--json", "--masks", "causal,share_question") == 1
    found = {one["trial"] or one["mask"]: one["status"] for one in map(json.loads, capsys.readouterr().out.splitlines())}
    trials = dict.fromkeys(trials_on("cpu"), "ok") | dict.fromkeys(OPTIONAL, "skipped")
    trials |= {"rows without keys": "wrong", "out and lse of all ring steps": "unsupported"}
    assert found == {"causal": "ok", "share_question": "wrong"} | trials


@pytest.mark.usefixtures("in_process")
def test_what_is_wrong_now_and_then_is_found_by_repeating(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["verify", "--plugin", str(WRONG / "keeps_state.py"), "--kernels", "wrong_now_and_then", "--masks", "full", "--json", *SMALL]
    assert main([*flags, "--seqlens", "100", "--quick"]) == 0
    assert main([*flags, "--seqlens", "100", "--repeat", "20", "--quick"]) == 1
    assert "wrong in 2 of 40 calls, first in call 10: out is off by" in capsys.readouterr().out


@pytest.mark.usefixtures("in_process")
def test_a_stop_at_the_first_failure_says_what_was_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--masks", "causal,full", "--seqlens", "64", "-x"]
    assert verify(tmp_path, NAN, *flags, "--dump", str(tmp_path / "plugin.py")) == 2  # which is a file
    assert "[1/" not in capsys.readouterr().err
    assert verify(tmp_path, NAN, *flags, "--dump", str(tmp_path / "dump")) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"longca: stopped; {1 + TRIALS} of {2 + TRIALS} cases were not checked."
    assert [folder.name for folder in (tmp_path / "dump").iterdir()] == ["gives_nan-causal-64-2-1-16-fp32"]


@pytest.mark.usefixtures("in_process")
def test_memory_for_every_pair_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--masks", "causal", "--quick", *SMALL, "--seqlens", "64,1M"]
    assert main(["verify", "--kernels", "torch:plain", *flags]) == 1  # one of two is checked
    said = capsys.readouterr().out
    assert "oom: torch:plain on causal: out of memory: it asked for 1 TiB at once\n" in said
    assert said.splitlines()[-1] == "1 ok, 1 oom"


@pytest.mark.slow
def test_every_failure_says_why_and_takes_no_other_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The forward that is tried alone crashes too, which is shown once. A kernel that is right on no mask gets no trials. Equal masks are
    one case."""
    flags = ("--masks", "causal,full,prefix_lm_causal", "--set", "p=64", "--seqlens", "64")
    assert verify(tmp_path, FAULTY, *flags, "--kernels", "crashes,misshapen,raises,torch:plain") == 1
    said, err = capsys.readouterr()
    on = "on causal, full = prefix_lm_causal p=64"
    assert f"wrong: misshapen {on}: out has the shape [32, 2, 16], not [64, 2, 16]\n" in said
    assert f"error: raises {on}: ValueError: first words and the second line (plugin.py line 12)\n" in said
    assert f"error: crashes {on}: its process was killed by SIGSEGV during preparation or the first call" in said
    assert "skipped: raises on all trials: it is correct on no mask\n" in said
    assert set(said.splitlines()[-1].split(", ")) == {"2 wrong", "4 error", f"{2 + TRIALS} ok", f"{3 * TRIALS} skipped"}
    assert "note: full and prefix_lm_causal are the same mask at 64 tokens; checked once" in err
    assert "crashes prints: tokens: 64\n" in err
    assert err.count("crashes prints: Fatal Python error: Segmentation fault") == 1
    assert [line.rpartition("/")[2] for line in err.splitlines() if "  File " in line] == ['plugin.py", line 18 in crashes']
    counts = [line.partition("]")[0] for line in err.splitlines() if line.startswith("[")]
    total = 4 * (2 + TRIALS)
    assert counts == [f"[{number}/{total}" for number in range(1, total + 1)]


@pytest.mark.usefixtures("in_process")
def test_what_is_no_number_is_null_in_json_and_inf_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    flags = ("--masks", "causal", "--seqlens", "64")
    assert verify(tmp_path, NAN, *flags, "--json") == 1
    finding, *skipped = (json.loads(line, parse_constant=refuse) for line in capsys.readouterr().out.splitlines())
    assert {one["reason"] for one in skipped} == {"it is correct on no mask"}
    assert finding["status"] == "wrong"
    assert finding["errors"]["out"]["error"] is None
    assert verify(tmp_path, NAN, *flags) == 1
    assert " inf " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_a_named_kernel_that_cannot_run_here_is_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry, "names", lambda: ["fa4", "torch"])  # all there are
    flags = ["--masks", "causal", "--seqlens", "64", "--quick", *SMALL]
    assert main(["verify", "--kernels", "fa4,torch", *flags]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "1 unavailable, 1 ok"
    assert err.splitlines()[-1].startswith("longca: no case of fa4 was checked")
    assert main(["verify", "--kernels", "all", *flags]) == 0


@pytest.mark.slow
def test_a_kernel_that_hangs_is_ended_by_the_deadline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named before: nobody waits for minutes without knowing for what."""
    monkeypatch.setattr("longca.processes.child.SILENT_S", 1.0)
    assert verify(tmp_path, HANGS, "--masks", "full", "--seqlens", "64", "--deadline", "2") == 1
    shown = capsys.readouterr()
    assert re.search(r"^timeout: hangs on full: .* took longer than its 2 s$", shown.out, re.MULTILINE)
    said = r"^waiting for hangs on full, 64 tokens(.*): preparation or the first call takes more than .*; its deadline is 2 s\.$"
    assert re.findall(said, shown.err, re.MULTILINE) == [", without a backward"]


def test_a_step_gets_minutes_and_a_long_sequence_more() -> None:
    assert limits(None, "cpu", 509, 8).check_s == limits(None, "cuda", 8192, 64).check_s == 300
    assert 300 < limits(None, "cpu", 16384, 8).build_s < limits(None, "cpu", 1 << 20, 8).build_s == 3600
    asked = limits(2.5, "cpu", 1 << 20, 8)
    assert asked.build_s == asked.check_s == 2.5
    assert asked.start_s >= 120  # to import torch is no step of a kernel's


def test_ctrl_c_shows_what_was_found_and_leaves_no_worker(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(HANGS)
    flags = ["verify", "--plugin", tmp_path / "plugin.py", *SMALL, "--seqlens", "64", "--masks", "causal,full,share_question"]
    program = [sys.executable, "-c", "import sys; from longca.cli import main; sys.exit(main())", *map(str, flags)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(f"[1/{3 + TRIALS}] hangs on causal, 64 tokens: wrong: ")  # while it still works
            pid = tmp_path / "pid"
            while not (pid.exists() and pid.read_text()):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out.splitlines()[-1] == "1 wrong"
    assert err == f"longca: stopped; {2 + TRIALS} of {3 + TRIALS} cases were not checked.\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
