"""`best` where its choice, by records or by a trial of a part of a call, has no memory for the whole: the next best kernel runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import longca
from longca import masks
from longca.cli import main
from longca.kernels import registry
from longca.kernels.backends import sdpa, torch_attention
from longca.kernels.base import Case, Preference
from longca.kernels.choice import chooser, kept, measured, trial
from longca.kernels.choice.candidates import candidates
from longca.kernels.choice.choice import Choice, Option
from longca.kernels.choice.fallback import NO_MEMORY, next_best
from longca.kernels.functional import prepared_for
from longca.kernels.inputs import Inputs, make
from longca.results.reading import read

CASE = Case(64, 64, 4, 2, 16, 16, "fp32")
PART = "1 of 2 KV heads"
TIMES = {
    "fwd": {"sdpa:flash": 1.0, "torch:plain": 2.0, "torch:chunked": 3.0},
    "bwd": {"sdpa:flash": 1.0, "torch:plain": 3.0, "torch:chunked": 2.0},
}


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(kept.FOLDER, str(tmp_path / "cache"))
    prepared_for.cache_clear()
    chooser.forget()
    yield
    prepared_for.cache_clear()
    chooser.forget()


class Limited(longca.Attention):
    """Runs another attention; has no memory for some passes of more than one KV head."""

    def __init__(self, inner: longca.Attention, passes: set[str]) -> None:
        self._inner, self._passes = inner, passes

    def _refuse(self, pass_: str, k: torch.Tensor) -> None:
        if pass_ in self._passes and k.shape[1] > 1:
            raise torch.OutOfMemoryError(f"CUDA out of memory in the {pass_}")

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        self._refuse("fwd", k)
        return self._inner.forward(q, k, v)

    def backward(self, dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, *others: Any) -> Any:
        self._refuse("bwd", k)
        return self._inner.backward(dout, q, k, *others)


Limit = Callable[[dict[str, set[str]]], None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Makes kernels run out of memory in passes of the whole call ("plan": when they are prepared), after a trial with set times."""

    def begin(failing: dict[str, set[str]]) -> None:
        def limited(prepare: Any) -> Any:
            def prepared(kernel: longca.Kernel, mask: masks.AnyMask, case: Case) -> longca.Attention:
                passes = failing.get(kernel.label, set())
                if "plan" in passes and case.heads_kv > 1:
                    raise torch.OutOfMemoryError("CUDA out of memory in planning")
                return Limited(prepare(kernel, mask, case), passes)

            return prepared

        for kind in (torch_attention.TorchKernel, sdpa.Sdpa):
            monkeypatch.setattr(kind, "prepare", limited(kind.prepare))
        monkeypatch.setattr(trial, "run_trial", lambda among, mask, case, clock: timed(case.backward))

    return begin


def timed(backward: bool, **whole: tuple[float, float]) -> Choice:
    """The choice of a trial on a part; `whole` are kernels that run both passes themselves."""
    times = {name: {**by_label, **{label: both[name == "bwd"] for label, both in whole.items()}} for name, by_label in TIMES.items()}
    passes = ("fwd", "bwd") if backward else ("fwd",)
    options = {name: sorted((Option(label, ms) for label, ms in times[name].items()), key=lambda one: one.ms or 0.0) for name in passes}
    first = next(iter(whole), "sdpa:flash")
    why = {name: f"trial on {PART}: {first} takes {times[name][first]:.3g} ms" for name in passes}
    return Choice(first, first if backward else "", "trial", why, options, PART)


def gradients(mask: masks.AnyMask, made: Inputs) -> list[torch.Tensor]:
    given = [x.clone().requires_grad_() for x in made[:3]]
    out = longca.attention(*given, mask)
    return [out, *torch.autograd.grad(out, given, made.dout)]


def textbook(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: masks.AnyMask) -> tuple[torch.Tensor, torch.Tensor]:
    group = q.shape[1] // k.shape[1]
    scores = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(group, 1)) / q.shape[2] ** 0.5
    scores = scores.masked_fill(~torch.from_numpy(mask.dense()), float("-inf"))
    return torch.einsum("hij,jhd->ihd", scores.softmax(-1), v.repeat_interleave(group, 1)), scores.logsumexp(-1)


