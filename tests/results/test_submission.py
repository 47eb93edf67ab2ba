"""Journals that are offered for publication: what is refused, what is removed, and that the copy says the same."""

import getpass
import json
import platform
from pathlib import Path
from typing import Any

import pytest

from journals import mask_line
from longca import masks
from longca.cli import main
from longca.errors import BadInput
from longca.recommend import shipped
from longca.results import submission
from longca.results.files import read_environments, read_masks
from longca.results.private_text import Cleaner
from longca.results.publishable import cautions
from longca.results.reading import read
from report.made import make_record

ENVIRONMENT = {
    "device": "NVIDIA H100 80GB HBM3", "device_kind": "cuda", "cpu": "a CPU",
    "cores": 8, "system": "Linux", "python": "3.12", "longca": "0.1",
    "packages": {"torch": "2.11"}, "clock": {"warmup_s": 0.1}, "date": "2026-11-01", "driver": "580", "gpu_memory_mib": "81559",
    "power_limit_w": 700.0,
}  # fmt: skip


def journal(folder: Path, *records: dict[str, Any], environment: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    lines = [json.dumps(record | {"given": {}, "key": f"key{number}"}) for number, record in enumerate(records)]
    (folder / "results.jsonl").write_text("".join(line + "\n" for line in lines))
    (folder / "env.json").write_text(json.dumps({"e": ENVIRONMENT | (environment or {})}))
    return folder


def failed(reason: str) -> dict[str, Any]:
    return make_record(None, status="error", reason=reason, kernel="flex", asked="flex", variant=None) | {"key": "failed"}


def test_a_whole_journal_is_packed_and_its_copy_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5), failed("it broke"))
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    copy = tmp_path / "out" / "h100-80gb-hbm3" / "mine"
    assert sorted(path.name for path in copy.iterdir()) == ["env.json", "masks.jsonl.xz", "results.jsonl.xz"]
    assert read(copy).records == read(source).records
    assert read_environments(copy) == read_environments(source)
    assert f"{copy}: 1 cell with a time\nalso 1 cell without a time, wrong or failed (1 error): " in capsys.readouterr().out


def test_cells_that_are_wrong_or_failed_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses = ("wrong", "wrong", "timeout", "oom", "unsupported", "skipped", "unavailable")
    others = [failed("why") | {"status": status, "key": f"{number}", "seed": number} for number, status in enumerate(statuses)]
    source = journal(tmp_path / "mine", make_record([1.0] * 5), *others)
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("also")] == [
        "also 4 cells without a time, wrong or failed (2 wrong, 1 timeout, 1 oom): they are published too; "
        "`longca run` with --retry failed measures them again."
    ]
    source = journal(tmp_path / "right", make_record([1.0] * 5), others[4], others[5])
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "without a time" not in capsys.readouterr().out


def test_paths_and_private_words_are_removed_everywhere(tmp_path: Path) -> None:
    """Also from keys and from masks, whose names records refer to."""
    own = masks.causal(8192)
    own.name = "/home/eve/mine.json"
    seen = make_record([1.0] * 5, mask=own.name, mask_digest=own.digest)
    source = journal(tmp_path / "run", seen, failed("rank 3 on node17 of ada"), environment={"plugins": {"/tmp/x/home/eve/k.py": ["mine"]}})
    (source / "masks.jsonl").write_text(mask_line(own))
    done = submission.prepare(source, tmp_path / "out", ["node17", "ada"])
    copy = read(done.folder)
    assert [(record.problem.mask, record.reason) for record in copy.records] == [("mine.json", ""), ("causal", "rank 3 on … of …")]
    assert read_environments(done.folder)["e"].plugins == {"k.py": ["mine"]}
    assert [entry.mask for entry in read_masks(done.folder).entries] == ["mine.json"]
    assert (copy.records[0].built.digest, "mine.json") in copy.masks
    assert done.cleaned == 4


def test_names_of_the_machine_that_measured_are_removed_as_far_as_they_can_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = journal(tmp_path / "run", make_record([1.0] * 5), failed("eve@gpu-a03.example.com, token=abc, eve lost gpu-a03"))
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "\n  error, 1 cell: …, token=…, eve lost gpu-a03\n  system: Linux\n" in capsys.readouterr().out
    assert main(["submit", str(source), "--out", str(tmp_path / "out"), "--name", "b", "--private", "eve", "--private", "gpu-a03"]) == 0
    assert "\n  error, 1 cell: …, token=…, … lost …\n" in capsys.readouterr().out
    assert "…, token=…, … lost …" in [record.reason for record in read(tmp_path / "out" / "h100-80gb-hbm3" / "b").records]


