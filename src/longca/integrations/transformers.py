"""Hugging Face transformers: `attn_implementation="longca"`.

>>> from longca.integrations import transformers as longca_transformers
>>> longca_transformers.register()
>>> model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="longca")

A model builds its masks once per forward; they become masks of LongCA, one per batch entry, and every layer gets those. Packed batches
(by position_ids, or by cu_seq_lens_q as its flattening collator passes them), sliding windows, chunks, padding, caches, softcap, sinks and
grouped heads work; dropout and biases on scores are refused.

Context parallelism: every rank prepares its part of the batch, and layers follow the plan that comes with it.

>>> longca_transformers.register(cp=cp)  # a longca.parallel.Group
>>> loss = model(**longca_transformers.prepare_batch(batch, model.config, cp)).loss
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from longca.errors import BadInput, Refused, Unavailable
from longca.integrations.planned_batch import PLAN, mask_name, prepare_batch
from longca.integrations.visibility import LONGEST_DENSE, Rule, segments, segments_mask
from longca.kernels.base import Kernel
from longca.kernels.functional import attention
from longca.masks import Mask, from_dense

if TYPE_CHECKING:
    from longca.parallel import Group, Plan

__all__ = ["prepare_batch", "register"]
Masks = tuple[Mask, ...]  # one per batch entry
MOST_REMEMBERED = 8  # masks made of one tensor: kinds of layers, and changes in place
LEAST = "transformers>=4.53"  # the first with an interface for masks


def register(kernel: str | Kernel | type[Kernel] | None = None, name: str = "longca", *, cp: Group | None = None) -> None:
    """Makes `attn_implementation=name` run `longca.attention`, with this kernel or the best one that can do it.

    With `cp`, batches that `prepare_batch` made run over the ranks of this group, with the kernel of their plan.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise Unavailable(f"transformers is missing or too old: pip install '{LEAST}'.") from error

    def forward(*given: Any, **options: Any) -> tuple[torch.Tensor, None]:
        plan = options.pop(PLAN, None)
        if plan is not None:
            return planned_forward(plan if cp is None else cp.use(plan), *given, **options)
        options["kernel"] = kernel
        return attention_forward(*given, **options)

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, make_masks)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def make_masks(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: torch.Tensor | None = None,
    **_: Any,
) -> Masks:
    """Returns the masks of a batch, from what transformers describes them by: a function of indices, and a 2D mask of padding."""
    total = max(int(q_offset) + q_length, int(kv_offset) + kv_length)
    padding = None if attention_mask is None else _padded(attention_mask, total)
    rule = None if mask_function is None else _rule_of(mask_function)
    if mask_function is not None and rule is None:
        masks = _evaluated(mask_function, batch_size, total, padding)
    else:
        masks = _from_rule(rule or Rule(), batch_size, total, padding)
    whole = (q_length, kv_length) == (total, total)
    rows, keys = (int(q_offset), int(q_offset) + q_length), (int(kv_offset), int(kv_offset) + kv_length)
    return masks if whole else tuple(mask.rows([rows]).cols([keys]) for mask in masks)


def _padded(attention_mask: torch.Tensor, total: int) -> torch.Tensor:
    """Returns which keys are there, [batch, total]; keys behind the end of the 2D mask are not."""
    there = attention_mask.bool().cpu()
    return torch.nn.functional.pad(there, (0, total - there.shape[1])) if there.shape[1] < total else there[:, :total]


def _rule_of(function: Callable[..., Any]) -> Rule | None:
    """Returns what a mask function of transformers shows, read from the functions that it joins; None where one of them is unknown."""
    import inspect

    from transformers import masking_utils as known

    if function is known.causal_mask_function:
        return Rule()
    if function is getattr(known, "bidirectional_mask_function", None):
        return Rule(causal=False)
    values = inspect.getclosurevars(function).nonlocals if hasattr(function, "__closure__") else {}
    maker = getattr(function, "__qualname__", "").partition(".")[0]
    if maker == "and_masks":
        rule = Rule(causal=False)
        for part in values["mask_functions"]:
            other = _rule_of(part)
            if other is None:
                return None
            rule = rule.both(other)
        return rule
    if maker == "sliding_window_overlay":
        return Rule(causal=False, window=int(values["sliding_window"]))
    if maker == "packed_sequence_mask_function":
        return Rule(causal=False, documents=values["packed_sequence_mask"].cpu())
    if maker == "chunked_overlay":
        return Rule(causal=False, chunk=int(values["chunk_size"]), chunk_start=torch.as_tensor(values["left_padding"]).cpu())
    return None


def _from_rule(rule: Rule, batch: int, total: int, padding: torch.Tensor | None) -> Masks:
    made: dict[Any, Mask] = {}
    masks = []
    for entry in range(batch):
        edges = segments(rule, entry, total, None if padding is None else padding[entry])
        if edges is None or (rule.window is not None and not rule.causal):  # padding with holes, a window without causality
            masks.append(from_dense(rule.visible(entry, total, padding)))
            continue
        key = tuple(map(tuple, edges))
        if key not in made:
            made[key] = segments_mask(edges, total, rule)
        masks.append(made[key])
    return tuple(masks)


