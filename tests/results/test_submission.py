"""Journals that are offered for publication: what is refused, what is removed, and that the copy says the same."""

import getpass
import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longca
from journals import mask_line
from longca import masks
from longca.cli import main
from longca.errors import BadInput
from longca.results import files, submission
from longca.results.files import read_environments, read_masks
from longca.results.reading import read
from longca.results.submission import Cleaner
from report.made import line, make_record

ENVIRONMENT = {
    "device": "NVIDIA H100 80GB HBM3", "device_kind": "cuda", "cpu": "a CPU",
    "cores": 8, "system": "Linux", "python": "3.12", "longca": "0.1",
    "packages": {"torch": "2.11"}, "clock": {"warmup_s": 0.1}, "date": "2026-11-01", "driver": "580", "gpu_memory_mib": "81559",
    "power_limit_w": 700.0,
}  # fmt: skip


def journal(folder: Path, *records: dict[str, Any], environment: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    lines = [line(record | {"given": {}, "key": f"key{number}"}) for number, record in enumerate(records)]
    (folder / "results.jsonl").write_text("".join(lines))
    kept = [
        {"digest": one["mask_digest"], "mask": one["mask"], "seqlen_q": 8192, "seqlen_k": 8192, "area": one["area"], "bands": None}
        for one in records
        if one["status"] == "ok"
    ]
    (folder / "masks.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in kept))
    (folder / "env.json").write_text(json.dumps({"e": ENVIRONMENT | (environment or {})}))
    return folder


def failed(reason: str) -> dict[str, Any]:
    return make_record(None, status="error", reason=reason, kernel="flex", asked="flex", variant=None) | {"key": "failed"}


def test_a_whole_journal_is_packed_and_its_copy_says_the_same(tmp_path: Path) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5), failed("it broke"))
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    copy = tmp_path / "out" / "h100-80gb-hbm3" / "mine"
    assert sorted(path.name for path in copy.iterdir()) == ["env.json", "masks.jsonl.xz", "results.jsonl.xz"]
    assert read(copy).records == read(source).records
    assert read_environments(copy) == read_environments(source)


def test_paths_and_private_words_are_removed_everywhere(tmp_path: Path) -> None:
    """Also from keys and from masks, whose names records refer to."""
    own = masks.causal(8192)
    own.name = "/home/eve/mine.json"
    seen = make_record([2.0] * 5, mask=own.name, mask_digest=own.digest, area=own.area)
    source = journal(tmp_path / "run", seen, failed("rank 3 on node17 of ada"), environment={"plugins": {"/tmp/x/home/eve/k.py": ["mine"]}})
    (source / "masks.jsonl").write_text(mask_line(own))
    done = submission.prepare(source, tmp_path / "out", ["node17", "ada"])
    copy = read(done.folder)
    assert [(record.problem.mask, record.reason) for record in copy.records] == [("mine.json", ""), ("causal", "rank 3 on … of …")]
    assert read_environments(done.folder)["e"].plugins == {"k.py": ["mine"]}
    assert [entry.mask for entry in read_masks(done.folder).entries] == ["mine.json"]
    assert (copy.records[0].built.digest, "mine.json") in copy.masks


NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789", min_size=2, max_size=9).filter(lambda name: not name.isdigit())
PLACES = ("{}", "cannot open {}", "'{}' is missing", "in ({}), line 3", "file={}", "{}: no such file", "nvcc -I{} -O3", "see {}.")


@given(
    st.lists(NAMES, min_size=1, max_size=4),
    st.sampled_from(("/", "~/", "~{}/", "../", "C:/", "//")),
    st.sampled_from(PLACES),
    st.booleans(),
)
def test_no_folder_of_a_planted_path_remains(folders: list[str], start: str, place: str, is_file: bool) -> None:
    folders = [f"private{name}" for name in folders]
    path = start.format("privateuser") + "/".join([*folders, "kernel.py"] if is_file else folders)
    for field in ("reason", "mask"):
        cleaned = Cleaner().text(place.format(path), field)
        assert "private" not in cleaned
        assert ("kernel.py" in cleaned) == is_file


@given(
    NAMES,
    st.sampled_from(("{}", "on {} of 8", "{}_kernel", "fast-{}.py", "{}@host", "({})", "/home/x/{}.json")),
    st.sampled_from((str, str.upper)),
)
def test_a_given_word_is_removed_from_all_texts_and_own_names_from_free_ones(word: str, place: str, case: Callable[[str], str]) -> None:
    text = place.format(case(word))
    alone = re.compile(rf"(?i)(?<![a-z0-9]){word}(?![a-z0-9])")
    for field in ("reason", "system", "plugins", "kernel", "mask", "device"):
        assert not alone.search(Cleaner([word]).text(text, field))
    assert not alone.search(Cleaner([], [word]).text(text, "reason"))
    assert Cleaner([], [word]).text(word, "kernel") == word


