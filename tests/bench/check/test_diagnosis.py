"""The diagnosis of wrong kernels names the mistake, and never a wrong one."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from injected_bugs import FURTHER, NAMED, UNKNOWN, WINDOW, Bug, Plain, edges, without
from longca.bench.check import check
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import Reference, reference
from longca.bench.check.verdict import Verdict
from longca.kernels import registry
from longca.kernels.base import Case
from longca.masks import Mask

BUGS = NAMED | FURTHER | UNKNOWN


@pytest.fixture(autouse=True)
def _no_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "AGAIN", 0)


@cache
def known(mask: Mask, case: Case) -> Reference:
    """Many bugs share a mask and a case."""
    return reference(mask, case)


def verdict_on(bug: Bug) -> Verdict:
    case = bug.case
    return check_kernel(registry.get("torch:plain"), bug.prepare(case), case, known(bug.mask, case))


@pytest.mark.parametrize("name", BUGS, ids=lambda name: f"{name}: {BUGS[name].named or 'nothing'}")  # -v prints the table
def test_the_mistake_is_named_and_of_other_bugs_nothing(name: str) -> None:
    verdict = verdict_on(BUGS[name])
    assert not verdict.ok
    assert (verdict.diagnosis.name if verdict.diagnosis else "") == BUGS[name].named


def test_without_a_bug_the_kernel_is_right() -> None:
    for bug in {bug.mask.digest + bug.dtype: bug for bug in BUGS.values() if not bug.softcap}.values():
        case = bug.case
        assert check_kernel(registry.get("torch:plain"), Plain(bug.mask, case), case, known(bug.mask, case)).reason == ""


def test_a_mistake_that_right_tokens_do_not_show_is_said_of_the_wrong_ones_only() -> None:
    at_tiles, fits = torch.arange(200)[:, None] % 64 == 63, "out fits a known mistake"
    for rows, said in ((at_tiles | True, fits), (at_tiles, f"{fits}, in these tokens only")):

        def see(self: Plain, seen: torch.Tensor, rows: torch.Tensor = rows) -> torch.Tensor:
            return torch.where(rows, without(seen, edges(seen)[0]), seen)

        assert verdict_on(Bug("see", see, mask=WINDOW)).reason.endswith(f"{said}: the first key of a row is missing")
