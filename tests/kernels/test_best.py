"""`best`: two kernels as one are right, the choice follows the clock, and it autotunes only where it can and once per class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import longca
from kernels.stand_ins import assert_same, leaves, textbook
from longca import masks
from longca.kernels import registry
from longca.kernels.backends import sdpa, torch_attention
from longca.kernels.base import Case
from longca.kernels.choice import _autotune, _clocks, chooser, records, words
from longca.kernels.choice._pair import Pair
from longca.kernels.choice.candidates import candidates
from longca.kernels.choice.classes import length_class, mask_class
from longca.kernels.functional import prepared_for
from longca.kernels.inputs import make

CASE = Case(79, 79, 4, 2, 16, 16, "fp64")
ON_CPU = ("sdpa:flash", "torch:plain", "torch:chunked")
KINDS = (torch_attention.TorchKernel, sdpa.Sdpa)
PAIRS = [("sdpa:flash", "torch:plain"), ("torch:chunked", "sdpa:flash"), ("torch:plain", "torch:chunked")]


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(records.CACHE, str(tmp_path))
    prepared_for.clear()
    chooser.forget()
    yield
    prepared_for.clear()
    chooser.forget()


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", masks.names())
def test_the_forward_of_one_kernel_and_the_backward_of_another_are_right(name: str, pair: tuple[str, str]) -> None:
    mask, made = masks.build(name, 79, seed=2), make(CASE)
    given, kernel = leaves(*made[:3]), Pair(*map(registry.get, pair))
    assert (kernel.chose, kernel.backward) == (" + ".join(pair), "functional")
    out = longca.attention(*given, mask, kernel=kernel)
    assert_same((out, *given), (textbook(*given, mask), *given), made.dout, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_does_sinks_and_rows_without_keys(pair: tuple[str, str]) -> None:
    gap = masks.Mask.of(79, 79, [(0, 20, 0, 0, 1, 1), (50, 79, 0, 0, 51, 1)])
    made = make(replace(CASE, sinks=True))
    assert made.sinks is not None
    *qkv, sinks = given = leaves(*made[:3], made.sinks)
    out, right = (longca.attention(*qkv, gap, kernel=kernel, sinks=sinks) for kernel in (Pair(*map(registry.get, pair)), "torch:plain"))
    assert_same((out, *given), (right, *given), made.dout, rtol=1e-6, atol=1e-8)


class FakeTime:
    """A clock that only calls of kernels move, by milliseconds that a test sets; `calls` are those in their order."""

    def __init__(self, ms: dict[tuple[str, str], float]) -> None:
        self.ms, self.seconds = ms, 0.0
        self.calls: list[tuple[str, str]] = []

    def now(self) -> float:
        return self.seconds

    def pass_time(self, label: str, pass_: str) -> None:
        self.calls.append((label, pass_))
        self.seconds += self.ms.get((label, pass_), 1.0) / 1e3


class Slowed(longca.Attention):
    def __init__(self, inner: longca.Attention, label: str, time: FakeTime) -> None:
        self._inner, self._label, self._time = inner, label, time

    def forward(self, *tensors: torch.Tensor) -> Any:
        self._time.pass_time(self._label, "fwd")
        return self._inner.forward(*tensors)

    def backward(self, *tensors: Any) -> Any:
        self._time.pass_time(self._label, "bwd")
        return self._inner.backward(*tensors)


Clocked = Callable[..., FakeTime]


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    def start(ms: dict[tuple[str, str], float]) -> FakeTime:
        time = FakeTime(ms)
        monkeypatch.setattr(_autotune, "clock_for", lambda device: _clocks.Clock(time.now))
        for kind in KINDS:
            monkeypatch.setattr(kind, "prepare", slowed(kind.prepare, time))
        return time

    return start


def slowed(prepare: Callable[..., longca.Attention], time: FakeTime) -> Callable[..., longca.Attention]:
    return lambda kernel, mask, case: Slowed(prepare(kernel, mask, case), kernel.label, time)


@pytest.mark.parametrize("forward", ON_CPU)
@pytest.mark.parametrize("backward", ON_CPU)
def test_the_choice_follows_the_clock_pass_by_pass(forward: str, backward: str, clocked: Clocked) -> None:
    time = clocked({(forward, "fwd"): 0.5, (backward, "bwd"): 0.5})
    choice = chooser.choose(masks.build("share_question", 79), CASE)
    assert (choice.forward, choice.backward, choice.source) == (forward, backward, "autotuning")
    others = [label for label in ON_CPU if label != backward]
    asked = chooser.contest(masks.build("share_question", 79), CASE)
    lead = f"autotuned: {backward} takes 0.5 ms, 2.0 times as fast as "
    assert words.why(asked, choice, "bwd", choice.backward) in [lead + other for other in others]
    assert [option.ms for option in choice.options["fwd"]] == pytest.approx([0.5, 1.0, 1.0])
    time.calls.clear()
    mask, given = masks.build("share_question", 80, seed=3), leaves(*make(replace(CASE, seqlen_q=80, seqlen_k=80))[:3])
    longca.attention(*given, mask).sum().backward()  # another mask of the class: no autotuning
    assert time.calls == [(forward, "fwd"), (backward, "bwd")]


def test_samples_of_the_kernels_are_interleaved(clocked: Clocked) -> None:
    time = clocked({(label, "fwd"): ms for label, ms in zip(ON_CPU, (1.0, 1.01, 1.02), strict=True)})
    chooser.choose(masks.causal(79), replace(CASE, backward=False))
    forwards = [label for label, _ in time.calls][len(ON_CPU) :]
    assert len(forwards) == _autotune.MOST * len(ON_CPU)
    rounds = [forwards[first : first + len(ON_CPU)] for first in range(0, len(forwards), len(ON_CPU))]
    assert all(sorted(one_round) == sorted(ON_CPU) for one_round in rounds)
    assert {one_round[0] for one_round in rounds} == set(ON_CPU), "each is the first now and then"


def test_less_workspace_wins_a_tie_of_backwards(clocked: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    clocked({("torch:plain", "bwd"): 0.995})
    choice = chooser.choose(masks.causal(79), CASE)
    assert (choice.forward, choice.backward) == ("sdpa:flash", "sdpa:flash"), "the kernel of the forward"
    chooser.forget()
    monkeypatch.setattr(longca.Kernel, "workspace", lambda kernel, case: 0 if kernel.label == "torch:chunked" else 64)
    assert chooser.choose(masks.causal(79), CASE).backward == "torch:chunked"


def test_autotuning_ends_when_its_time_is_over(clocked: Clocked) -> None:
    time = clocked({(label, pass_): 1e4 for label in ON_CPU for pass_ in ("fwd", "bwd")})
    choice = chooser.choose(masks.causal(79), CASE)
    assert (choice.forward, choice.backward) == ("sdpa:flash", "sdpa:flash")
    assert Counter(time.calls) == {("sdpa:flash", "fwd"): 2, ("sdpa:flash", "bwd"): 1}  # the forward also for the backward's out and lse
    assert [option.note for option in choice.options["fwd"][1:]] == ["not tried: the 0.5 s for this pass were over"] * 2


@pytest.mark.parametrize(("wrong", "pass_"), [("torch:plain", "fwd"), ("sdpa:flash", "fwd"), ("torch:chunked", "bwd")])
def test_a_wrong_kernel_is_dropped_and_named(
    wrong: str, pass_: str, clocked: Clocked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the first in the order: two others agree."""
    clocked({(wrong, pass_): 0.1})
    name = {"fwd": "forward", "bwd": "backward"}[pass_]
    original = getattr(Slowed, name)

    def run(attention: Slowed, *tensors: Any) -> Any:
        result = original(attention, *tensors)
        if attention._label == wrong:
            result[0][-1] = 1.0  # the last row alone
        return result

    monkeypatch.setattr(Slowed, name, run)
    choice = chooser.choose(masks.causal(79), CASE)
    assert choice.by_pass[pass_] != wrong
    right = next(label for label in ON_CPU if label != wrong)
    assert {option.kernel: option.note for option in choice.options[pass_]}[wrong] == f"wrong: its result differs from that of {right}"
    assert capsys.readouterr().err.splitlines() == [words.wrong(wrong, pass_, right)]