def is_right(ours: list[torch.Tensor], mask: masks.AnyMask, made: Inputs) -> None:
    given = [x.double().requires_grad_() for x in made[:3]]
    out, _ = textbook(*given, mask)
    for mine, other in zip(ours, [out, *torch.autograd.grad(out, given, made.dout.double())], strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("failing", "chose"),
    [
        ({}, "sdpa:flash"),
        ({"sdpa:flash": {"bwd"}}, "sdpa:flash + torch:chunked"),
        ({"sdpa:flash": {"fwd"}}, "torch:plain + sdpa:flash"),
        ({"sdpa:flash": {"fwd", "bwd"}}, "torch:plain + torch:chunked"),
        ({"sdpa:flash": {"fwd", "bwd"}, "torch:plain": {"fwd"}}, "torch:chunked"),
        ({"sdpa:flash": {"plan"}}, "torch:plain + torch:chunked"),
        ({"sdpa:flash": {"bwd"}, "torch:chunked": {"plan"}}, "sdpa:flash + torch:plain"),
    ],
)
def test_the_next_best_kernel_runs_and_is_right(failing: dict[str, set[str]], chose: str, limit: Limit) -> None:
    limit(failing)
    mask, made = masks.share_question(64), make(CASE)
    ours = gradients(mask, made)
    kernel = prepared_for(None, mask, CASE, None).kernel
    assert (kernel.chose, kernel.backward) == (chose, "functional")
    is_right(ours, mask, made)
    forward, _, backward = chose.partition(" + ")
    assert chooser.choose(mask, CASE).by_pass == {"fwd": forward, "bwd": backward or forward}
    chooser.forget()
    assert chooser.choose(mask, CASE).by_pass == {"fwd": "sdpa:flash", "bwd": "sdpa:flash"}  # as on disk


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, dict[str, float]]], None]:
    """Sets the records of causal masks of 64 tokens, by pass and kernel: the time over that of the fastest. A trial is an error."""

    def begin(slower: dict[str, dict[str, float]]) -> None:
        shape = {"device": "a device", "mask": "causal, 1/2", "seqlen": 64, "heads": "4:2", "head_dim": "16", "dtype": "fp32"}
        made = [
            measured.Entry(**shape, pass_=pass_, kernels={label: measured.Standing(time, [""]) for label, time in times.items()})
            for pass_, times in slower.items()
        ]
        monkeypatch.setattr(measured, "entries", lambda: made)
        monkeypatch.setattr(chooser, "device_name", lambda device: "a device")
        monkeypatch.setattr(trial, "run_trial", lambda *_: pytest.fail("a trial"))

    return begin


RECORDS = {
    "fwd": {"sdpa:flash": 1.0, "torch:plain": 2.0, "torch:chunked": 3.0},
    "bwd": {"sdpa:flash": 1.0, "torch:plain": 3.0, "torch:chunked": 2.0},
}


@pytest.mark.parametrize(
    ("failing", "chose"),
    [
        ({"sdpa:flash": {"bwd"}}, "sdpa:flash + torch:chunked"),
        ({"sdpa:flash": {"plan"}}, "torch:plain + torch:chunked"),
    ],
)
def test_so_does_the_next_best_of_records(failing: dict[str, set[str]], chose: str, limit: Limit, recorded: Any) -> None:
    limit(failing)
    recorded(RECORDS)
    mask, made = masks.causal(64), make(CASE)
    is_right(gradients(mask, made), mask, made)
    assert prepared_for(None, mask, CASE, None).kernel.chose == chose
    forward, _, backward = chose.partition(" + ")
    choice = chooser.choose(mask, CASE)
    assert choice.by_pass == {"fwd": forward, "bwd": backward or forward}
    assert choice == chooser.remembered(chooser.contest(mask, CASE)), "explain names what runs"
    assert choice.source == "records"
    chooser.forget()
    assert chooser.choose(mask, CASE).by_pass == {"fwd": "sdpa:flash", "bwd": "sdpa:flash"}


