"""Workers: what they import, and what a breaking one leaves of its job."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from longca.bench.catalogue import Catalogue, Entry
from longca.bench.suite import Suite

from longca.bench import journal, plan, pool
from longca.processes.lost import ChildLost

SUITE = Suite(kernels=("torch",), masks=("causal",), seqlens=("16", "17", "18", "19", "20"), heads=("2:1",), head_dims=("8",))


def test_a_backward_that_ends_the_process_does_not_hide_the_forward(start_run: Any, tmp_path: Path, plugins: Path) -> None:
    with start_run("--plugin", plugins / "backward_breaks.py", "--kernels", "backward_breaks", "--out", tmp_path) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = {record["pass"]: record for record in journal.load(tmp_path)}
    assert (found["bwd"]["status"], found["fwd"]["status"]) == ("error", "ok")
    assert "exit code 9" in found["bwd"]["reason"]
    assert found["fwd"]["grad"] is False


class BrokenWorker:
    """Loses its device in every backward: `lost` says whether it dies of it or ends the job and asks to be replaced."""

    made, lost = 0, "dies"

    def __init__(self, *_: object) -> None:
        type(self).made += 1

    def wait_ready(self) -> None: ...

    def close(self) -> None: ...

    def take_seconds(self) -> dict[str, float]:
        return {"build": 2.0, "check": 1.0}

    def run(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if job["cells"][0]["grad"]:
            if self.lost == "dies":
                raise ChildLost("timeout", "it hangs")
            yield {"pass": "bwd", "fields": {"status": "error", "reason": "device lost"}}
        else:
            yield {"pass": "fwd", "fields": {"status": "ok", "reason": ""}}
        if job["cells"][0]["grad"]:
            yield {"fatal": True}


@pytest.mark.parametrize("lost", ["dies", "asks"])
def test_a_new_worker_tries_the_forward_alone(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", type("Broken", (BrokenWorker,), {"made": 0, "lost": lost}))
    planned = plan.plan(plan.cells(SUITE, ["torch"], "cpu"), "a CPU", {"torch": {}})
    made = pool.Pool(SUITE, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, False)
    found = [dict(made.run(job)) for job in plan.jobs(planned)]
    assert [fields["fwd"]["status"] for fields in found] == ["ok"] * 5
    assert [fields["bwd"]["status"] for fields in found] == ["timeout" if lost == "dies" else "error"] * 5
    given_up = ["not tried" in fields["bwd"]["reason"] for fields in found]
    assert given_up == [False] * 3 + [True] * 2
    asked = 5 + sum(not given for given in given_up)  # forward alone, and with its backward before it
    assert made.spent_s == {"build": 2.0 * asked, "check": 1.0 * asked}  # whether it ended well or not


class LostWorker(BrokenWorker):
    """Loses its device before it has anything to say of a forward that was left of a job."""

    def run(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if job["cells"][0]["grad"]:
            yield {"fatal": True}
        else:
            yield from super().run(job)


def test_a_device_that_is_lost_without_a_word_leaves_the_forward_to_another_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", LostWorker)
    planned = plan.plan(plan.cells(SUITE, ["torch"], "cpu"), "a CPU", {"torch": {}})
    made = pool.Pool(SUITE, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, False)
    job = plan.jobs(planned)[0]
    left = replace(job, planned=tuple(entry for entry in job.planned if entry.cell.which == "fwd"))
    assert {which: fields["status"] for which, fields in made.run(left)} == {"fwd": "ok"}


def test_a_forward_alone_keeps_its_worker_and_asks_for_no_gradients() -> None:
    planned = plan.plan(plan.cells(replace(SUITE, seqlens=("16",)), ["torch"], "cpu"), "a CPU", {"torch": {}})
    (job,) = plan.jobs(planned)
    alone = pool.forward_alone(job)
    assert (alone.worker, alone.last) == (job.worker, job.last)
    assert [(entry.cell.which, entry.cell.grad, entry.key) for entry in alone.planned] == [("fwd", False, job.planned[0].key)]


def test_variants_that_break_their_worker_leave_their_sibling_alone(start_run: Any, tmp_path: Path, plugins: Path) -> None:
    asked = "kk:a,kk:b,kk:c,kk:good"
    with start_run("--plugin", plugins / "variants.py", "--kernels", asked, "--passes", "fwd", "--out", tmp_path) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = {record["asked"]: record["status"] for record in journal.load(tmp_path)}
    assert found == {"kk:a": "error", "kk:b": "error", "kk:c": "error", "kk:good": "ok"}


def test_a_bare_name_is_tried_where_it_means_another_variant_than_the_one_that_broke(start_run: Any, tmp_path: Path, plugins: Path) -> None:
    grid = ("--masks", "causal,full", "--seqlens", "16,17,18,19", "--passes", "fwd")
    with start_run("--plugin", plugins / "variants.py", "--kernels", "kk", *grid, "--out", tmp_path) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = {(record["mask"], record["seqlen"]): record for record in journal.load(tmp_path)}
    assert [found["full", length]["variant"] for length in (16, 17, 18, 19)] == ["good"] * 4
    assert all(found["causal", length]["status"] == "error" for length in (16, 17, 18, 19))
    assert ["not tried" in found["causal", length]["reason"] for length in (16, 17, 18, 19)] == [False] * 3 + [True]


class RefusingWorker(BrokenWorker):
    """Refuses odd lengths, and dies of the others."""

    def run(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if job["cells"][0]["seqlen"] % 2 == 0:
            yield {"chose": "torch", "grad": False}
            raise ChildLost("error", "it crashed")
        yield {"pass": "fwd", "fields": {"status": "unsupported", "reason": "odd"}}


def test_refusals_in_between_do_not_acquit_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", RefusingWorker)
    suite = replace(SUITE, seqlens=("16", "17", "18", "19", "20", "21", "22"), passes=("fwd",))
    planned = plan.plan(plan.cells(suite, ["torch"], "cpu"), "a CPU", {"torch": {}})
    made = pool.Pool(suite, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, False)
    found = [dict(made.run(job))["fwd"] for job in plan.jobs(planned)]
    assert [fields["reason"] for fields in found[:5]] == ["it crashed", "odd", "it crashed", "odd", "it crashed"]
    assert all(fields["reason"].startswith("not tried") for fields in found[5:])


class SiblingsWorker(BrokenWorker):
    """One variant dies in every job, the other answers; both are told apart by what was asked for, or by what was chosen."""

    def run(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        cell = job["cells"][0]
        chosen = cell["kernel"] if ":" in cell["kernel"] else "torch:plain" if cell["seqlen"] % 2 else "torch:chunked"
        yield {"chose": chosen, "grad": cell["grad"]}
        if chosen == "torch:plain":
            raise ChildLost("error", "it crashed")
        yield from ({"pass": entry["pass"], "fields": {"status": "ok", "reason": ""}} for entry in job["cells"])


@pytest.mark.parametrize("asked", [("torch:plain", "torch:chunked"), ("torch",)])
def test_a_sibling_that_answers_does_not_acquit_a_variant(asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", SiblingsWorker)
    suite = replace(SUITE, seqlens=("16", "17", "18", "19", "20", "21", "22", "23"), passes=("fwd",))
    planned = plan.plan(plan.cells(suite, asked, "cpu"), "a CPU", {label: {} for label in asked})
    made = pool.Pool(suite, Catalogue({label: Entry(label, {}) for label in asked}), "cpu", "a CPU", tmp_path, False)
    for job in plan.jobs(planned):
        list(made.run(job))
    assert made._message(job)["given_up"] == [
        ["torch:plain", False, "error", "not tried, its worker broke 3 times in a row; the last time: it crashed"]
    ]


class ConfusedWorker(BrokenWorker):
    """Answers what nobody asked, as a kernel can that writes to its worker's channel."""

    def run(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"pass": "fwd", "fields": {"status": "ok", "reason": ""}}
        yield self.second


@pytest.mark.parametrize("second", [{"pass": "fwd", "fields": {}}, {"pass": "lunch", "fields": {}}, {"pass": "bwd"}, {}])
def test_a_reply_that_nobody_asked_for_costs_its_cell(second: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", type("Confused", (ConfusedWorker,), {"second": second}))
    planned = plan.plan(plan.cells(replace(SUITE, seqlens=("16",)), ["torch"], "cpu"), "a CPU", {"torch": {}})
    made = pool.Pool(SUITE, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, False)
    found = dict(made.run(plan.jobs(planned)[0]))
    assert (found["fwd"]["status"], found["bwd"]["status"]) == ("ok", "error")
    assert found["bwd"]["reason"] == "its process sent a reply that nobody asked for"
