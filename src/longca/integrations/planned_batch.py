"""Batches of transformers under context parallelism: this rank's tokens, and the plan that every layer's attention follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from longca import masks
from longca.errors import BadInput, Refused
from longca.masks import Mask
from longca.parallel.batch import IGNORED, LABELS, SHIFTED

if TYPE_CHECKING:
    from longca.parallel import Group, Plan, Planner

PLAN = "longca_plan"  # the argument of a model under which its layers find the plan
IDS, EMBEDDINGS, POSITIONS, PADDING, EDGES = "input_ids", "inputs_embeds", "position_ids", "attention_mask", "cu_seq_lens_q"
REPLACED = (PADDING, EDGES, "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx")  # the plan says what these say
KINDS = {"full_attention", "sliding_attention"}


def prepare_batch(
    batch: Mapping[str, Any], config: Any, cp: Group | Planner, *, tensor_parallel: int = 1, **settings: Any
) -> dict[str, Any]:
    """Returns the arguments of a model for this rank's tokens, from a batch with the tokens of all ranks and the model's config.

    Documents are those of `cu_seq_lens_q`, else those of `position_ids`, which begin anew with each document. Labels are shifted by one
    token over the whole sequence and become `shift_labels`; `labels` holds no label, so that a model that shifts again learns nothing.
    `cp` is a group, or its `planner` in a process that loads data. `settings` are those of `Group.plan`, such as method and kernel.
    """
    tokens = batch.get(IDS) if batch.get(IDS) is not None else batch.get(EMBEDDINGS)
    if not isinstance(tokens, torch.Tensor) or tokens.dim() < 2:
        raise BadInput(f"a batch has {IDS} [batch, tokens], or {EMBEDDINGS}; this one has {', '.join(batch) or 'nothing'}.")
    entries, seqlen = tokens.shape[:2]
    _refuse_padding(batch.get(PADDING))
    lengths = documents(batch, seqlen)
    plan = plan_of(config, lengths, cp, tensor_parallel, **settings)
    whole = {name: value for name, value in batch.items() if name not in REPLACED and value is not None}
    if POSITIONS not in whole:
        whole[POSITIONS] = torch.cat([torch.arange(length) for length in lengths]).expand(entries, -1).to(tokens.device)
    own: dict[str, Any] = dict(plan.shard(whole, axis=1))
    if SHIFTED in own:
        # transformers divides by num_items_in_batch, and gradients are averaged over ranks afterwards; its Trainer counts by itself
        own |= {LABELS: torch.full_like(own[SHIFTED], IGNORED), "num_items_in_batch": max(1, plan.labelled or 0) / plan.ranks}
    # a mask of four axes is left as it is, so a model looks for no documents in this rank's positions
    return own | {PADDING: torch.empty(entries, 1, 0, 0, device=tokens.device), "use_cache": False, PLAN: plan}


def plan_of(config: Any, lengths: tuple[int, ...], cp: Group | Planner, tensor_parallel: int = 1, **settings: Any) -> Plan:
    """Returns the plan of a model's layers for documents of these lengths. A mask has the name of its layers' window."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = windows(config)
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    sizes = (getattr(config, "qk_head_dim", None) or size, getattr(config, "v_head_dim", None) or size)
    if heads % tensor_parallel or groups % tensor_parallel:
        raise BadInput(f"{heads} and {groups} heads cannot be divided over tensor_parallel={tensor_parallel} ranks.")
    kinds = {mask_name(window): _mask(lengths, window) for window in layers}
    counts = {mask_name(window): count for window, count in layers.items()}
    shared = (heads // tensor_parallel, groups // tensor_parallel)
    return cp.plan(kinds, heads=shared, head_dim=sizes, layers=counts, **settings)


def mask_name(window: int | None) -> str:
    return f"window {window}" if window else "global"


def windows(config: Any) -> dict[int | None, int]:
    """Returns how many layers a model has with each window (in keys, a row's own included), None for those without."""
    window = getattr(config, "sliding_window", None)
    kinds = Counter(
        getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    )
    if not set(kinds) <= KINDS:
        other = ", ".join(sorted(set(kinds) - KINDS))
        raise Refused(f"context parallelism here is for layers of {' and '.join(sorted(KINDS))}, and this model has {other}.")
    return {window if kind == "sliding_attention" else None: count for kind, count in kinds.items()}


def _mask(lengths: tuple[int, ...], window: int | None) -> Mask:
    seqlen = sum(lengths)
    if len(lengths) == 1:
        return masks.sliding_window_causal(seqlen, w=window - 1) if window else masks.causal(seqlen)
    if window:
        return masks.sliding_window_causal_document(seqlen, documents=lengths, w=window - 1)
    return masks.causal_document(seqlen, documents=lengths)


def documents(batch: Mapping[str, Any], seqlen: int) -> tuple[int, ...]:
    """Returns the lengths of a batch's documents, which all entries share."""
    edges, positions = batch.get(EDGES), batch.get(POSITIONS)
    if edges is not None:
        lengths = edges.diff()
        if int(edges[0]) != 0 or int(edges[-1]) != seqlen or bool((lengths < 0).any()):
            raise BadInput(f"{EDGES} must rise from 0 to the {seqlen} tokens, not from {int(edges[0])} to {int(edges[-1])}.")
        return tuple(lengths[lengths > 0].tolist())
    if positions is None:
        return (seqlen,)
    if positions.dim() != 2 or positions.shape[1] != seqlen:
        raise BadInput(f"{POSITIONS} must be [batch, {seqlen}], not {list(positions.shape)}.")
    begins = positions.diff(dim=1) != 1
    if bool((begins != begins[:1]).any()):
        raise Refused("the entries of this batch have different documents; put them one after the other with DataCollatorWithFlattening.")
    starts = torch.cat([torch.zeros(1, dtype=torch.long), begins[0].nonzero().flatten().cpu() + 1, torch.tensor([seqlen])])
    return tuple(starts.diff().tolist())


def _refuse_padding(padding: Any) -> None:
    if isinstance(padding, torch.Tensor) and not (padding.dim() == 2 and bool(padding.all())):
        raise Refused(
            f"this batch has padding or a mask of its own ({PADDING} {list(padding.shape)}); put sequences one after the other with "
            "DataCollatorWithFlattening."
        )
