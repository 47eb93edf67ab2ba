"""The command: what it prints, what it refuses, and what it must not import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from longca import __version__, cli, masks
from longca.cli import main, verbs


def in_a_process(
    *arguments: str, code: str = "from longca.cli import main; sys.exit(main(sys.argv[1:]))"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; {code}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
    heavy = "print([name for name in ('torch', 'matplotlib', 'scipy') if name in sys.modules], file=sys.stderr)"
    code = f"from longca.cli import main\ntry: main(sys.argv[1:])\nfinally: {heavy}"
    assert in_a_process(*arguments, code=code).stderr.strip() == "[]"


def test_a_selected_pattern_is_shown_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--seqlen", "512", "--heads", "4:2", "--head-dim", "16", "--set", "ratio=.2", "--set", "b=32"]
    assert "  source=nsa  b=32  " in answer(capsys, "mask", "uniform_block", "--source", "nsa", *flags)
    found = {source: json.loads(answer(capsys, "mask", "uniform_block", "--source", source, *flags, "--json")) for source in masks.SOURCES}
    assert {source: facts["source"] for source, facts in found.items()} == {source: source for source in masks.SOURCES}
    assert found["random"]["digest"] == masks.uniform_block(512, heads=2, b=32, ratio=0.2).digest
    assert found["nsa"]["bands"] == [[0, 512, 0, 0, 1, 1]]
    assert all(head[15][0] == 0 and head[15][-2:] == [14, 15] for head in found["nsa"]["blocks"])  # sink, and the local blocks
    assert all(head[15][-1] == 15 for head in found["moba"]["blocks"])


def test_help_has_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys)
    assert all(f"\n  {verb} " in text and "\n" not in cli.verb_module(verb).HELP for verb in verbs())
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"longca {__version__}\n"


def test_ls_masks(capsys: pytest.CaptureFixture[str]) -> None:
    lines = answer(capsys, "ls", "masks").splitlines()
    assert [line.split()[0] for line in lines[1:]] == masks.names() + masks.more_names() + masks.block_names()
    entries = json.loads(answer(capsys, "ls", "masks", "--json"))
    assert [entry["name"] for entry in entries] == masks.names() + masks.more_names() + masks.block_names()
    assert {entry["name"]: entry["params"] for entry in entries}["global_sliding_window"] == {"g": "drawn", "w": "drawn"}
    assert [entry["name"] for entry in entries if entry["documents"]] == [n for n in masks.PATTERNS if masks.build(n, 8).documents]
    assert len({entry["about"] for entry in entries}) == len(entries)


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


def test_png_and_gallery(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    png, deep = tmp_path / "a.png", tmp_path / "new" / "folder"
    assert answer(capsys, "mask", "share_question", "--png", str(png)) == f"wrote {png}\n"
    assert json.loads(answer(capsys, "mask", "uniform_block", "--seqlen", "1K", "--set", "heads=5", "--png", str(png), "--json"))
    assert answer(capsys, "mask", "--gallery", str(deep), "--seqlen", "997") == f"wrote {deep / 'masks.png'}\n"
    for picture in (png, deep / "masks.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")


BAD = [
    (["nosuch"], f"unknown command 'nosuch'; known are: {', '.join(verbs())}."),
    (["lss"], "unknown command 'lss'; did you mean 'ls'?"),
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
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"longca: {sentence}")
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1


def test_an_interrupted_command_is_quiet() -> None:
    code = "import longca.cli as c, longca.cli.ls as ls\ndef stop(args): raise KeyboardInterrupt\nls.run = stop\nsys.exit(c.main(['ls']))"
    done = in_a_process(code=code)
    assert (done.returncode, done.stderr) == (130, "longca: stopped.\n")


def test_a_closed_pipe_is_quiet() -> None:  # with more than a pipe can hold, so that it is closed while the command writes
    command = f"{sys.executable} -m longca mask uniform_block --seqlen 64K --json | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ('{"name":"u', "", 141)


@pytest.mark.parametrize(
    ("shell", "code", "sentence"),
    [
        ("longca ls masks > /dev/full", 2, "longca: cannot write the output: No space left on device; send it to another file.\n"),
        ("longca ls masks >&-", 0, ""),
        ("longca nothing 2>&-", 2, ""),
        ("longca nothing 2> /dev/full", 2, ""),
        ("LC_ALL=POSIX PYTHONUTF8=0 longca mask ünï > /dev/null", 2, "longca: unknown mask "),
        ("LC_ALL=POSIX PYTHONUTF8=0 longca ls models > /dev/null", 0, ""),
    ],
)
def test_output_that_cannot_be_written_ends_without_a_traceback(shell: str, code: int, sentence: str) -> None:
    command = shell.replace("longca", f"{sys.executable} -m longca", 1)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == bool(sentence)


PLUGIN = """import longca
from longca.kernels.base import Preference

class {name}(longca.Kernel):
    name, devices, capability, backward, {preference} = "{name}", ("cpu", "cuda"), (0, 0), "none", {value}

    def supports(self, mask, case):
        return longca.Yes()

    def prepare(self, mask, case):
        raise NotImplementedError
"""


def test_kernels_of_a_plugin_take_part_in_explain_if_they_have_a_preference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
