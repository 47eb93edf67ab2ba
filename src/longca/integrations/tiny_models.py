"""Tiny models of transformers with random weights, as functions of ids; for `longca.probe`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from longca.errors import BadInput, Unavailable
from longca.text import short

SMALL = dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
NO_WORDS = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)


class PackedModel(torch.nn.Module):
    """A causal language model on one packed batch entry: position_ids begin anew with each document, and no other mask is given."""

    def __init__(self, model: torch.nn.Module, documents: Sequence[int]) -> None:
        super().__init__()
        self.module, self.embedding = model, model.get_input_embeddings()  # type: ignore[operator]
        self.positions = torch.cat([torch.arange(length) for length in documents])[None]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        answer = self.module(input_ids=ids[None], position_ids=self.positions, use_cache=False)
        logits: torch.Tensor = answer.logits[0]
        return logits


def tiny_model(name: str, attention: str, documents: Sequence[int], layers: int, vocab: int, window: int | None = None) -> PackedModel:
    """Makes a model of a type of transformers, such as qwen3, with random weights; `window` counts keys, a row's own included."""
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as error:
        raise Unavailable("transformers is missing: pip install 'transformers>=4.53'.") from error
    if attention == "longca":
        from longca.integrations.transformers import register

        register(kernel="torch")
    extra = {"sliding_window": window, "use_sliding_window": True, "max_window_layers": 0} if window else {}
    try:
        config = AutoConfig.for_model(name, vocab_size=vocab, num_hidden_layers=layers, **SMALL, **NO_WORDS, **extra)
        config._attn_implementation = attention
        torch.manual_seed(0)
        model = _in_fp64(AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval(), vocab)
    except Exception as error:  # whatever a model's code raises for sizes that it did not expect
        why = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        what = f"a tiny causal model of type {name!r} with attention {attention!r}"
        names = "TYPE is a model_type such as qwen3 or gpt_oss, and ATTENTION sdpa (default), eager or longca"
        raise BadInput(f"transformers cannot make and call {what}: {short(why)}. In hf:TYPE:ATTENTION, {names}.") from error
    for parameter in model.parameters():
        if parameter.dim() > 1:  # larger weights than a model starts with, so that far keys change outputs clearly
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    return PackedModel(model, documents)


def _in_fp64(model: torch.nn.Module, vocab: int) -> torch.nn.Module:
    """The model in fp64, which shows small effects; in fp32 if one of its operations has no fp64."""
    ids = torch.arange(4)[None] % vocab
    with torch.no_grad():
        try:
            model.double()(input_ids=ids, use_cache=False)
        except RuntimeError:
            model.float()(input_ids=ids, use_cache=False)
    return model
