"""What is said of a wrong kernel: on which data, in which calls, and with as many digits as it takes."""

from longca.bench.check.verdict import KEPT, UNSTEADY, Compared, Error, Verdict


def verdict_of(*calls: tuple[str, bool]) -> Verdict:
    verdict = Verdict()
    for data_set, right in calls:
        errors = {"out": Error(1.0 if right else 3.0, 2.0, "token 1, head 0")}
        verdict.join(Verdict(errors, compared=[Compared(data_set, right)]))
    return verdict


def test_the_data_and_the_calls_that_are_wrong_are_named() -> None:
    wrong = "out is off by 3 at token 1, head 0, allowed 2"
    assert verdict_of(("plain", True), ("loud", True)).reason == ""
    assert verdict_of(("plain", False), ("loud", False)).reason == wrong
    assert verdict_of(("plain", False)).reason == wrong
    assert verdict_of(("plain", True), ("loud", False)).reason == f"only on data with loud edges and large numbers: {wrong}"
    assert verdict_of(("plain", False), ("loud", True)).reason == f"only on plain data: {wrong}"
    repeated = [("plain", True), ("plain", False), ("loud", True), ("loud", True)]
    assert verdict_of(*repeated).reason == f"{UNSTEADY}, wrong in 1 of 4 calls, first in call 2: {wrong}"
    repeated = [("plain", True), ("plain", True), ("loud", False), ("loud", False)]
    assert verdict_of(*repeated).reason == f"only on data with loud edges and large numbers: {wrong}"


def test_results_that_are_kept_are_not_blamed_on_the_data() -> None:
    verdict = verdict_of(("plain", True), ("loud", False))
    verdict.kept = ["out", "lse"]
    assert verdict.reason == f"it returns the out and lse {KEPT}: out is off by 3 at token 1, head 0, allowed 2"
