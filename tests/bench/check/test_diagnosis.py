"""The diagnosis of wrong kernels names the mistake, and never a wrong one."""

from __future__ import annotations

import pytest

from injected_bugs import NAMED, UNKNOWN, Bug, Plain
from longca.bench.check import check
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.bench.check.verdict import Verdict
from longca.kernels import registry

BUGS = NAMED | UNKNOWN


@pytest.fixture(autouse=True)
def _no_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "AGAIN", 0)


def verdict_on(bug: Bug) -> Verdict:
    case = bug.case
    return check_kernel(registry.get("torch:plain"), bug.prepare(case), case, reference(bug.mask, case))


@pytest.mark.parametrize("name", BUGS, ids=lambda name: f"{name}: {BUGS[name].named or 'nothing'}")  # -v prints the table
def test_the_mistake_is_named_and_of_other_bugs_nothing(name: str) -> None:
    verdict = verdict_on(BUGS[name])
    assert not verdict.ok
    assert (verdict.diagnosis.name if verdict.diagnosis else "") == BUGS[name].named


def test_without_a_bug_the_kernel_is_right() -> None:
    for bug in {bug.mask.digest + bug.dtype: bug for bug in BUGS.values()}.values():
        case = bug.case
        assert check_kernel(registry.get("torch:plain"), Plain(bug.mask, case), case, reference(bug.mask, case)).reason == ""
