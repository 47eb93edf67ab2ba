"""`band_cute` on a Hopper GPU: masks, heads and sizes through the check, the trials of `longca verify`, streams, and long sequences against
the library's own backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.stand_ins import checked, small_mask
from longca import masks
from longca.bench.check.trial_names import OPTIONAL, TrialName
from longca.bench.check.trials import Asked, run_trial
from longca.errors import Refused
from longca.kernels import inputs, registry
from longca.kernels.backends.band_cute.kernel import BandCute
from longca.kernels.base import Attention, Case, No
from longca.masks import Mask

pytestmark = pytest.mark.gpu

S = 1536  # a multiple of the queries of a tile
CASE = Case(S, S, 16, 2, 128, 128, "bf16", "cuda")


def build(name: str) -> Mask:
    return small_mask(name, (311, 500, 1, 129, 595), 99)


def here(joined: int | None = None) -> BandCute:
    """Returns the kernel with so many joined heads; on a small mask it would join few itself."""
    kernel = BandCute(joined=joined)
    if isinstance(answer := registry.available(kernel, "cuda"), No):
        pytest.skip(answer.reason)
    return kernel


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize("joined", [8, 4, 1])
def test_every_mask(name: str, joined: int) -> None:
    checked(here(joined), build(name), CASE)


@pytest.mark.parametrize("name", ["share_question", "sliding_window"])
def test_many_heads(name: str) -> None:
    checked(here(), build(name), Case(S, S, 64, 8, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize("heads", [(8, 2), (12, 2), (8, 1), (4, 2), (6, 2), (8, 8), (10, 2)])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_heads_and_sizes(heads: tuple[int, int], dim: int, dtype: str) -> None:
    """All query heads of a KV head are joined: also an odd number of them, and one."""
    checked(here(heads[0] // heads[1]), build("causal_document"), Case(S, S, *heads, dim, dim, dtype, "cuda"))


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("joined", [1, 2, 3])
def test_some_heads_of_a_group(dim: int, joined: int) -> None:
    """dk and dv are then sums over thread blocks."""
    checked(here(joined), build("share_question"), Case(S, S, 12, 2, dim, dim, "bf16", "cuda"))


@pytest.mark.parametrize("keys", [S - 29, S + 512])
@pytest.mark.parametrize("seen", [0.5, 1.0])
@pytest.mark.parametrize("joined", [8, 2])
@pytest.mark.parametrize("dim", [64, 128])
def test_broken_key_tiles_and_keys_that_nobody_sees(keys: int, seen: float, joined: int, dim: int) -> None:
    half = int(seen * keys) // 2
    mask = Mask.of(S, keys, [(0, S // 2, 0, 0, half, 0), (S // 2, S, 0, 0, 2 * half, 0)])
    checked(here(joined), mask, Case(S, keys, 16, 2, dim, dim, "bf16", "cuda"))


def test_a_single_tile() -> None:
    checked(here(8), masks.causal(64), Case(64, 64, 16, 2, 128, 128, "bf16", "cuda"))


NOT_ITS = (*OPTIONAL, TrialName.NO_GRAD)  # it refuses a forward alone, which is that of fa4:bands


@pytest.mark.parametrize("trial", [name for name in TrialName if name not in NOT_ITS])
@pytest.mark.parametrize("joined", [8, 2])
def test_trials(trial: TrialName, joined: int) -> None:
    """Another scale, rows without visible keys, steps of a ring, strided inputs, another stream."""
    kernel = here(joined)
    with registry.lent([kernel]):
        tried = run_trial(trial, Asked(kernel.label, CASE, build("share_question"), seed=1, passes=(True,)))
    assert tried.kernel.label == "band_cute"
    assert tried.case.backward
    assert tried.verdict.ok, tried.verdict.reason


def test_sinks() -> None:
    kernel = here(4)
    with registry.lent([kernel]):
        tried = run_trial(TrialName.SINKS, Asked(kernel.label, CASE, build("causal"), seed=1, passes=(True,)))
        assert tried.verdict.ok, tried.verdict.reason
        with pytest.raises(Refused, match="softcap"):
            run_trial(TrialName.SOFTCAP, Asked(kernel.label, CASE, build("causal"), seed=1, passes=(True,)))


def gradients(attention: Attention, numbers: inputs.Inputs) -> tuple[Tensor, ...]:
    q, k, v, dout = numbers
    return attention.backward(dout, q, k, v, *attention.forward(q, k, v))


def differs(gradient: Tensor, other: Tensor) -> float:
    """Returns the largest difference over the largest value; NaN is infinitely far away."""
    off = (gradient.float() - other.float()).nan_to_num(nan=torch.inf).abs().max()
    return float(off / other.float().abs().max())


@pytest.mark.parametrize("joined", [8, 2])
def test_memory_may_hold_anything(joined: int) -> None:
    """Buffers of sums are cleared, and others written, before they are read."""
    attention, numbers = here(joined).prepare(mask := build("share_question"), CASE), inputs.make(CASE, 0, "LHD")
    first = gradients(attention, numbers)
    for value in (float("nan"), 1e30):
        for _ in range(2):
            held = [torch.full((S * 16 * 130 * scale,), value, device="cuda") for scale in (1, 2, 4)]
            torch.cuda.synchronize()
            del held
            assert all(differs(*pair) < 0.01 for pair in zip(gradients(attention, numbers), first, strict=True)), mask.name


def test_calls_on_two_streams_do_not_meet() -> None:
    """The same object runs on two streams at once, with other numbers on each."""
    attention = here(4).prepare(build("causal_document"), CASE)
    numbers = [inputs.make(CASE, seed, "LHD") for seed in (0, 1)]
    right = [gradients(attention, given) for given in numbers]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in numbers]
    for _ in range(10):
        results = []
        for stream, given in zip(streams, numbers, strict=True):
            with torch.cuda.stream(stream):
                results.append(gradients(attention, given))
        torch.cuda.synchronize()
        for result, expected in zip(results, right, strict=True):
            assert all(differs(*pair) < 0.01 for pair in zip(result, expected, strict=True))


def test_the_library_compiles_its_own_backward_before_and_after() -> None:
    """Functions of the library are replaced; for its own kernels they do what they did."""
    mask = build("share_question")
    for dtype, order in (("bf16", 1), ("fp16", -1)):
        case = Case(S, S, 4, 2, 128, 128, dtype, "cuda")
        for kernel in (here(2), registry.get("fa4:bands"))[::order]:
            checked(kernel, mask, case)
    native = registry.get("fa4:native")
    checked(native, masks.causal(S), Case(S, S, 4, 2, 64, 64, "bf16", "cuda"))


@pytest.mark.parametrize("name", ["sliding_window", "full_document", "causal_document", "share_question", "causal_blockwise", "full"])
def test_long_sequences_agree_with_the_library(name: str) -> None:
    """With as many joined heads as the kernel chooses, which the small masks above do not show."""
    mask, case = masks.build(name, 32768, seed=42), Case(32768, 32768, 64, 8, 128, 128, "bf16", "cuda")
    numbers = inputs.make(case, 0, "LHD")
    kernels = (here(), registry.get("fa4:bands"))
    results = [gradients(kernel.prepare(mask, case), numbers) for kernel in kernels]
    for gradient, other in zip(*results, strict=True):
        assert differs(gradient, other) <= 0.01