def test_kernels_without_records_come_last_in_the_order_of_preference(recorded: Any) -> None:
    recorded({"fwd": {"sdpa:flash": 1.0, "torch:chunked": 9.0}})
    asked = chooser.contest(masks.causal(64), replace(CASE, backward=False))
    unknown = [kernel.label for kernel in asked.all.forward if kernel.label not in ("sdpa:flash", "torch:chunked")]
    choice: Choice | None = Choice("sdpa:flash", "", "records", {"fwd": "records"}, {"fwd": chooser.options(asked, "fwd")})
    order = []
    while (choice := next_best(choice, asked.all, "fwd", "functional")) is not None:
        order.append(choice.forward)
    assert order == ["torch:chunked", *unknown]
    assert unknown


def test_what_must_be_deterministic_does_not_depend_on_memory(limit: Limit) -> None:
    limit({"sdpa:flash": {"fwd"}})
    with pytest.raises(torch.OutOfMemoryError):
        longca.attention(*make(CASE)[:3], masks.causal(64), deterministic=True)


def test_what_has_run_once_is_not_replaced(limit: Limit) -> None:
    failing: dict[str, set[str]] = {"sdpa:flash": set()}
    limit(failing)
    mask, made = masks.causal(64), make(CASE)
    gradients(mask, made)
    failing["sdpa:flash"].update({"fwd", "bwd"})  # the memory of later calls is the caller's affair
    with pytest.raises(torch.OutOfMemoryError):
        gradients(mask, made)


@pytest.mark.parametrize("pass_", ["fwd", "bwd"])
def test_where_no_kernel_has_memory_the_first_error_comes_and_nothing_is_kept(pass_: str, limit: Limit) -> None:
    limit({label: {pass_} for label in TIMES["fwd"]})
    mask = masks.causal(64)
    with pytest.raises(torch.OutOfMemoryError, match=f"in the {pass_}"):
        gradients(mask, make(CASE))
    assert chooser.choose(mask, CASE) == timed(backward=True)


