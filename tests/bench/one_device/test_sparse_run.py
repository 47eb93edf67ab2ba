"""Block patterns from the command to the journal: their parameters and their source are told everywhere."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from in_process import workers_in_process
from longca.cli import main
from longca.kernels import block_selection
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import LevelName, Status

RUN = ("quick-sparse", "--masks", "uniform_block,variable_block", "--kernels", "torch:plain", "--seqlens", "300", "--heads", "4:2")
SETTINGS = ("--set", "b=32", "--set", "ratio=.2,.5", "--set", "avg=40", "--set", "least=16", "--source", "moba")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small: list[str]) -> Path:
    out, said = tmp_path_factory.mktemp("sparse"), io.StringIO()
    with workers_in_process(), redirect_stdout(said), redirect_stderr(said):
        assert main(["run", *small, *RUN, *SETTINGS, "--out", str(out)]) == 0
    (out / "said.txt").write_text(said.getvalue())
    return out


def test_every_record_has_its_source_and_its_parameters(folder: Path) -> None:
    records = read(folder).records
    assert {record.status for record in records} == {Status.OK}
    blocks = [record for record in records if record.level is LevelName.SPARSE]
    assert {(record.problem.mask, record.built.params["ratio"], record.problem.pass_) for record in blocks} == {
        (mask, ratio, pass_) for mask in ("uniform_block", "variable_block") for ratio in (0.2, 0.5) for pass_ in (Pass.FWD, Pass.BWD)
    }
    assert {record.problem.source for record in blocks} == {"moba"}
    assert {record.problem.mask for record in records if record.level is LevelName.KERNEL} == {"causal"}
    for record in blocks:
        mask = block_selection.build(record.problem.mask, 300, "moba", block_selection.Heads(4, 2, 8), seed=42, **record.built.params)
        assert (record.built.digest, record.built.area) == (mask.digest, mask.area)
        assert None not in (record.build_ms, record.plan_ms, record.compile_ms)


def test_a_dry_run_knows_the_patterns_that_the_journal_has(
    folder: Path, run_here: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It makes no blocks, so it does not know the digests of their masks."""
    written = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    for source, more, end in (
        ("moba", (), rf"10 cells, all done in {folder}"),
        ("random", (), r"10 cells, about \d+ s"),
        ("moba", ("--passes", "fwd,bwd,fwd+bwd"), rf"15 cells, 10 of them done in {folder}; about \d+ s for the 5 left"),
    ):
        assert run_here(*RUN, *SETTINGS[:-1], source, *more, "--out", folder, "--dry-run") == 0
        assert re.fullmatch(end, capsys.readouterr().out.splitlines()[-1])
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == written