def _evaluated(function: Callable[..., Any], batch: int, total: int, padding: torch.Tensor | None) -> Masks:
    """Returns the masks of a function that is not known by name, from every pair of tokens."""
    if total > LONGEST_DENSE:
        raise Refused(
            f"this model's mask function is unknown to LongCA, which tries every pair of up to {LONGEST_DENSE} tokens, not of {total}; "
            "use another attn_implementation."
        )
    index = torch.arange(total)
    masks = []
    for entry in range(batch):
        visible = torch.as_tensor(function(torch.tensor(entry), torch.tensor(0), index[:, None], index[None, :])).expand(total, total).cpu()
        masks.append(from_dense(visible if padding is None else visible & padding[entry]))
    return tuple(masks)


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Masks | torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: torch.Tensor | None = None,
    kernel: str | Kernel | type[Kernel] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Returns out [B, L, H, D] of query, key and value [B, H, L, D]; transformers calls it for every layer."""
    _refuse_options(dropout, options)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    shape = (query.shape[0], query.shape[2], key.shape[2])
    prefix_sums = options.get("cu_seq_lens_q")
    if prefix_sums is not None:
        masks = _of_prefix_sums(prefix_sums, options.get("cu_seq_lens_k"), shape, causal, sliding_window)
    elif isinstance(attention_mask, torch.Tensor):
        masks = _of_tensor(attention_mask, shape)
    else:
        masks = attention_mask if attention_mask is not None else _without_mask(shape, causal, sliding_window)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out = attention(q, k, v, list(masks), kernel=kernel, scale=scaling or 0.0, softcap=softcap or 0.0, sinks=s_aux)
    return out.contiguous(), None


def planned_forward(
    plan: Plan,
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Returns out [B, L, H, D] of this rank's query, key and value [B, H, L, D], over the keys of all ranks of a plan."""
    _refuse_options(dropout, options)
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        raise Refused("plans of prepare_batch are causal, and this layer is not; make a plan with Group.plan.")
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    settings: dict[str, Any] = {"scale": scaling or 0.0, "softcap": softcap or 0.0, "sinks": s_aux}
    return plan.attention(q, k, v, mask_name(sliding_window), **settings).contiguous(), None


def _refuse_options(dropout: float, options: dict[str, Any]) -> None:
    if dropout:
        raise Refused(f"longca.attention has no dropout, and the model asks for {dropout}; set attention_dropout to 0.")
    if options.get("position_bias") is not None:
        raise Refused("longca.attention adds no bias to scores; use another attn_implementation for this model.")


@lru_cache(maxsize=64)
def _without_mask(shape: tuple[int, int, int], causal: bool, window: int | None) -> Masks:
    """Returns the masks of a model that gives none: full, or causal with the last query at the last key."""
    batch, queries, keys = shape
    total = max(queries, keys)
    mask = segments_mask([(0, total)], total, Rule(causal=causal, window=window if causal else None))
    return (mask.rows([(total - queries, total)]).cols([(total - keys, total)]),) * batch


_of_tensors: WeakIdKeyDictionary = WeakIdKeyDictionary()  # by a mask's tensor: what was made of it for another layer


def _remembered(tensor: torch.Tensor, settings: tuple[Any, ...], make: Callable[[], Masks]) -> Masks:
    """Returns what `make` made for this tensor before, as long as the tensor lives and does not change."""
    made: dict[Any, Masks] = _of_tensors.setdefault(tensor, {})
    key = (*settings, tensor._version)
    if key not in made:
        if len(made) > MOST_REMEMBERED:
            made.clear()
        made[key] = make()
    return made[key]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _of_prefix_sums(cu_q: torch.Tensor, cu_k: torch.Tensor | None, shape: tuple[int, int, int], causal: bool, window: int | None) -> Masks:
    def make() -> Masks:
        edges = cu_q.tolist()
        if shape[0] != 1 or shape[1] != shape[2] or (cu_k is not None and cu_k.tolist() != edges):
            raise Refused(f"packed tokens by cu_seq_lens are one batch entry without a cache, not batch, queries and keys {shape}.")
        if edges[0] != 0 or edges[-1] != shape[1] or edges != sorted(edges):
            raise BadInput(f"cu_seq_lens_q must rise from 0 to the {shape[1]} tokens, not {edges[:2]} to {edges[-1]}.")
        pairs = [(first, last) for first, last in itertools.pairwise(edges) if last > first]
        return (segments_mask(pairs, shape[1], Rule(causal=causal, window=window if causal else None)),)

    return _remembered(cu_q, (shape, causal, window), make)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _of_tensor(given: torch.Tensor, shape: tuple[int, int, int]) -> Masks:
    """Returns the masks of a tensor [B, 1, L, L] that a user made: bool, or 0 where a pair is visible and a large negative number else."""

    def make() -> Masks:
        batch, queries, keys = shape
        if not given.numel() and queries:
            raise Refused("this model does not pass the plan of its batch on to its layers, so context parallelism cannot be used with it.")
        if given.dim() != 4 or given.shape[1] != 1 or given.shape[0] not in (1, batch):
            raise Refused(f"a mask as a tensor must be [{batch}, 1, queries, keys], not {list(given.shape)}.")
        visible = given if given.dtype == torch.bool else given == 0
        if given.dtype != torch.bool and not (visible | (given <= torch.finfo(given.dtype).min / 2)).all():
            raise Refused("longca.attention adds no bias to scores: a mask may hold 0 and the least number of its dtype, nothing else.")
        if max(queries, keys) > LONGEST_DENSE:
            raise Refused(f"a mask as a tensor is taken up to {LONGEST_DENSE} tokens, not {max(queries, keys)}; leave it to the model.")
        return tuple(from_dense(entry[0, -queries:, :keys].cpu()) for entry in visible.expand(batch, -1, -1, -1))

    return _remembered(given, shape, make)