def ranks(monkeypatch: pytest.MonkeyPatch, count: int, own: int = 0) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: own)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: count)


def entry(pass_: str, slower: dict[str, float], kernels_versions: str = "", device: str = "a device") -> records.ClassRecords:
    standings = {label: records.KernelRatio(time, [kernels_versions]) for label, time in slower.items()}
    return records.ClassRecords(device, "causal, 1/2", 64, "4:2", "16", "fp64", pass_, False, False, kernels=standings)


def test_no_autotuning_in_a_job_of_several_ranks(
    autotuned: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("longca.devices.model", lambda device: "a device")
    chooser._say.cache_clear()
    for own in (1, 0, 0, 0):  # the first rank says it once, for all
        ranks(monkeypatch, 2, own)
        choice = chooser.choose(masks.causal(79), CASE)
        assert (choice.by_pass, choice.source) == ({"fwd": "sdpa:flash", "bwd": "sdpa:flash"}, "preference")
    line = "longca best: no autotuning in a job of several ranks; there are no records of a device, and `preference` decides. "
    assert capsys.readouterr().err == f"{line}`longca tune` measures beforehand.\n"
    slower = {"torch:plain": 1.0, "torch:chunked": 1.2, "sdpa:flash": 1.5}
    monkeypatch.setattr(records, "shipped", lambda: [entry(pass_, slower) for pass_ in ("fwd", "bwd")])
    choice = chooser.choose(masks.causal(79), CASE)
    assert (choice.by_pass, choice.source) == ({"fwd": "torch:plain", "bwd": "torch:plain"}, "records")
    assert "records of a device decide" in capsys.readouterr().err
    assert not autotuned
    ranks(monkeypatch, 1)
    assert chooser.choose(masks.causal(79), CASE).source == "autotuning"


@pytest.mark.parametrize(("made", "decides"), [("now", True), ("then", False)])
def test_what_was_tuned_decides_until_a_version_changes(
    made: str, decides: bool, autotuned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("longca.devices.model", lambda device: "a device")
    monkeypatch.setattr(records, "installed_versions", lambda kernel: "now")
    slower = {"torch:plain": 1.0, "torch:chunked": 1.2, "sdpa:flash": 1.005}
    records.tuned_folder().mkdir()
    records.tuned_file().write_bytes(msgspec.json.encode([entry(pass_, slower, made) for pass_ in ("fwd", "bwd")]))
    choice = chooser.choose(masks.causal(79), CASE)
    assert choice.source == ("records" if decides else "autotuning")
    assert bool(autotuned) != decides
    if decides:
        assert choice.forward == "torch:plain"
        ranks(monkeypatch, 8)
        assert chooser.choose(masks.causal(79), CASE) == choice
        assert not capsys.readouterr().err
        records.tuned_file().write_bytes(b"[damaged")
        assert chooser.choose(masks.causal(79), CASE).source == "preference"


def test_a_long_call_is_not_autotuned(autotuned: list[str]) -> None:
    mask, case = masks.causal(4096), Case(4096, 4096, 8, 4, 128, 128, "fp32")
    assert (chooser.choose(mask, case).obstacle, autotuned) == ("long", [])
    blocks_of_heads = blocks(0.5, 0.5, 0.5, 0.5)
    shape = Case(512, 512, 8, 4, 32, 32, "fp32")
    per_head = 2 * (32 + 32) * 2 * 512 * 512 * 0.5  # of two query heads
    for most, hindrance in ((4 * per_head, ""), (4 * per_head - 1, "long")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(chooser.MOST_FLOPS, "cpu", most)
            assert chooser.obstacle(blocks_of_heads, shape) == hindrance
            assert chooser.obstacle(blocks(0.5), shape) == hindrance


def blocks(*kept: float) -> masks.BlockMask:
    """A pattern per head, of 8 x 8 blocks of 64 of which each keeps the first ones, this share of them."""
    patterns = [(np.arange(64) < 64 * share).reshape(8, 8) for share in kept]
    return masks.BlockMask(np.arange(0, 513, 64), np.arange(0, 513, 64), np.stack(patterns))


@pytest.mark.parametrize("kept", [(0.5,), (0.0, 1.0), (0.3, 0.6)])
def test_best_on_blocks_is_right(kept: tuple[float, ...]) -> None:
    mask, case = blocks(*kept), Case(512, 512, 4, 2, 16, 16, "fp64")
    assert chooser.choose(mask, case).source == "autotuning"
    given = make(case)[:3]
    torch.testing.assert_close(longca.attention(*given, mask), textbook(*given, mask), rtol=1e-6, atol=1e-8)


def whole_kernel(cost: dict[str, float], time: FakeTime) -> type[longca.Kernel]:
    """A kernel whose backward is autograd's."""

    class Whole(longca.Kernel):
        name = "whole"
        devices, backward, preference = ("cpu",), "autograd", registry.get("sdpa").preference

        def supports(self, mask: masks.AnyMask, case: Case) -> longca.Yes:
            return longca.Yes()

        def prepare(self, mask: masks.AnyMask, case: Case) -> longca.Attention:
            class Attending(longca.AutogradAttention):
                def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                    time.calls.append(("whole", "fwd"))
                    before = time.seconds
                    _, lse = registry.get("torch:plain").prepare(mask, case).forward(q.detach(), k.detach(), v.detach())
                    time.seconds = before + cost["fwd"] / 1e3  # not that of the other kernel
                    return textbook(q, k, v, mask), lse

                def backward(self, *tensors: Any) -> Any:
                    time.pass_time("whole", "bwd")
                    return super().backward(*tensors)

            return Attending()

    time.ms["whole", "bwd"] = cost["bwd"]
    return Whole


@pytest.mark.parametrize(
    ("cost", "wins"), [({"fwd": 0.9, "bwd": 0.8}, True), ({"fwd": 1.2, "bwd": 0.7}, True), ({"fwd": 0.9, "bwd": 1.2}, False)]
)
def test_a_kernel_with_an_autograd_backward_is_taken_whole_or_not(cost: dict[str, float], wins: bool, clocked: Clocked) -> None:
    with registry.lent([whole_kernel(cost, clocked({}))]):
        mask, made = masks.causal(79), make(CASE)
        choice = chooser.choose(mask, CASE)
        assert (choice.backward == "whole") == wins
        assert choice.forward == "whole" or not wins
        given = leaves(*made[:3])
        chosen, _ = prepared_for(None, mask, CASE, None)
        assert chosen.backward == ("autograd" if wins else "functional")
        assert_same((longca.attention(*given, mask), *given), (textbook(*given, mask), *given), made.dout)
        assert not candidates(mask, replace(CASE, partial_backward=True)).whole
        assert prepared_for(None, mask, CASE, None, compiled=True).kernel.backward == "functional"


@pytest.mark.parametrize("failing", [("sdpa:flash", "torch:plain"), ON_CPU])
def test_where_all_timed_kernels_fail_others_take_part(failing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(kernel: Any, mask: Any, case: Case) -> Any:
        if kernel.label in failing:
            raise RuntimeError("no image of this kernel")
        return original(kernel, mask, case)

    original = torch_attention.TorchKernel.prepare
    for kind in KINDS:
        monkeypatch.setattr(kind, "prepare", prepare)
    left_out = "torch:chunked"
    monkeypatch.setattr("longca.devices.model", lambda device: "a device")
    slower = {"sdpa:flash": 1.0, "torch:plain": 1.0, left_out: 2.0}
    monkeypatch.setattr(records, "shipped", lambda: [entry(pass_, slower) for pass_ in ("fwd", "bwd")])
    if left_out in failing:
        with pytest.raises((longca.Refused, RuntimeError), match="no image of this kernel"):
            longca.attention(*make(CASE)[:3], masks.causal(79))
    else:
        assert chooser.choose(masks.causal(79), CASE).forward == left_out


@pytest.fixture
def autotuned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The masks that were autotuned."""
    made, run = list[str](), _autotune.autotune
    monkeypatch.setattr(_autotune, "autotune", lambda among, mask, *rest: made.append(mask_class(mask)) or run(among, mask, *rest))
    return made


def test_packed_documents_of_one_class_are_autotuned_once(autotuned: list[str]) -> None:
    packed = [masks.causal_document(1024, documents=[n, 1024 - 2 * n, n]) for n in range(300, 345, 5)]
    assert len({mask.digest for mask in packed}) == len(packed)
    for mask in packed:
        chooser.choose(mask, replace(CASE, seqlen_q=1024, seqlen_k=1024))
    assert {mask_class(mask) for mask in packed} == {"causal documents, 1/8"}
    assert autotuned == ["causal documents, 1/8"]


LONG = 1 << 15


@pytest.mark.parametrize(
    ("mask", "case", "chosen"),
    [
        (masks.build("share_question", LONG), Case(LONG, LONG, 2, 1, 16, 16, "fp32"), "torch:chunked"),  # the only candidate
        (masks.causal(79), replace(CASE, deterministic=True), "sdpa:flash"),  # which must not depend on a clock
    ],
)
def test_preference_chooses_where_no_clock_may(mask: masks.Mask, case: Case, chosen: str, autotuned: list[str]) -> None:
    choice = chooser.choose(mask, case)
    assert (choice.forward, choice.backward, choice.source) == (chosen, chosen, "preference")
    assert not autotuned


def test_no_autotuning_while_a_graph_is_captured_or_inside_torch_func(autotuned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert chooser.obstacle(masks.causal(79), replace(CASE, device="cuda")) == "graph"
    q, k, v, dout = make(CASE)
    dq = torch.func.grad(lambda q: (longca.attention(q, k, v, masks.causal(79)) * dout).sum())(q)
    assert not autotuned
    (given,) = leaves(q)
    right = longca.attention(given, k, v, masks.causal(79), kernel="torch:plain")
    torch.testing.assert_close(dq, torch.autograd.grad(right, given, dout)[0])


def test_a_compiled_call_autotunes_outside_its_graph_and_once(autotuned: list[str]) -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: masks.AnyMask) -> torch.Tensor:
        return longca.attention(q, k, v, mask) * 2

    mask, made = masks.build("share_question", 79), make(CASE)
    given = leaves(*made[:3])
    for _ in range(2):
        assert_same((attend(*given, mask), *given), (2 * textbook(*given, mask), *given), made.dout)
    assert len(autotuned) == 1


def test_autotuning_leaves_random_numbers_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    chooser.choose(masks.causal(79), CASE)
    assert torch.equal(torch.rand(3), wanted)


def test_best_is_no_part_of_all_and_no_candidate() -> None:
    assert "best" in registry.names()
    assert "best" not in registry.available_labels("cpu")
    assert "best" not in registry.compared_names()
    for device in ("cpu", "cuda"):
        assert "best" not in [kernel.name for kernel in registry.preferred(device)]


def test_the_version_of_best_covers_the_kernels_that_it_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    before = registry.versions(registry.get("best"))
    monkeypatch.setattr("longca.kernels.backends.best.installed_versions", lambda kernel: "another")
    after = registry.versions(registry.get("best"))
    assert before["candidates"] != after["candidates"]
    assert before["code"] == after["code"]


QUARTERS = [LONG // 4] * 4
CLASSES = {
    masks.full(LONG): "full",
    masks.causal(LONG): "causal, 1/2",
    masks.sliding_window(LONG, w=1024): "window, 1/16",
    masks.sliding_window_causal(LONG, w=1024): "causal window, 1/32",
    masks.full_document(LONG, documents=QUARTERS): "full documents, 1/4",
    masks.causal_document(LONG, documents=QUARTERS): "causal documents, 1/8",
    masks.share_question(LONG, documents=QUARTERS): "bands, 2 per row, 1/4",
    masks.build("uniform_block", LONG, heads=2, b=128): "blocks of 128 per head, 1/2",
    masks.full(8).rows([]): "empty",
}


def test_classes_of_masks_and_lengths() -> None:
    assert {mask: mask_class(mask) for mask in CLASSES} == CLASSES
    assert [length_class(n) for n in (0, 1, 5, 6, 8000, 11000, 12000, 1 << 17)] == [0, 1, 4, 8, 8192, 8192, 16384, 1 << 17]


@pytest.mark.parametrize("method", ["ring_p2p", "ulysses"])
def test_every_step_of_a_method_may_have_its_own_kernel(method: str) -> None:
    from parallel.running import assert_right, case_of, mask_of, plan_of, reference, run_local

    mask = mask_of("causal_document")
    case = case_of(mask.seqlen_q, (4, 2))
    assert_right(run_local(plan_of(method, mask, case, 2, "", "best")), reference(mask, case))
