"""What the tests of many ranks share."""

from __future__ import annotations

from pathlib import Path

from longca.bench.plan.suite import Suite
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import LevelName, Record

SHAPE = ["--masks", "causal_document", "--seqlens", "197", "--heads", "4:2", "--head-dim", "16", "--dtype", "fp32", "--device", "cpu"]
QUICK = [*SHAPE, "--budget", "0.02"]
SMALL = Suite(
    level=LevelName.CP,
    kernels=("torch:chunked",),
    nproc=2,
    masks=("causal",),
    seqlens=("64",),
    heads=("8:4",),
    head_dims=("16",),
    passes=(Pass.FWD,),
)


def records_of(folder: Path) -> dict[tuple[str | None, str], Record]:
    return {(record.method, record.problem.pass_.value): record for record in read(folder).records}
