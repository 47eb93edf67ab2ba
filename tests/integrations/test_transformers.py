"""Hugging Face models with LongCA's attention: the losses, gradients and texts of their own attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'longca[transformers]'")
from transformers import masking_utils as hf

from integrations.cp_jobs import model
from longca.errors import BadInput, Refused
from longca.integrations import transformers as longca_hf
from longca.integrations.visibility import LONGEST_DENSE

MODELS = ("qwen3", "qwen3 with a window", "gpt_oss", "gemma2")
TOKENS = torch.randint(0, 64, (3, 40), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    longca_hf.register()


def losses_and_gradients(name: str, **call: Any) -> list[list[torch.Tensor]]:
    """Of the model's own attention, and of LongCA's."""
    results = []
    for attention in ("eager", "longca"):
        made = model(name, attention)
        labels = call.get("labels", call["input_ids"])
        loss = made(**(call | {"labels": labels}), use_cache=False).loss
        loss.backward()
        results.append([loss.detach(), *(weight.grad for weight in made.parameters() if weight.grad is not None)])
    return results


def assert_same(name: str, **call: Any) -> None:
    eager, longca = losses_and_gradients(name, **call)
    assert len(eager) == len(longca) > 5
    for own, ours in zip(eager, longca, strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_packed_by_position_ids(name: str) -> None:
    positions = torch.cat([torch.arange(length) for length in (17, 1, 22)])[None]
    assert_same(name, input_ids=TOKENS[:1], position_ids=positions)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_with_padding_on_both_sides(name: str) -> None:
    there = torch.ones(3, 40, dtype=torch.long)
    there[0, :9] = 0
    there[1, 33:] = 0
    labels = TOKENS.masked_fill(there == 0, -100)
    labels[0, 9] = -100  # predicted from padding
    assert_same(name, input_ids=TOKENS, attention_mask=there, labels=labels)


@pytest.mark.parametrize("name", ["qwen3", "gpt_oss"])
def test_a_plain_batch_and_one_with_holes_in_its_padding(name: str) -> None:
    assert_same(name, input_ids=TOKENS)
    there = torch.ones(3, 40, dtype=torch.long)
    there[2, 11:14] = 0
    assert_same(name, input_ids=TOKENS, attention_mask=there)


def test_packed_by_cu_seqlens() -> None:
    """Positions run on, so nothing but the prefix sums keeps documents apart; eager gets the same as a tensor."""
    edges = torch.tensor([0, 17, 18, 40], dtype=torch.int32)
    document = torch.bucketize(torch.arange(40), edges[1:], right=True)
    seen = (document[:, None] == document) & (torch.arange(40)[:, None] >= torch.arange(40))
    made = model("qwen3", "longca").eval()
    prefix_sums = {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges, "max_length_q": 22, "max_length_k": 22}
    with torch.no_grad():
        out = made(TOKENS[:1], use_cache=False, **prefix_sums).logits
        by_tensor = made(TOKENS[:1], attention_mask=seen[None, None], use_cache=False).logits
        biases = torch.zeros(40, 40).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
        eager = model("qwen3", "eager").eval()(TOKENS[:1], attention_mask=biases, use_cache=False).logits
    torch.testing.assert_close(out, eager, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_tensor, eager, rtol=1e-4, atol=1e-5)
    with pytest.raises(BadInput, match="cu_seq_lens_q must rise from 0 to the 40 tokens"):
        made(TOKENS[:1], use_cache=False, cu_seq_lens_q=edges[:-1])


@pytest.mark.parametrize("name", MODELS)
def test_the_same_text_is_generated(name: str) -> None:
    texts = [model(name, attention).eval().generate(TOKENS[:2], max_new_tokens=10, do_sample=False) for attention in ("eager", "longca")]
    assert torch.equal(*texts)


def test_gradient_checkpointing() -> None:
    plain, saving = model("gpt_oss", "longca"), model("gpt_oss", "longca")
    saving.gradient_checkpointing_enable()
    losses = [made(TOKENS, labels=TOKENS, use_cache=False).loss for made in (plain, saving)]
    for loss in losses:
        loss.backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize(
    "function",
    [
        hf.causal_mask_function,
        hf.sliding_window_causal_mask_function(5),
        hf.sliding_window_bidirectional_mask_function(4),
        hf.chunked_causal_mask_function(7, torch.tensor([0, 3])),
        hf.and_masks(hf.causal_mask_function, hf.packed_sequence_mask_function(torch.arange(60).view(2, 30) // 11)),
        hf.and_masks(
            hf.sliding_window_causal_mask_function(4), hf.packed_sequence_mask_function((torch.arange(60).view(2, 30) // 9).flip(0))
        ),
        hf.or_masks(hf.causal_mask_function, hf.blockwise_overlay((torch.arange(60).view(2, 30) // 5) % 3 - 1)),
        lambda batch, head, q, kv: (q + kv + batch) % 3 == 0,
    ],
)
@pytest.mark.parametrize("padding", [None, [(0, 4), (26, 30)], [(10, 13), (0, 0)]])
def test_masks_show_what_transformers_functions_show(function: Any, padding: Any) -> None:
    there = torch.ones(2, 30, dtype=torch.bool)
    for entry, (first, last) in enumerate(padding or []):
        there[entry, first:last] = False
    masks = longca_hf.make_masks(2, 30, 30, mask_function=function, attention_mask=there if padding else None)
    index = torch.arange(30)
    for entry, mask in enumerate(masks):
        right = function(torch.tensor(entry), torch.tensor(0), index[:, None], index) & there[entry]
        rows = there[entry].numpy()  # what queries of padding see does not matter
        assert (mask.dense()[rows] == right.numpy()[rows]).all()


def test_rows_behind_a_cache_see_what_is_in_it() -> None:
    (mask,) = longca_hf.make_masks(1, 2, 30, q_offset=28, mask_function=hf.sliding_window_causal_mask_function(5))
    assert (mask.seqlen_q, mask.seqlen_k) == (2, 30)
    assert [row.nonzero()[0].tolist() for row in mask.dense()] == [[24, 25, 26, 27, 28], [25, 26, 27, 28, 29]]


def test_what_cannot_be_done_is_one_sentence() -> None:
    with pytest.raises(Refused, match=r"has no dropout, and the model asks for 0\.1; set attention_dropout to 0"):
        model("qwen3", "longca", attention_dropout=0.1)(TOKENS)
    with pytest.raises(Refused, match=f"tries every pair of up to {LONGEST_DENSE} tokens, not of 9000"):
        longca_hf.make_masks(1, 9000, 9000, mask_function=lambda batch, head, q, kv: q >= kv)
    bias = torch.randn(1, 1, 40, 40)
    with pytest.raises(Refused, match="adds no bias to scores"):
        model("qwen3", "longca")(TOKENS[:1], attention_mask=bias, use_cache=False)


@pytest.mark.slow
def test_a_compiled_model_gives_the_same() -> None:
    made = model("qwen3 with a window", "longca")
    positions = torch.cat([torch.arange(length) for length in (17, 1, 22)])[None]
    right = made(TOKENS[:1], position_ids=positions, labels=TOKENS[:1], use_cache=False).loss
    compiled = torch.compile(made, backend="aot_eager")
    torch.testing.assert_close(compiled(TOKENS[:1], position_ids=positions, labels=TOKENS[:1], use_cache=False).loss, right)