def test_a_kernel_that_was_timed_on_the_whole_call_is_not_replaced(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    limit({"sdpa:flash": {"fwd"}})
    monkeypatch.setattr(trial, "run_trial", lambda *_: of_the_whole())
    with pytest.raises(torch.OutOfMemoryError):
        gradients(masks.causal(64), make(CASE))


def of_the_whole() -> Choice:
    choice = timed(backward=True)
    return Choice(choice.forward, choice.backward, "trial", choice.why, choice.options)


def test_other_errors_are_not_hidden(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    limit({})
    monkeypatch.setattr(Limited, "forward", lambda *_: torch.zeros(2) + torch.zeros(3))
    with pytest.raises(RuntimeError, match="must match the size"):
        longca.attention(*make(CASE)[:3], masks.causal(64))


@pytest.mark.parametrize("spare", [False, True])
def test_a_kernel_with_an_autograd_backward_is_replaced(spare: bool, limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of its kind, or by functional kernels, of which callers then get a graph."""

    def kernel(label: str, has_memory: bool) -> type[longca.Kernel]:
        class Whole(longca.Kernel):
            name = label
            devices, backward, layout, preference = ("cpu",), "autograd", "HLD", registry.get("sdpa").preference

            def supports(self, mask: masks.AnyMask, case: Case) -> longca.Yes:
                return longca.Yes()

            def prepare(self, mask: masks.AnyMask, case: Case) -> longca.Attention:
                return Attending(mask)

        class Attending(longca.AutogradAttention):
            def __init__(self, mask: masks.AnyMask) -> None:
                self.mask = mask

            def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                if not has_memory:
                    raise torch.OutOfMemoryError("CUDA out of memory in the graph")
                out, lse = textbook(q, k, v, self.mask)
                return out, lse.detach()

        return Whole

    limit({})
    times = {"hungry": (0.1, 0.1)} | ({"modest": (0.2, 0.2)} if spare else {})
    monkeypatch.setattr(trial, "run_trial", lambda *_: timed(backward=True, **times))
    mask, made = masks.causal(64), make(CASE)
    with registry.lent([kernel("hungry", False), kernel("modest", True)]):
        is_right(gradients(mask, made), mask, made)
        chosen, attention = prepared_for(None, mask, CASE, None)
        assert (chosen.chose, chosen.backward) == ("modest" if spare else "sdpa:flash", "autograd")
        is_right(gradients(mask, made), mask, made)  # now that the caller knows the memory order
        given = [x.clone().requires_grad_() for x in made[:3]]
        with torch.enable_grad():
            out, lse = attention.forward(*given)
            is_right([out, *attention.backward(made.dout, *given, out, lse)], mask, made)


def test_a_plugin_that_wins_a_real_trial_and_has_no_memory_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hungry(longca.Kernel):
        name, devices, backward, preference = "hungry", ("cpu",), "none", Preference(cpu=0)

        def supports(self, mask: masks.AnyMask, case: Case) -> longca.Yes:
            return longca.Yes()

        def prepare(self, mask: masks.AnyMask, case: Case) -> longca.Attention:
            return Empty()

    class Empty(longca.Attention):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if q.shape[1] == case.heads_q:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return torch.empty_like(q), torch.empty(q.shape[1], len(q))  # in no time

    case = Case(4096, 4096, 8, 4, 16, 16, "fp32", backward=False)
    mask, made = masks.causal(4096), make(case)
    monkeypatch.setitem(registry._plugins, "hungry", Hungry)
    choice = chooser.choose(mask, case)
    assert (choice.forward, choice.part) == ("hungry", "1 of 4 KV heads")
    kernel, attention = registry.prepare(registry.get("best"), mask, case)
    out, _ = attention.forward(*made[:3])
    choice = chooser.choose(mask, case)
    assert choice.forward == kernel.chose != "hungry"
    assert NO_MEMORY in choice.why["fwd"]
    torch.testing.assert_close(out, longca.attention(*made[:3], mask, kernel="torch:chunked"), rtol=1e-4, atol=1e-5)


def test_the_next_best_has_the_least_sum_of_both_passes() -> None:
    mask, choice = masks.causal(64), timed(backward=True)
    among = candidates(mask, CASE)
    second = next_best(choice, among, "bwd", "functional")
    assert second is not None
    assert second.by_pass == {"fwd": "sdpa:flash", "bwd": "torch:chunked"}
    assert second.why == {
        "fwd": choice.why["fwd"],
        "bwd": f"trial on {PART}: torch:chunked takes 2 ms; {NO_MEMORY} with sdpa:flash (1 ms)",
    }
    third = next_best(second, among, "bwd", "functional")
    assert third is not None
    assert third.why["bwd"] == f"trial on {PART}: torch:plain takes 3 ms; {NO_MEMORY} with sdpa:flash (1 ms) and torch:chunked (2 ms)"
    assert next_best(third, among, "bwd", "functional") is None


@pytest.mark.usefixtures("in_process")
def test_explain_and_records_name_what_ran(limit: Limit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit({"sdpa:flash": {"bwd"}})
    shape = ["--heads", "4:2", "--head-dim", "16", "--dtype", "fp32", "--device", "cpu"]
    out = tmp_path / "out"
    longca.run(
        kernels="best", masks="causal", seqlens=64, heads="4:2", head_dims=16, dtypes="fp32", passes="fwd,bwd", budget=0.01, device="cpu",
        out=out, progress=False,
    )  # fmt: skip
    assert {record.chose for record in read(out).records} == {"sdpa:flash + torch:chunked"}
    capsys.readouterr()
    assert main(["explain", "--mask", "causal", "--seqlen", "64", *shape]) == 0
    shown = capsys.readouterr().out
    assert f"backward: torch:chunked (trial on {PART}: torch:chunked takes 2 ms; {NO_MEMORY} with sdpa:flash (1 ms))" in shown
    assert main(["explain", "--mask", "causal", "--seqlen", "64", *shape, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["kernels"]
    assert {row["kernel"]: row["note"] for row in rows if row["pass"] == "bwd"}["sdpa:flash"] == NO_MEMORY
