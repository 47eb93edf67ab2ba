"""The command: what it prints, what it refuses, and what it must not import."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from longca import __version__, cli, masks
from longca.cli import main, verbs
from longca.kernels import registry

SRC = Path(__file__).parents[2] / "src"


def in_a_process(
    *arguments: str, code: str = "from longca.cli import main; sys.exit(main(sys.argv[1:]))"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", f"import sys; {code}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["ls"],
        ["ls", "masks"],
        ["mask", "causal", "--json"],
        ["mask", "--help"],
        ["recommend", "--mask", "full", "--seqlen", "1K"],
    ],
)
def test_quick_answers_do_not_import_what_is_heavy(arguments: list[str]) -> None:
    code = """
from longca.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print([name for name in ("torch", "matplotlib", "scipy") if name in sys.modules], file=sys.stderr)"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys{code}", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=True,
    )
    assert done.stderr.strip() == "[]"


def test_a_selected_pattern_is_shown_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--seqlen", "512", "--heads", "4:2", "--head-dim", "16", "--set", "ratio=.2", "--set", "b=32"]
    assert "  source=nsa  b=32  " in answer(capsys, "mask", "uniform_block", "--source", "nsa", *flags)
    found = {source: json.loads(answer(capsys, "mask", "uniform_block", "--source", source, *flags, "--json")) for source in masks.SOURCES}
    assert {source: facts["source"] for source, facts in found.items()} == {source: source for source in masks.SOURCES}
    assert found["random"]["digest"] == masks.uniform_block(512, heads=2, b=32, ratio=0.2).digest
    assert found["nsa"]["bands"] == [[0, 512, 0, 0, 1, 1]]
    assert all(head[15][0] == 0 and head[15][-2:] == [14, 15] for head in found["nsa"]["blocks"])  # sink, and the local blocks
    assert all(head[15][-1] == 15 for head in found["moba"]["blocks"])
    for wrong, message in (
        (("causal", "--source", "nsa"), "causal is not a block pattern, so it takes no --source"),
        (("uniform_block", "--source", "nssa"), "did you mean 'nsa'"),
    ):
        assert main(["mask", *wrong]) == 2
        assert message in capsys.readouterr().err


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "longca", "ls"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)}, check=True
    )
    assert "masks" in done.stdout


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["mask", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
    text = capsys.readouterr().out
    assert f"longca {__version__}" in text
    for verb in verbs():
        assert f"\n  {verb} " in text
        assert "\n" not in cli.verb_module(verb).HELP
    assert "COMMAND" in answer(capsys)


def test_ls_masks(capsys: pytest.CaptureFixture[str]) -> None:
    lines = answer(capsys, "ls", "masks").splitlines()
    assert [line.split()[0] for line in lines[1:]] == masks.names() + masks.more_names() + masks.block_names()
    entries = json.loads(answer(capsys, "ls", "masks", "--json"))
    assert [entry["name"] for entry in entries] == masks.names() + masks.more_names() + masks.block_names()
    assert {entry["name"]: entry["params"] for entry in entries}["global_sliding_window"] == {"g": "drawn", "w": "drawn"}
    assert [entry["name"] for entry in entries if entry["documents"]] == [n for n in masks.PATTERNS if masks.build(n, 8).documents]
    assert len({entry["about"] for entry in entries}) == len(entries)


def test_ls_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [entry["name"] for entry in json.loads(answer(capsys, "ls", "--json"))]
    assert {"masks", "distributions", "packings"} <= set(listed)
    for what in ("distributions", "packings"):
        assert len(json.loads(answer(capsys, "ls", what, "--json"))) == len(answer(capsys, "ls", what).splitlines()) - 1


def test_tables_are_drawn_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "─" in answer(capsys, "ls")


@pytest.mark.parametrize("name", masks.names())
def test_json_of_a_mask(capsys: pytest.CaptureFixture[str], name: str) -> None:
    facts = json.loads(answer(capsys, "mask", name, "--seqlen", "997", "--seed", "3", "--json"))
    mask = masks.build(name, 997, seed=3)
    assert isinstance(mask, masks.Mask)
    assert list(facts) == ["name", "seqlen", "seed", "params", "documents", "area", "density", "digest", "bands"]
    assert (facts["name"], facts["seqlen"], facts["seed"], facts["params"]) == (name, 997, 3, mask.params)
    assert facts["documents"] == (None if mask.documents is None else list(mask.documents))
    assert (facts["area"], facts["density"], facts["digest"]) == (mask.area, mask.density, mask.digest)
    assert masks.Mask(997, 997, facts["bands"]) == mask


def test_json_of_a_block_mask(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(answer(capsys, "mask", "variable_block", "--seqlen", "4K", "--set", "heads=2,ratio=0.3", "--json"))
    mask = masks.variable_block(4096, heads=2, ratio=0.3)
    assert (facts["bands"], facts["documents"], facts["heads"]) == ([], None, 2)
    assert (facts["head_areas"], facts["area"], facts["params"]) == (mask.head_areas, mask.area, mask.params)
    kept = np.zeros(mask.kept.shape, bool)
    for head, rows in enumerate(facts["blocks"]):
        for row, columns in enumerate(rows):
            kept[head, row, columns] = True
    assert masks.BlockMask(facts["row_edges"], facts["col_edges"], kept) == mask


def test_settings_lengths_and_distributions_reach_the_mask(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def facts(*arguments: str) -> dict[str, object]:
        return dict(json.loads(answer(capsys, "mask", *arguments, "--json")))

    assert facts("global_sliding_window", "--set", "w=16", "--set", "g=4")["params"] == {"g": 4, "w": 16}
    (tmp_path / "lengths.txt").write_text("500 500 500")
    assert facts("causal_document", "--seqlen", "1500", "--lengths", str(tmp_path / "lengths.txt"))["documents"] == [500, 500, 500]
    assert main(["mask", "causal_document", "--seqlen", "1200", "--lengths", str(tmp_path / "lengths.txt"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["documents"] == [500, 500, 200]
    assert err == "note: the given documents hold 1500 tokens, and what is beyond the sequence (1200 tokens) is cut off.\n"
    (tmp_path / "tiny.csv").write_text("4,1\n")
    tiny = facts("full_document", "--seqlen", "100", "--distribution", str(tmp_path / "tiny.csv"))["documents"]
    assert max(tiny) <= 4  # type: ignore[call-overload]
    packed = facts("causal_document", "--seqlen", "64K", "--packing", "chunked", "--seed", "7")["documents"]
    assert packed == list(masks.causal_document(65536, seed=7, packing="chunked").documents or ())
    assert facts("causal_document", "--distribution", "chatqa2")["documents"] != facts("causal_document")["documents"]


def test_a_picture_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = answer(capsys, "mask", "causal", "--seqlen", "1M").splitlines()
    assert len(lines) > 20
    assert lines[-1].startswith("causal  1M tokens  area 549756338176  density 0.5000")


def test_png_and_gallery(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    png, deep = tmp_path / "a.png", tmp_path / "new" / "folder"
    assert answer(capsys, "mask", "share_question", "--png", str(png)) == f"wrote {png}\n"
    assert json.loads(answer(capsys, "mask", "uniform_block", "--seqlen", "1K", "--set", "heads=5", "--png", str(png), "--json"))
    assert answer(capsys, "mask", "--gallery", str(deep), "--seqlen", "997") == f"wrote {deep / 'masks.png'}\n"
    for picture in (png, deep / "masks.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_pattern_that_takes_long_is_said_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("longca.api.show_mask.MANY_BLOCKS", 100)
    assert main(["mask", "uniform_block", "--seqlen", "1K", "--heads", "2:1"]) == 0
    assert capsys.readouterr().err.startswith("note: a pattern of 0.000256 million blocks takes a while to make; fewer heads")


BAD = [
    (["nosuch"], f"unknown command 'nosuch'; known are: {', '.join(verbs())}."),
    (["verify", "--kernels", "torch", "--dtype", "fp8"], "unknown dtype 'fp8'; known are: bf16, fp16, fp32, fp64."),
    (["lss"], "unknown command 'lss'; did you mean 'ls'?"),
    (["ls", "mask"], "unknown listing 'mask'; did you mean 'masks'?"),
    (["ls", "--jsn"], "unrecognized arguments: --jsn (did you mean --json?); see `longca ls --help`."),
    (
        ["recommend", "--masks", "causal", "--seqlens=8K", "--html"],
        "unrecognized arguments: --masks causal --seqlens=8K --html (did you mean --mask, --seqlen?); see `longca recommend --help`.",
    ),
    (["--nothing"], "unrecognized arguments: --nothing; see `longca --help`."),
    (["mask"], "give a mask (`longca ls masks` lists them), or --gallery DIR for a picture of all."),
    (["mask", "causl"], "unknown mask 'causl'; did you mean 'causal'?"),
    (["mask", "zzz"], "unknown mask 'zzz'; known are: " + ", ".join(masks.names() + masks.more_names() + masks.block_names()) + "."),
    (["mask", "causal", "--seqlen", "0"], "the sequence length must be a whole number of 1 or more, not 0."),
    (["mask", "causal", "--seqlen", "-8"], "the sequence length must be a whole number of 1 or more, not -8."),
    (["mask", "causal", "--seqlen", "eight"], "'eight' is not a size; write a whole number such as 8192, 8K or 1M."),
    (["mask", "causal", "--seed", "x"], "argument --seed: invalid int value: 'x'; see `longca mask --help`."),
    (["mask", "sliding_window", "--set", "w=-1"], "sliding_window: w must be a whole number of 0 or more, not -1."),
    (["mask", "sliding_window", "--set", "w"], "'w' is not a setting; write name=value, such as w=512."),
    (["mask", "sliding_window", "--set", "w=wide"], "'wide' is not a number; write one such as 512, 1K or 0.5."),
    (["mask", "prefix_lm_causal", "--seqlen", "8", "--set", "p=9"], "prefix_lm_causal: p must be a whole number from 0 to 8, not 9."),
    (["mask", "causal", "--set", "w=3"], "causal has no parameter 'w'; it has none."),
    (["mask", "causal", "--set", "seed=3"], "causal has no parameter 'seed'; it has none."),
    (["mask", "uniform_block", "--set", "documents=3"], "uniform_block has no parameter 'documents'; it has b, ratio, heads."),
    (["mask", "causal_document", "--packing", "tetris"], "unknown packing 'tetris'; known are: draw, mixed, chunked."),
    (["mask", "causal", "--packing", "draw"], "causal has no documents, so it takes no lengths, no distribution and no packing."),
    (["mask", "causal_document", "--distribution", "pil"], "unknown length distribution 'pil'; did you mean 'pile'?"),
    (
        ["mask", "causal_document", "--distribution", "zero.csv"],
        "distribution zero.csv: probabilities must sum to 1 (within 0.01), not 0.",
    ),
    (
        ["mask", "causal_document", "--lengths", "text.txt"],
        "text.txt: document lengths are whole numbers of 1 or more, but entry 2 holds 'many'",
    ),
    (["mask", "causal_document", "--lengths", "none.txt"], "cannot read document lengths from none.txt: No such file or directory."),
    (
        ["mask", "causal_document", "--lengths", "short.txt"],
        "the documents hold 3 tokens, fewer than the sequence length 8192; give more of them.",
    ),
    (["mask", "causal", "--png", "short.txt/a.png"], "cannot write short.txt/a.png: "),
    (["mask", "causal", "--png", "new/a.png"], "cannot write new/a.png: there is no folder new; make it, or give another file."),
    (["mask", "causal", "--png", "a.foo"], "--png writes a PNG file, so its name must end in .png, not 'a.foo'."),
    (["mask", "uniform_block", "--seqlen", "1G"], "uniform_block takes 512 TiB of host memory for its blocks at 1G tokens, and "),
    (
        ["mask", "causal", "--gallery", "g"],
        "--gallery draws every mask with its own parameters; it takes only --seqlen and --seed.",
    ),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zero.csv").write_text("10,0\n20,0\n")
    Path("text.txt").write_text("10 many 20")
    Path("short.txt").write_text("1 2")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"longca: {sentence}")
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1


def test_a_process_ends_with_the_code_and_without_a_traceback() -> None:
    done = in_a_process("mask", "causl")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "longca: unknown mask 'causl'; did you mean 'causal'?\n")


def test_an_interrupted_command_is_quiet() -> None:
    code = "import longca.cli as c, longca.cli.ls as ls\ndef stop(args): raise KeyboardInterrupt\nls.run = stop\nsys.exit(c.main(['ls']))"
    done = in_a_process(code=code)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_closed_pipe_is_quiet() -> None:  # with more than a pipe can hold, so that it is closed while the command writes
    command = f"{sys.executable} -m longca mask uniform_block --seqlen 64K --json | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)}, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ('{"name":"u', "", 141)


PLUGIN = """import longca
from longca.kernels.base import Preference

class {name}(longca.Kernel):
    name, devices, capability, backward, {preference} = "{name}", ("cpu", "cuda"), (0, 0), "none", {value}

    def supports(self, mask, case):
        return longca.Yes()

    def prepare(self, mask, case):
        raise NotImplementedError
"""


def test_kernels_of_a_plugin_take_part_in_explain_if_they_have_a_preference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    common = ["explain", "--mask", "causal", "--seqlen", "64", "--forward-only", "--device", "cpu", "--plugin"]
    (tmp_path / "first.py").write_text(PLUGIN.format(name="first_of_all", preference="preference", value="Preference(cpu=0)"))
    assert main([*common, str(tmp_path / "first.py")]) == 0
    shown = capsys.readouterr()
    assert "likely first_of_all" in shown.out
    assert not shown.err
    (tmp_path / "never.py").write_text(PLUGIN.format(name="never_chosen", preference="about", value="''"))
    assert main([*common, str(tmp_path / "never.py")]) == 0
    shown = capsys.readouterr()
    assert "never_chosen" not in shown.out
    assert shown.err.startswith("note: never_chosen sets no `preference`, so `best` never chooses it")


@pytest.mark.parametrize("command", [["mask", "causal", "--seqlen", "64"], ["recommend", "--mask", "causal", "--seqlen", "32K"]])
def test_a_plugin_without_masks_is_noted_where_only_masks_count(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.py").write_text(PLUGIN.format(name="no_mask_here", preference="about", value="''"))
    assert main([*command, "--plugin", str(tmp_path / "none.py")]) == 0
    assert f"none.py has no mask, and `longca {command[0]}` uses only the masks of a plugin." in capsys.readouterr().err
