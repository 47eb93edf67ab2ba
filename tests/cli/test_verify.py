"""`longca verify`: what it checks by default, what it says of kernels that fail, and that none of them takes it along."""

import json
from pathlib import Path

import pytest

from longca import devices, masks
from longca.bench.environment import device_model
from longca.cli import main

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
import os, longca

@longca.kernel()
def misshapen(q, k, v, mask, scale):
    """half of the tokens"""
    return q[: len(q) // 2]

@longca.kernel()
def raises(q, k, v, mask, scale):
    """an error with a long message"""
    raise ValueError("first words\\nand the second line")

@longca.kernel()
def aborts(q, k, v, mask, scale):
    """takes its process along"""
    os.abort()
'''
NAN = '''
import longca

@longca.kernel()
def gives_nan(q, k, v, mask, scale):
    """no number at all"""
    return q * (k.sum() + v.sum()) * float("nan")
'''
SMALL = ["--heads", "2:1", "--head-dim", "16", "--device", "cpu"]


def verify(tmp_path: Path, source: str, *flags: str) -> int:
    (tmp_path / "plugin.py").write_text(source)
    return main(["verify", "--plugin", str(tmp_path / "plugin.py"), *SMALL, *flags])


@pytest.mark.parametrize("seed", ["0", "7"])
def test_a_kernel_that_ignores_the_mask_passes_on_the_causal_one_alone(
    seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(tmp_path, BLIND, "--json", "--seed", seed) == 1
    out, err = capsys.readouterr()
    found = {finding["mask"]: finding["status"] for finding in map(json.loads, out.splitlines())}
    assert found == {name: "ok" if name == "causal" else "wrong" for name in masks.names()}
    assert "same pairs" not in err


def test_masks_that_are_equal_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = verify(tmp_path, BLIND, "--masks", "causal,sliding_window_causal,full", "--seqlens", "64", "--set", "w=64")
    assert code == 1
    assert capsys.readouterr().err == "note: causal and sliding_window_causal show the same pairs at 64 tokens\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seqlens", "99999999999"], "checking 99999999999 tokens with 2:1 heads takes at least "),
        (["--head-dim", "64/"], "'64/' is not understood; write a head size such as 128 or 192/128."),
        (["--masks", "causal", "--source", "nsa"], "the source nsa is for block patterns, and none is asked for"),
    ],
)
def test_what_cannot_be_checked_is_refused_at_once(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--kernels", "torch", *SMALL, *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"longca: {message}")


def test_memory_for_every_pair_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", "--kernels", "torch:plain", "--masks", "causal", *SMALL, "--seqlens", "8M"])
    assert "oom: torch:plain on causal: out of memory: it asked for 6.55e+04 GiB at once\n" in capsys.readouterr().out


def test_every_failure_says_why_and_takes_no_other_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--masks", "causal,full", "--seqlens", "64", "--kernels", "aborts,misshapen,raises,torch:plain")
    assert verify(tmp_path, FAULTY, *flags) == 1
    said = capsys.readouterr().out
    assert "wrong: misshapen on causal, full: out has the shape [32, 2, 16], not [64, 2, 16]\n" in said
    assert "error: raises on causal, full: ValueError: first words and the second line (plugin.py line 12)\n" in said
    assert "error: aborts on causal, full: its process was killed by SIGABRT during check" in said
    assert sorted(said.splitlines()[-1].split(", ")) == ["2 ok", "2 wrong", "4 error"]


def test_what_is_no_number_is_null_in_json_and_inf_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    flags = ("--masks", "causal", "--seqlens", "64")
    assert verify(tmp_path, NAN, *flags, "--json") == 1
    (finding,) = (json.loads(line, parse_constant=refuse) for line in capsys.readouterr().out.splitlines())
    assert finding["status"] == "wrong"
    assert finding["errors"]["out"]["error"] is None
    assert verify(tmp_path, NAN, *flags) == 1
    assert " inf/" in capsys.readouterr().out


def test_the_device_that_is_named_is_the_one_that_is_used(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: [{"name": "A GPU", "compute_cap": "9.0", "memory.total": "1024"}])
    assert main(["verify", "--kernels", "torch:plain", "--masks", "causal", "--seqlens", "64", *SMALL]) == 0
    assert capsys.readouterr().out.startswith(f"{device_model('cpu')}, 2:1 heads of 16, fp32, seed 0\n")