def test_texts_for_review_are_few_and_those_of_failures_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [failed(f"row {number} is off") | {"key": f"n{number}", "seed": number} for number in range(3)]
    words = [failed(f"no {'x' * n}") | {"status": "unsupported", "key": f"w{n}", "seed": 9 + n} for n in range(1, 12)]
    long = failed("why " * 99) | {"key": "long", "seed": 99}
    source = journal(tmp_path / "run", make_record([1.0] * 5), *words, *numbers, long)
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    _, _, title, *texts, more, _ = capsys.readouterr().out.splitlines()
    assert title == "Read the texts that will be public (14), and remove private words with --private WORD:"
    assert texts[0] == "  error, 3 cells: row 0 is off"
    assert texts[1].startswith("  error, 1 cell: why why")
    assert len(texts[1]) < 200
    assert texts[2:4] == ["  system: Linux", "  unsupported, 1 cell: no x"]
    assert len(texts) == 10
    assert more.startswith("  and 4 more; `longca export ")


@pytest.mark.parametrize("kernel", ["ada", "ada_kernel", "fast_ada"])
def test_a_private_name_that_cannot_be_removed_is_refused(kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = journal(tmp_path / "run", make_record([1.0] * 5, kernel=kernel, asked=kernel))
    command = ["submit", str(source), "--out", str(tmp_path / "out"), "--private", "ada"]
    assert main(command) == 2
    told = "'kernel' in results.jsonl still holds the word 'ada', so no copy was written; rename it and measure again, or give --keep"
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*command, "--keep", "ada"]) == 0


