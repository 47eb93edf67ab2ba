"""Names, variants, availability, and what is refused before anything runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from longca import code_version, devices, masks
from longca.cli import main
from longca.errors import BadInput, Refused, Unavailable
from longca.kernels import registry
from longca.kernels.base import Case, No
from longca.kernels.overview import overview
from strategies import PAPER

CASE = Case(64, 64, 4, 2, 32, 32, "fp32", "cpu")
ALL = [registry.get(label) for name in registry.names() for label in registry.labels(name)]
EXPECTED = {"torch", "sdpa", "fa2", "fa3", "fa4", "cudnn", "cudnn_flex", "flex", "flashmask", "ffa"}


def test_a_bare_name_takes_the_first_variant_that_can() -> None:
    assert registry.choose("sdpa", masks.causal(64), CASE).label == "sdpa:flash"
    assert registry.choose("torch:chunked", masks.causal(64), CASE).label == "torch:chunked"


@pytest.mark.parametrize(
    ("label", "case", "error", "words"),
    [
        ("spda", CASE, BadInput, "did you mean 'sdpa'"),
        ("sdpa:flsh", CASE, BadInput, "did you mean 'flash'"),
        ("fa3", CASE, Unavailable, "cuda only"),
        ("flex", CASE, Refused, "no backward on a CPU"),
        ("sdpa:math", replace(CASE, partial_backward=True), Refused, "another call's out and lse"),  # its backward is autograd's
    ],
)
def test_what_cannot_run_is_an_error_with_the_reason_and_never_replaced(label: str, case: Case, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        registry.choose(label, masks.causal(64), case)


@pytest.mark.parametrize("label", ["fa4:bands", "band_cute", "cudnn_flex", "flex", "ffa", "flashmask", "torch:plain", "torch:chunked"])
def test_kernels_of_any_band_mask_know_the_masks_of_the_paper(label: str) -> None:
    case = Case(4096, 4096, 64, 8, 128, 128, "bf16", "cuda")
    for name in PAPER:
        mask = masks.build(name, 4096, seed=42)
        assert any(registry.supports(kernel, mask, case) for kernel in registry.choices(label)), name


@pytest.mark.parametrize("label", ["flashmask:torch", "flashmask:paddle"])
def test_flashmask_takes_what_column_intervals_can_show(label: str) -> None:
    case = Case(4096, 4096, 64, 8, 128, 128, "bf16", "cuda")
    drawn = [masks.build(name, 4096, seed=42) for name in masks.names()]
    for mask in [*drawn, masks.causal(4096).rows([(0, 100), (200, 300), (500, 600), (4000, 4096)]).cols([(0, 396)])]:
        try:
            expressible = bool(len(mask.column_intervals().rows))
        except Refused:
            expressible = False
        assert bool(registry.supports(registry.get(label), mask, case)) == expressible, mask.name


def test_ls_kernels_needs_no_torch() -> None:
    program = "import sys; from longca.cli import main; main(['ls', 'kernels']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_what_is_known_of_one_kernel_or_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*names: str) -> str:
        assert main(["ls", "kernels", *names]) == 0
        return capsys.readouterr().out

    everything, entries = listed("--details"), overview()
    for entry in [entry for entry in entries if entry["kernel"] in ("fa2:torch", "vsa")]:
        one = listed(entry["kernel"])
        said = [entry["here"], entry["tested"], *(answer["note"] for answer in entry["masks"].values() if answer["answer"] == "no")]
        assert all(words in one and words in everything for words in said), entry["kernel"]
    assert [line.split()[0] for line in listed("fa2").splitlines()[1:3]] == ["fa2:torch", "fa2:package"]
    assert [entry["kernel"] for entry in json.loads(listed("fa2", "--json"))] == ["fa2:torch", "fa2:package"]
    assert main(["ls", "kernels", "fa22"]) == 2
    assert "unknown name 'fa22'; did you mean 'fa2'?" in capsys.readouterr().err


def test_the_overview_has_all_kernels_and_asks_block_kernels_in_the_form_they_know() -> None:
    answers = {entry["kernel"]: entry["masks"] for entry in overview()}
    assert {label.partition(":")[0] for label in answers} == set(registry.names()) >= EXPECTED
    assert answers["flex"]["share_question"]["answer"] == "lowered"
    notes = {label: of_masks["uniform_block"] for label, of_masks in answers.items()}
    assert notes["vsa"] == {"answer": "native", "note": "as many KV heads as query heads"}
    assert notes["fa2_sparse"] == {"answer": "native", "note": "blocks of 128"}
    assert notes["fa4:blocks"]["note"] == "blocks of 128"
    assert notes["block_triton"] == {"answer": "native", "note": ""}
    assert notes["fa3"]["answer"] == "no"


def test_every_device_has_a_preferred_kernel_for_every_mask() -> None:
    for device in ("cpu", "cuda"):
        kernels = registry.preferred(device)
        places = [getattr(kernel.preference, device) for kernel in kernels]
        assert places == sorted(places)
        case = replace(CASE, device=device, dtype="fp32", partial_backward=True)
        for name in (*masks.names(), *masks.block_names()):
            assert registry.supports(kernels[-1], masks.build(name, 64), case), name


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_kernel_per_device_is_the_default_of_methods(device: str) -> None:
    label = registry.default_for_methods(device)
    for kernel in registry.choices(label):
        assert kernel.backward == "functional"
        assert kernel.gives_lse
        assert device in kernel.devices
    claims = {name for name in registry.names() for kernel in registry.choices(name) if device in kernel.default_for_methods}
    assert claims == {label.partition(":")[0]}


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_a_mask_without_queries_or_keys_is_refused_or_answered(queries: int, keys: int) -> None:
    mask = masks.full(8).rows([(0, queries)] if queries else []).cols([(0, keys)] if keys else [])
    case = replace(CASE, seqlen_q=queries, seqlen_k=keys)
    for kernel in ALL:
        assert bool(registry.supports(kernel, mask, case)) == kernel.takes_empty, kernel.label


@pytest.mark.parametrize("scale", [-0.5, float("nan"), float("inf")])
def test_scales_that_a_kernel_cannot_do_are_refused(scale: float) -> None:
    for kernel in ALL:
        answer = registry.supports(kernel, masks.causal(64), replace(CASE, scale=scale))
        assert not answer or (scale == -0.5 and kernel.takes_negative_scale), kernel.label


@pytest.mark.parametrize("present", [(8, 6), (9, 0), (10, 0)])
def test_compute_capabilities_have_a_least_and_a_greatest(present: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: [{"compute_cap": ".".join(map(str, present))}])
    monkeypatch.setattr(code_version, "module_path", lambda module: Path(__file__))
    answer = registry.available(registry.get("ffa"), "cuda")
    if present == (9, 0):
        assert answer
    else:
        assert isinstance(answer, No)
        assert answer.reason == f"needs compute capability 9.0 exactly, this device has {present[0]}.{present[1]}"
    assert bool(registry.available(registry.get("cudnn"), "cuda")) == (present >= (9, 0))


@pytest.mark.parametrize("label", ["fa4:bands", "band_cute"])
def test_a_pre_release_must_be_the_one_that_is_named(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = registry.get(label)
    number = kernel.needs.split()[0].partition("==")[2]
    for found in (number, "4.0.0b35", ""):
        monkeypatch.setattr(type(kernel), "versions", lambda self, found=found: {"flash-attn-4": found} if found else {})
        answer = kernel.present()
        assert bool(answer) is (found == number)
        assert answer or f"{found or 'a copy without a number'} is here; pip install flash-attn-4" in answer.reason
