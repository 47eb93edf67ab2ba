"""`longca probe` and `longca.probe`: real gloo ranks, models of transformers, and bad input."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

import longca
from longca import masks
from longca.cli import main
from longca.probe.probe import read_on_rank

MODELS = Path(__file__).with_name("rank_models.py")
SETTINGS = dict(mask="causal_document", seqlen=96, documents=[29, 6, 11, 31, 19], vocab=24, probes=24)


def test_a_mistake_on_real_ranks_is_named_and_drawn(tmp_path, capsys):
    lengths = tmp_path / "lengths.json"
    lengths.write_text(json.dumps(SETTINGS["documents"]))
    where = ["--lengths", str(lengths), "--seqlen", "96", "--vocab", "24", "--ranks", "2", "--probes", "24"]
    code = main(["probe", f"{MODELS}:own_keys", "--mask", "causal_document", *where, "--png", str(tmp_path / "seen.png")])
    printed = capsys.readouterr().out
    assert code == 1
    assert "1 rank: the mask is honoured" in printed
    assert "2 ranks: BLIND: row 48 does not depend on token" in printed
    assert "Cause: each rank sees only its own keys." in printed
    assert (tmp_path / "seen.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_wrong_loss_of_real_ranks_is_named():
    """The mask is honoured: a loss is looked at only then."""
    alone, together = longca.probe(f"{MODELS}:mean_of_means", **SETTINGS, ranks=2).results
    assert (alone.ranks, alone.findings, together.ranks) == (1, (), 2)
    assert [finding.kind for finding in together.findings] == ["loss"]
    assert "the mean of the ranks' means" in together.findings[0].causes[0]


@pytest.mark.parametrize("attention", ["eager", "sdpa", "longca"])
def test_transformers_with_packed_documents(attention):
    pytest.importorskip("transformers")
    mask = masks.causal_document(64, documents=[20, 30, 14])
    assert longca.probe(f"hf:qwen3:{attention}", mask, probes=16, layers=2).ok
    wrong = longca.probe(f"hf:qwen3:{attention}", masks.sliding_window_causal(64, w=8) | masks.full(64), probes=16)
    assert {row["finding"] for row in wrong.rows} == {"blind"}


def test_layers_with_different_masks_take_the_parameters_that_they_have() -> None:
    pytest.importorskip("transformers")
    kinds = ["sliding_window_causal_document", "causal_document"]
    settings = dict(seqlen=64, documents=[20, 30, 14], probes=16)
    assert longca.probe("hf:gemma2:eager", kinds, params={"w": 7}, **settings).ok
    assert longca.probe("hf:gemma2:eager", kinds[:1], params={"w": 7}, layers=2, **settings).rows[0]["finding"] == "leak"
    with pytest.raises(longca.LongcaError, match="has no parameter 'x'"):
        longca.probe("hf:gemma2:eager", kinds, params={"w": 7, "x": 1}, **settings)


def test_json_has_one_row_per_finding(capsys):
    pytest.importorskip("transformers")
    assert main(["probe", "hf:qwen3", "--mask", "full", "--seqlen", "32", "--probes", "8", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["ok"]
    assert answer["findings"][0]["finding"] == "blind"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(model="nothing"), "^'nothing' names no function"),
        (dict(model="nowhere.py:f"), "^there is no file nowhere.py"),
        (dict(model="longca.nowhere:f"), "cannot import"),
        (dict(model="math:nothing"), "no function 'nothing'"),
        (dict(model=3), "a function of ids"),
        (dict(model=lambda ids: ids), "floating point"),
        (dict(model=lambda ids: torch.zeros(5, 2)), "5 outputs and 96 tokens"),
        (dict(model=torch.nn.Identity(), ranks=2), "each of them can make"),
        (dict(model=torch.nn.Identity(), seqlen="1M", documents=None), "up to 2048 tokens"),
        (dict(model=torch.nn.Identity(), vocab=1), "at least 2 ids"),
        (dict(model=torch.nn.Identity(), mask="uniform_block", documents=None, seqlen=128), "block pattern"),
        (dict(model=torch.nn.Identity(), png="x.jpg"), "must end in .png"),
        (dict(model="hf:nothing"), "tiny causal model"),
        (
            dict(model=f"{MODELS}:raises"),
            r"rank 0 failed: the model raises RuntimeError: no such checkpoint \(rank_models.py line \d+ in raises",
        ),
        (dict(model=lambda ids: ids.nothing), r"the model raises AttributeError: .*nothing' \(test_verb.py line \d+ in <lambda>"),
    ],
)
def test_bad_input_is_one_sentence(settings, sentence):
    with pytest.raises(longca.LongcaError, match=sentence) as raised:
        longca.probe(**SETTINGS | settings)
    assert "\n" not in str(raised.value)


class StandIn:
    """Takes the place of a Pool: all ranks are this process, and have all rows."""

    started: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, ranks, backend="gloo", sharing=None):
        self.ranks = ranks
        self.started.append((ranks, backend, sharing and sharing.ranks))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, job, args, deadline):
        return [read_on_rank(SimpleNamespace(device=torch.device("cpu")), **args) for _ in range(self.ranks)]


@pytest.fixture
def one_gpu(monkeypatch):
    monkeypatch.setattr("longca.devices.gpus", lambda: [{"name": "a GPU"}])
    monkeypatch.setattr(sys.modules[read_on_rank.__module__], "Pool", StandIn)  # longca.probe is also a function
    StandIn.started.clear()


def whole_model():
    return causal_model


ON_GPUS = dict(model=f"{Path(__file__)}:whole_model", mask="causal", seqlen=32, vocab=24, probes=8, device="cuda")


def test_nccl_ranks_share_a_gpu_and_one_rank_has_it_alone(one_gpu) -> None:
    assert longca.probe(**ON_GPUS, ranks=2, ranks_per_gpu=2).ok
    assert StandIn.started == [(1, "nccl", None), (2, "nccl", 2)]


def test_ranks_are_gloo_ranks_unless_a_device_is_given(one_gpu) -> None:
    assert longca.probe(**ON_GPUS | dict(device="cpu"), ranks=2).ok
    assert StandIn.started == [(1, "gloo", None), (2, "gloo", None)]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(ranks=3), "^3 ranks need 3 GPUs, and this machine has 1; use --ranks-per-gpu 3 or fewer ranks.$"),
        (dict(ranks=3, ranks_per_gpu=2), "^3 ranks need 2 GPUs"),
        (dict(ranks_per_gpu=0), "shared by 1 to 16 ranks, not 0"),
        (dict(ranks=2, ranks_per_gpu=2, device="cpu"), "use --device cuda with --ranks-per-gpu"),
        (dict(device="tpu"), "tpu"),
        (dict(model="hf:qwen3"), "hf: models run on the CPU"),
        (dict(model=torch.nn.Identity()), "a function or module where it is"),
    ],
)
def test_devices_that_cannot_be_used(one_gpu, settings, sentence) -> None:
    with pytest.raises(longca.LongcaError, match=sentence) as raised:
        longca.probe(**ON_GPUS | settings)
    assert "\n" not in str(raised.value)
    assert not StandIn.started


def test_without_a_gpu_a_sentence_says_so(monkeypatch) -> None:
    monkeypatch.setattr("longca.devices.gpus", list)
    with pytest.raises(longca.LongcaError, match=r"^no GPU was found .* use --device cpu\.$"):
        longca.probe(**ON_GPUS)


def test_documents_are_short_enough_for_a_probe_unless_they_are_given() -> None:
    merged = longca.probe(causal_model, "causal_document", 96, vocab=24)
    assert {finding["finding"] for finding in merged.rows} == {"leak"}
    assert longca.probe(causal_model, "causal_document", 96, vocab=24, documents=[96]).ok


def causal_model(ids: torch.Tensor) -> torch.Tensor:
    """Sums the vectors of all tokens up to each: one document, whatever the mask says."""
    vectors = torch.randn(24, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return vectors[ids].cumsum(0)