@pytest.mark.parametrize(
    "text", ["1/sqrt(head_dim)", "(a + b)/2", "200 tokens/s", "fwd/bwd", "masks.jsonl line 3", "x = a / b", "S²/2 pairs"]
)
def test_what_is_no_path_stays(text: str) -> None:
    assert Cleaner(["ada", ""]).text(text, "reason") == text


def test_names_that_would_become_one_are_refused(tmp_path: Path) -> None:
    two = [make_record([1.0] * 5, mask=f"/home/{name}/m.json", mask_digest=name) for name in "ab"]
    with pytest.raises(BadInput, match=r"the names '/home/a/m.json' and '/home/b/m.json' would both be 'm.json' in the copy; rename one"):
        submission.prepare(journal(tmp_path / "run", *two), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match=r"a private word cannot be removed from the journal: .*status"):
        submission.prepare(journal(tmp_path / "other", make_record([1.0] * 5)), tmp_path / "out", ["ok"])


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
    for more in ([], ["--name", "../run"]):
        assert main([*command, *more]) == 2
        assert "is no name for the copy, or a private one; give --name with letters" in capsys.readouterr().err
    assert main([*command, "--name", "run"]) == 0
    assert (tmp_path / "out" / "h100-80gb-hbm3" / "run").is_dir()
    assert main([*command, "--name", "run"]) == 2
    assert "exists; remove it, or give another --name or --out." in capsys.readouterr().err


def timed(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [make_record([1.0] * 5, seed=number, **fields) for number in range(count)]


def statuses(*names: str) -> list[dict[str, Any]]:
    return [failed("why") | {"status": status, "seed": number} for number, status in enumerate(names, 1)]


@pytest.mark.parametrize(
    ("records", "environment", "found"),
    [
        (timed(2), {"clock": {"warmup_s": 0.08}}, {"short_warmup": 2}),
        (timed(1), {"clock": {"warmup_s": 0}, "device_kind": "cpu", "cores": 64}, {"short_warmup": 1}),
        (timed(1), {"clock": {"warmup_s": 0.02}, "device_kind": "cpu", "cores": 64}, {}),
        (timed(3, noisy=True) + timed(2, mask="full"), {}, {"noisy": 3}),
        (timed(2), {"changed": True}, {"changed": 2}),
        (timed(1) + statuses("wrong", "wrong", "timeout", "oom", "skipped"), {}, {"failed": {"wrong": 2, "timeout": 1, "oom": 1}}),
    ],
)
def test_what_a_reviewer_will_ask_is_counted(
    records: list[dict[str, Any]], environment: dict[str, Any], found: dict[str, Any], tmp_path: Path
) -> None:
    done = submission.prepare(journal(tmp_path / "mine", *records, environment=environment), tmp_path / "out")
    none = {"short_warmup": 0, "noisy": 0, "changed": 0, "failed": {}}
    assert {name: getattr(done, name) for name in none} == none | found


def test_a_journal_without_its_masks_or_with_forged_ones_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = masks.causal(8192)
    source = journal(tmp_path / "mine", make_record([2.0] * 5, mask_digest=own.digest, area=own.area))
    entry = json.loads(mask_line(own))
    command = ["submit", str(source), "--out", str(tmp_path / "out")]
    for kept, reason in (
        (entry | {"digest": "other"}, "masks.jsonl lacks the masks of some records (causal)"),
        (entry | {"bands": [[0, 8192, 0, 0, 8191, 0]], "area": 8192 * 8191}, "in masks.jsonl"),
        (json.loads(mask_line(masks.full(8192))) | {"digest": own.digest}, "masks.jsonl has other pairs than the digest says for full"),
    ):
        (source / "masks.jsonl").write_text(json.dumps(kept) + "\n")
        assert main(command) == 1
        assert reason in capsys.readouterr().err
    (source / "masks.jsonl").write_text(json.dumps(entry) + "\n")
    assert main(command) == 0


@pytest.mark.parametrize("where", ["results", "package"])
def test_a_journal_of_longca_is_not_to_be_overwritten(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5), environment={"device": "AMD EPYC", "device_kind": "cpu", "cores": 64})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "SHIPPED", (tmp_path / "package",))
    (tmp_path / where / "epyc" / "mine").mkdir(parents=True)
    assert [longca.submit(source, name=name).exists for name in ("mine", "other")] == [True, False]


def test_a_folder_of_journals_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        journal(tmp_path / name, make_record([1.0] * 5))
    assert main(["submit", str(tmp_path)]) == 2
    assert "holds 2 journals, and submit takes one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("records", "environment", "says"),
    [
        ([failed("it broke")], {}, "no cell has a time"),
        ([make_record([1.0] * 5, check=None)], {}, "causal, 8192 tokens, fwd cannot be believed: it has a time but no check"),
        ([make_record([1.0] * 5)], {"driver": None, "packages": {}}, "does not say packages, driver"),
        ([make_record([1.0] * 5, env="other")], {}, "does not hold the environment other"),
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


def test_folders_of_devices() -> None:
    names = ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Processor", "–"]
    assert [submission.home(name) for name in names] == ["h200", "a100-sxm4-80gb", "epyc-9654-96-core", "xeon", "other"]
