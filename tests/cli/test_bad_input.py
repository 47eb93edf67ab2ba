"""Arguments that make no sense, contradict one another or would have no effect: one sentence, and exit code 2."""

from pathlib import Path

import pytest

from longca.cli import main, verbs

TORCH = ["--kernels", "torch", "--device", "cpu", "--dry-run"]
CAUSAL = [*TORCH, "--masks", "causal", "--seqlens", "64", "--heads", "2:1"]
VERIFIED = ["--kernels", "torch", "--heads", "2:1", "--head-dim", "16", "--device", "cpu"]
BAD = [
    (["nosuch"], f"unknown command 'nosuch'; known are: {', '.join(verbs())}."),
    (["lss"], "unknown command 'lss'; did you mean 'ls'?"),
    (["export", "nowhere", "--csv", "--md"], "--csv and --md cannot all be printed; give all but one of them a FILE."),
    (["ls", "mask"], "unknown listing 'mask'; did you mean 'masks' (known are: kernels, masks, cp"),
    (["ls", "masks", "nosuch"], "unknown name 'nosuch'; known are: "),
    (["ls", "masks", "--details"], "--details is for `longca ls kernels`; leave it out."),
    (["ls", "--jsn"], "unrecognized arguments: --jsn (did you mean --json?); see `longca ls --help`."),
    (["mask", "causal", "--seq", "8"], "unrecognized arguments: --seq 8 (did you mean --seqlen?)"),
    (["mask"], "give a mask (`longca ls masks` lists them), or --gallery DIR for a picture of all."),
    (["mask", "causal", "--seed", "x"], "argument --seed: invalid int value: 'x'; see `longca mask --help`."),
    (["mask", "sliding_window", "--set", "w"], "'w' is not a setting; write name=value, such as w=512."),
    (["mask", "causal", "--png", "a.foo"], "--png writes a PNG file, so its name must end in .png, not 'a.foo'."),
    (["mask", "causal", "--source", "nsa", "--device", "h200"], "causal is not a block pattern, so it takes no --source"),
    (["mask", "causal", "--bands", "--device", "h200"], "--png and --bands draw the mask, and --tiles and --device print its limit; "),
    (["mask", "causal", "--bands"], "--bands draws the bands of a mask into a file; add --png FILE."),
    (["mask", "causal", "--gallery", "g"], "--gallery draws every mask with its own parameters; it takes only --seqlen and --seed."),
    (["run", *CAUSAL, "--seed", "1", "--seeds", "2"], "--seed N is one seed, and --seeds are how many or which; give one of the two."),
    (["run", *CAUSAL, "--budget", "1e308"], "--budget must be a number of seconds over 0, not 1e+308; give 1e+07 at most"),
    (["run", *CAUSAL, "--fail-on", "slow"], "unknown status for --fail-on 'slow'; known are: doubtful, error, invalid, oom"),
    (["run", *CAUSAL, "--kernel", "torch"], "unrecognized arguments: --kernel (did you mean --kernels?)"),
    (["run", *TORCH, "--workload", "w.jsonl", "--masks", "full", "--seqlens", "8K"], "takes no --masks and no --seqlens"),
    (["run", *CAUSAL, "--level", "cp", "--nproc", "0"], "--nproc must be 1 rank or more, not 0"),
    (["run", *CAUSAL, "--nproc", "4"], "--nproc is for context parallelism; add --level cp"),
    (["run", *CAUSAL, "--dense", "torch"], "--dense is a baseline for block patterns on one device, and none is asked for; leave it out."),
    (["run", "--methods", "usp", "--level", "kernel"], "--methods is for context parallelism; add --level cp"),
    (["run", *CAUSAL, "--energy", "0.1"], "--energy must be 1 second or more, not 0.1"),
    (["run", *CAUSAL, "--energy", "1"], "--energy is read from a GPU, and this run is on the CPU; leave it out"),
    (["run", *CAUSAL, "--energy", "1", "--methods", "usp"], "--energy is measured for kernels on one device, not for context parallelism"),
    (["run", *CAUSAL, "--clock", "least=3.5"], "--clock: least: "),
    (["run", *CAUSAL, "--clock", "budget_s=1", "--budget", "1"], "budget_s is set twice, by --budget and by --clock; give it once."),
    (["verify", *VERIFIED, "--seqlens", "99999999999"], "checking 99999999999 tokens with 2:1 heads takes at least "),
    (["verify", *VERIFIED, "--head-dim", "64/"], "'64/' is not understood; write a head size such as 128 or 192/128."),
    (["verify", *VERIFIED, "--deadline", "0"], "--deadline must be a number of seconds over 0, not 0.0; give 1e+07 at most."),
    (["verify", *VERIFIED, "--masks", ""], "--masks is empty; give a value, or leave it out."),
    (
        ["verify", *VERIFIED, "--set", "w=5,6"],
        "verify takes one value per parameter, not w=5,6; run it once per value, or use `longca run`.",
    ),
    (["verify", *VERIFIED, "--masks", "causal", "--source", "nsa"], "the source nsa is for block patterns, and none is asked for"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.jsonl").write_text('{"mask": "causal", "seqlen": 64}\n')
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("longca: ")
    assert sentence in err
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1
