"""`longca probe` and `longca.probe`: real gloo ranks, models of transformers, and bad input."""

import json
from pathlib import Path

import pytest
import torch

import longca
from longca import masks
from longca.cli import main

MODELS = Path(__file__).with_name("rank_models.py")
SETTINGS = dict(mask="causal_document", seqlen=96, documents=[29, 6, 11, 31, 19], vocab=24, probes=24)


@pytest.mark.parametrize(
    ("model", "kind", "cause"),
    [
        pytest.param("right", "", "", marks=pytest.mark.slow),
        ("own_keys", "blind", "each rank sees only its own keys"),
        pytest.param("local_causal", "leak", "by their place on their rank", marks=pytest.mark.slow),
        pytest.param("mean_of_means", "loss", "the mean of the ranks' means", marks=pytest.mark.slow),
    ],
)
def test_on_real_ranks(model, kind, cause):
    probed = longca.probe(f"{MODELS}:{model}", **SETTINGS, ranks=2)
    alone, together = probed.results
    assert (alone.ranks, alone.findings, together.ranks) == (1, (), 2)
    assert probed.ok == (not kind)
    if kind:
        assert together.findings[0].kind == kind
        assert cause in together.findings[0].causes[0]


@pytest.mark.slow
def test_the_command_names_the_cause_and_draws(tmp_path, capsys):
    lengths = tmp_path / "lengths.json"
    lengths.write_text("[29, 6, 11, 31, 19]")
    where = ["--lengths", str(lengths), "--seqlen", "96", "--vocab", "24", "--ranks", "2", "--probes", "24"]
    code = main(["probe", f"{MODELS}:own_keys", "--mask", "causal_document", *where, "--png", str(tmp_path / "seen.png")])
    printed = capsys.readouterr().out
    assert code == 1
    assert "1 rank: the mask is honoured" in printed
    assert "2 ranks: BLIND: row 48 does not depend on token" in printed
    assert "Cause: each rank sees only its own keys." in printed
    assert (tmp_path / "seen.png").stat().st_size > 1000


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


def test_documents_are_short_enough_for_a_probe_unless_they_are_given() -> None:
    merged = longca.probe(causal_model, "causal_document", 96, vocab=24)
    assert {finding["finding"] for finding in merged.rows} == {"leak"}
    assert longca.probe(causal_model, "causal_document", 96, vocab=24, documents=[96]).ok


def causal_model(ids: torch.Tensor) -> torch.Tensor:
    """Sums the vectors of all tokens up to each: one document, whatever the mask says."""
    vectors = torch.randn(24, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return vectors[ids].cumsum(0)
