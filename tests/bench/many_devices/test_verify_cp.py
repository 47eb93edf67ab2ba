"""`longca verify --level cp`: what is right and wrong on real ranks, how fast transfers are, and the file to send."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import tarfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from longca.bench.many_devices.kit import FILES
from longca.bench.many_devices.transfers import SIZES, RankFacts, groups, places
from longca.bench.many_devices.verify import CpRequest, make_level, make_steps
from longca.cli import INTERRUPTED, main
from longca.parallel import registry

FAST = ["--masks", "causal", "--seqlens", "64", "--heads", "4:2", "--head-dim", "16"]


def verify(*args: str) -> list[str]:
    return ["verify", "--level", "cp", "--device", "cpu", *args]


def rows(text: str) -> dict[str, list[str]]:
    """The table's rows by their first word."""
    return {line.split()[0]: line.split() for line in text.splitlines()[1:] if line}


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a verification of all methods, and what it printed."""
    out, shown = tmp_path_factory.mktemp("verified") / "kit", io.StringIO()
    with redirect_stdout(shown):
        assert main(verify(*FAST, "--nproc", "2", "--methods", "all", "--out", str(out))) == 0
    return out, shown.getvalue()


def test_every_method_is_checked_and_transfers_are_measured(kit: tuple[Path, str]) -> None:
    out, shown = kit
    assert f"wrote {out}.tar.gz; attach it if you report a problem" in shown
    findings = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    names = [name for name in registry.names() if not registry.get(name).takes_blocks_alone]
    assert {finding["method"] for finding in findings} == set(names)
    checked = [finding for finding in findings if registry.get(finding["method"]).takes_every_mask]
    assert {finding["status"] for finding in checked} == {"ok"}
    assert all(finding["ranks"] == 2 and "dq" in finding["errors"] for finding in checked)
    assert {finding["status"] for finding in findings} <= {"ok", "unsupported"}  # a method may refuse a mask
    transfers = [json.loads(line) for line in (out / "transfers.jsonl").read_text().splitlines()]
    assert [(line["op"], line["bytes"]) for line in transfers] == [
        (op, size) for op in ("p2p", "all_gather", "all_to_all") for size in SIZES["cpu"]
    ]
    for line in transfers:
        assert set(line) == {"op", "ranks", "nodes", "bytes", "seconds", "backend", "device"}
        assert (line["ranks"], line["nodes"], line["backend"], line["device"]) == (2, 1, "gloo", "cpu")
        assert all(0 < seconds < 10 for seconds in line["seconds"])
    table = (out / "table.txt").read_text()
    assert table in shown
    assert all(f"{name} " in table for name in (*names, "point to point", "all-gather", "all-to-all"))


def test_the_file_holds_the_folder_and_no_name_of_a_host(kit: tuple[Path, str]) -> None:
    out, _ = kit
    with tarfile.open(f"{out}.tar.gz") as archive:
        contents = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
        assert {(entry.uid, entry.uname) for entry in archive} == {(0, "")}
    assert set(contents) == {f"kit/{name}" for name in FILES}
    for name, content in contents.items():
        assert content == (out.parent / name).read_bytes()
    environment = json.loads(contents["kit/env.json"])
    assert [rank["node"] for rank in environment["ranks"]] == [0, 0]
    assert not any("host" in rank for rank in environment["ranks"])
    named = [name for name, content in contents.items() if socket.gethostname().encode() in content]
    assert not named or len(socket.gethostname()) < 4


@pytest.mark.slow
def test_a_wrong_method_and_a_rank_that_dies_have_their_rows_and_the_rest_is_checked(tmp_path: Path, plugins: Path) -> None:
    plugin = ["--plugin", str(plugins / "fragile_methods.py"), "--methods", "dies,forgets,plain_ring"]
    command = [sys.executable, "-m", "longca", *verify(*FAST, *plugin, "--nproc", "2", "--out", str(tmp_path / "kit"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stderr
    table = rows(done.stdout)
    assert {name: table[name][5] for name in ("dies", "forgets", "plain_ring")} == {"dies": "error", "forgets": "wrong", "plain_ring": "ok"}
    assert "the disk is full" in done.stdout
    assert "all-to-all" in table  # transfers are measured all the same


@pytest.mark.slow
def test_under_torchrun_the_first_rank_speaks(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "-m", "--", "longca"]
    command = [*launch, *verify("--methods", "usp,magi", "--masks", "causal,share_question", "--out", str(tmp_path / "kit"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("attach it if you report a problem") == 1
    assert rows(done.stdout)["usp"][1] == "2x2"  # with a ring, not heads alone
    assert len((tmp_path / "kit" / "findings.jsonl").read_text().splitlines()) == 2 * 4


def facts(host: str) -> RankFacts:
    return RankFacts(host, "cpu", "", "", {})


def test_pairs_and_groups_lie_inside_and_between_nodes() -> None:
    two = places([facts(host) for host in ("b", "b", "b", "a", "a", "a")])
    assert [place.node for place in two] == [0, 0, 0, 1, 1, 1]
    assert groups(two) == [
        ("p2p", [0, 1]),
        ("p2p", [0, 3]),
        ("all_gather", [0, 1, 2]),
        ("all_to_all", [0, 1, 2]),
        ("all_gather", [0, 1, 2, 3, 4, 5]),
        ("all_to_all", [0, 1, 2, 3, 4, 5]),
    ]
    assert groups(places([facts("a")] * 2)) == [("p2p", [0, 1]), ("all_gather", [0, 1]), ("all_to_all", [0, 1])]
    assert groups(places([facts("a"), facts("b")])) == [("p2p", [0, 1]), ("all_gather", [0, 1]), ("all_to_all", [0, 1])]
    assert groups(places([facts("a")])) == []


def test_every_mask_is_checked_at_a_length_that_peers_take_and_some_at_an_odd_one() -> None:
    request = CpRequest(device="cpu", nproc=4)
    level = make_level(request)
    steps = make_steps(request, level.suite, 4)
    even = [step for step in steps if step.seqlen % 8 == 0]
    assert {step.mask for step in even} == set(level.suite.mask_names)
    assert {step.seqlen % 2 for step in steps if step not in even} == {1}
    grids = {cell.split.method: cell.split.grid for cell in level.cells(steps) if cell.split}
    assert grids["usp"] == "2x2"
    assert grids["loongtrain"] == "1x4x2"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--methods", "magi"], "--methods is for context parallelism; add --level cp"),
        (["--level", "cp", "--repeat", "2"], "--repeat is for kernels; leave out --level cp"),
        (["--level", "cp", "--nproc", "999"], "999 ranks are too many for "),
        (["--level", "cp", "--methods", "magic"], "unknown context parallel method 'magic'"),
    ],
)
def test_flags_that_make_no_sense_are_refused(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--device", "cpu", *args]) == 2
    assert words in capsys.readouterr().err


def test_what_no_method_supports_is_refused_before_ranks_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longca.bench.many_devices.verify.CheckingRanks", None)
    asked = verify("--masks", "full,causal", "--methods", "halo", "--nproc", "2", "--out", str(tmp_path / "kit"))
    assert main(asked) == 2
    assert "halo cannot do this: the rows of rank 0 see the keys of all other ranks under this mask; use magi" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_was_found_before_a_signal_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longca", *verify("--methods", "ulysses", "--nproc", "2", "--out", str(tmp_path / "kit"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("[1/"):
                break
        process.send_signal(signal.SIGTERM)
        _, after = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert "stopped; " in after
    assert (tmp_path / "kit.tar.gz").exists()
    assert (tmp_path / "kit" / "findings.jsonl").read_text().count("ulysses") >= 1