@pytest.mark.parametrize(
    ("environment", "reason", "holds"),
    [
        ({"plugins": {"/home/eve/k.py": []}}, "", "'plugins' in env.json still holds an absolute path, '/home/eve/k.py'"),
        ({}, "on node17", "'reason' in results.jsonl still holds the word 'node17'"),
        ({}, "eve@example.com", "'reason' in results.jsonl still holds the name of a host or an account, 'eve@example.com'"),
        ({}, "10.1.2.4 refused", "'reason' in results.jsonl still holds the name of a host or an account, '10.1.2.4 refused'"),
        ({}, "tcp://node99:1", "'reason' in results.jsonl still holds a URL of a private host"),
    ],
)
def test_what_was_written_is_read_again(
    environment: dict[str, Any], reason: str, holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that the cleaner misses is found in the files."""
    monkeypatch.setattr(Cleaner, "__call__", lambda self, value: value)
    source = journal(tmp_path / "run", make_record([1.0] * 5), failed(reason), environment=environment)
    with pytest.raises(BadInput, match=holds):
        submission.prepare(source, tmp_path / "out", ["node17"])
    assert not (tmp_path / "out").exists()


def test_versions_that_look_like_addresses_are_published(tmp_path: Path) -> None:
    versions = {"nvidia-curand": "10.3.9.90"}
    source = journal(tmp_path / "run", make_record([1.0] * 5, versions=versions), environment={"packages": versions})
    copy = read(submission.prepare(source, tmp_path / "out").folder)
    assert copy.records[0].versions == copy.environments["e"].packages == versions


def test_names_of_this_machine_are_removed_unless_many_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = journal(tmp_path / "run", make_record([1.0] * 5), failed("jo and root on mybox, x"))
    monkeypatch.setattr(platform, "node", lambda: "mybox.lan")
    for user, reason in (("jo", "… and root on …, x"), ("root", "jo and root on …, x"), ("x", "jo and root on …, x")):
        monkeypatch.setattr(getpass, "getuser", lambda user=user: user)
        assert main(["submit", str(source), "--out", str(tmp_path / user)]) == 0
        assert reason in [record.reason for record in read(tmp_path / user / "h100-80gb-hbm3" / "run").records]


def test_names_of_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = journal(tmp_path / "ada_run", make_record([1.0] * 5))
    command = ["submit", str(source), "--out", str(tmp_path / "out"), "--private", "ada"]
    assert main(command) == 2
    assert "would be named 'ada_run', which holds the word 'ada'; give another one with --name." in capsys.readouterr().err
    assert main([*command, "--name", "../run"]) == 2
    assert "'../run' is no name for the copy; give --name with letters" in capsys.readouterr().err
    assert main([*command, "--name", "run"]) == 0
    assert (tmp_path / "out" / "h100-80gb-hbm3" / "run").is_dir()


def timed(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [make_record([1.0] * 5, seed=number, **fields) for number in range(count)]


@pytest.mark.parametrize(
    ("records", "environment", "says"),
    [
        (
            timed(2),
            {"clock": {"warmup_s": 0.0}},
            "the warm-up of 2 cells is shorter than the 100 ms that reviewers ask for (the shortest: 0 ms)",
        ),
        (
            timed(1),
            {"clock": {"warmup_s": 0.08}},
            "of 1 cell is shorter than the 100 ms that reviewers ask for (the shortest: 80 ms); measure",
        ),
        (timed(1), {"clock": {"warmup_s": 0}, "device_kind": "cpu", "cores": 64}, "the warm-up of 1 cell is shorter"),
        (timed(3, noisy=True) + timed(2, mask="full"), {}, "the times of 3 of 5 cells are noisy; measure again on an idle machine"),
        (
            timed(2),
            {"changed": True},
            "LongCA had uncommitted changes in the run of 2 cells; measure again with committed code, or describe",
        ),
        (
            timed(2, mask_digest="other"),
            {},
            "masks.jsonl in {} lacks the masks of 2 cells, without which nobody can build them again; copy",
        ),
    ],
)
def test_what_a_reviewer_will_ask_is_noted(
    records: list[dict[str, Any]], environment: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = with_masks(journal(tmp_path / "mine", *records, environment=environment))
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: ")
    assert note.endswith(".")
    assert says.format(source) in note


def with_masks(folder: Path) -> Path:
    lines = [json.loads(mask_line(masks.build(name, 8192))) | {"digest": "d"} for name in ("causal", "full")]
    (folder / "masks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_journal_without_masks_is_noted_and_a_good_one_is_not(tmp_path: Path) -> None:
    source = journal(tmp_path / "mine", *timed(2, noisy=True), *timed(2, mask="full"), environment={"changed": False})
    (told,) = cautions(source)
    assert told.startswith(f"{source} lacks masks.jsonl, the file of the masks, without which nobody can build them again; copy the file")
    assert cautions(with_masks(source)) == []
    on_cpu = {"device_kind": "cpu", "cores": 64, "clock": {"warmup_s": 0.02}}
    assert cautions(with_masks(journal(tmp_path / "cpu", *timed(1), environment=on_cpu))) == []


@pytest.mark.parametrize("where", ["checkout", "package"])
def test_a_journal_of_longca_is_not_to_be_overwritten(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5), environment={"device": "AMD EPYC", "device_kind": "cpu", "cores": 64})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "SHIPPED", (tmp_path / "package",))
    (tmp_path / ("results" if where == "checkout" else "package") / "epyc" / "mine").mkdir(parents=True)
    assert main(["submit", str(source)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("results/epyc/mine exists in LongCA, so do not copy it there: submit again with another --name, or run ")
    assert (
        "`longca merge results/epyc/mine submission/epyc/mine --pack` in a checkout, which adds your cells and replaces equal ones" in last
    )
    assert main(["submit", str(source), "--name", "other"]) == 0
    assert "To publish it, copy it to results/epyc/other in a checkout" in capsys.readouterr().out


def test_a_folder_of_journals_is_refused_with_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        journal(tmp_path / name, make_record([1.0] * 5))
    assert main(["submit", str(tmp_path)]) == 2
    told = f"{tmp_path} is no journal but holds 2 journals, and submit takes one; give one of: {tmp_path}/a, {tmp_path}/b."
    assert capsys.readouterr().err == f"longca: {told}\n"
    for number in range(10):
        journal(tmp_path / f"c{number}", make_record([1.0] * 5))
    assert main(["submit", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(f"{tmp_path}/c7 and 2 more.\n")


@pytest.mark.parametrize(
    ("records", "environment", "says"),
    [
        ([failed("it broke")], {}, "no cell has a time"),
        ([make_record([1.0] * 5, check=None)], {}, "causal, 8192 tokens, fwd cannot be believed: it has a time but no check"),
        ([make_record([1.0] * 5)], {"driver": None, "packages": {}}, "does not say packages, driver"),
        ([make_record([1.0] * 5, env="other")], {}, "does not hold the environment other of 1 record"),
        (timed(1, simulated="h100-ib"), {}, "1 record is simulated; offer what was measured"),
        (timed(2, simulated="h100-ib"), {}, "2 records are simulated; offer what was measured"),
    ],
)
def test_what_cannot_be_published_is_refused(
    records: list[dict[str, Any]], environment: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = journal(tmp_path / "mine", *records, environment=environment)
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_copy_of_an_earlier_time_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5))
    command = ["submit", str(source), "--out", str(tmp_path / "out")]
    assert [main(command), main(command)] == [0, 2]
    assert "exists; remove it, or give another --name or --out." in capsys.readouterr().err


def test_folders_of_devices() -> None:
    names = ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Processor", "–"]
    assert [submission.home(name) for name in names] == ["h200", "a100-sxm4-80gb", "epyc-9654-96-core", "xeon", "other"]
