"""`longca verify`: trials are rows like masks, kernels may print, and equal masks are checked once."""

from pathlib import Path

import pytest

from longca.bench.check.trial_names import trials_on
from longca.cli import main

WRONG = Path(__file__).parents[1] / "bench" / "check" / "wrong"
SMALL = ["--seqlens", "100", "--heads", "2:1", "--head-dim", "16", "--device", "cpu"]


@pytest.mark.usefixtures("in_process")
def test_what_is_wrong_now_and_then_is_found_by_repeating(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["verify", "--plugin", str(WRONG / "keeps_state.py"), "--kernels", "wrong_now_and_then", "--masks", "full", "--json", *SMALL]
    assert main(flags) == 0
    assert main([*flags, "--repeat", "20"]) == 1
    assert "wrong in 2 of 40 calls, first in call 10: out is off by" in capsys.readouterr().out
    assert main([*flags, "--repeat", "0"]) == 2


CRASHES = """
import ctypes, longca

@longca.kernel
def crashes(q, k, v, mask, scale):
    print("tokens:", len(q))
    ctypes.string_at(0)
"""


@pytest.mark.slow
def test_a_crash_is_shown_once_and_the_counter_ends_at_its_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The forward that is tried alone crashes too; a kernel that is right on no mask gets no trials. Equal masks are one case."""
    (tmp_path / "crashes.py").write_text(CRASHES)
    flags = ["--kernels", "crashes,torch:plain", "--masks", "full,prefix_lm_causal", "--set", "p=100", *SMALL]
    assert main(["verify", "--plugin", str(tmp_path / "crashes.py"), *flags]) == 1
    err = capsys.readouterr().err
    assert "note: full and prefix_lm_causal are the same mask at 100 tokens; checked once" in err
    assert "crashes prints: tokens: 100\n" in err
    assert err.count("crashes prints: Fatal Python error: Segmentation fault") == 1
    assert [line.rpartition("/")[2] for line in err.splitlines() if "  File " in line] == ['crashes.py", line 7 in crashes']
    total = 2 * (1 + len(trials_on("cpu")))
    counts = [line.partition("]")[0] for line in err.splitlines() if line.startswith("[")]
    assert counts == [f"[{number}/{total}" for number in range(1, total + 1)]
