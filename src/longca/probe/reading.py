"""What one run of a model shows: which outputs change with a token, which gradients arrive, the outputs and the loss.

A model is a function of the ids of the whole sequence, [S]. It returns its outputs [S, C]; on several ranks `(outputs, tokens)`, the rows
of this rank and which tokens they are; and with a loss `(outputs, tokens or None, loss)`. `model.embedding`, if there is one, is the
module whose output is the first representation of these tokens: gradients are read there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from longca.errors import BadInput

Model = Callable[[torch.Tensor], Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """Of the rows of one rank, or of all.

    `change[i, p]`: how far the output of row i moves when probed token p gets another id, relative to the spread of all outputs.
    `gradient[r, i]`: the gradient that arrives at row i from the output of probed row r, relative to the largest of that row.
    """

    tokens: NDArray[np.int64]  # of the rows
    outputs: Floats  # [rows, C]
    change: Floats  # [rows, probes]
    gradient: Floats | None  # [probed rows, rows]
    noise: float  # the same ids twice
    loss: float | None
    epsilon: float  # of the outputs' dtype
    idle: tuple[str, ...] = ()  # parameters for sinks that change nothing

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        values = vars(self)
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def read(model: Model, ids: torch.Tensor, probes: Sequence[int], rows: Sequence[int], vocab: int) -> Reading:
    """Runs a model with its ids, and once more for each probe with that token changed."""
    with torch.no_grad():
        outputs, tokens, loss = _run(model, ids)
        again = _run(model, ids)[0]
        scale = float(outputs.double().std()) or 1.0
        change = np.empty((len(tokens), len(probes)))
        for place, token in enumerate(probes):
            changed = ids.clone()
            changed[token] = (changed[token] + 1 + place % (vocab - 1)) % vocab
            change[:, place] = _distance(_run(model, changed)[0], outputs) / scale
        idle = _idle_sinks(model, ids, outputs, scale)
    return Reading(
        tokens.numpy(),
        outputs.double().numpy(),
        change,
        _gradients(model, ids, rows),
        float(np.max(_distance(again, outputs), initial=0.0)) / scale,
        loss,
        torch.finfo(outputs.dtype).eps,
        idle,
    )


def _run(model: Model, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float | None]:
    """Returns outputs, which tokens they are of, and the loss or None."""
    outputs, tokens, loss = _unpack(model(ids))
    if not isinstance(outputs, torch.Tensor) or outputs.dim() != 2 or not outputs.is_floating_point():
        kind = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise BadInput(f"the model must return outputs of tokens as floating point numbers [tokens, channels], not {kind}.")
    tokens = torch.arange(len(ids)) if tokens is None else torch.as_tensor(tokens).cpu().long()
    if len(tokens) != len(outputs):
        raise BadInput(
            f"the model returned {len(outputs)} outputs and {len(tokens)} tokens; return `(outputs, tokens)`, one token per row."
        )
    return outputs.cpu(), tokens, None if loss is None else float(loss)


def _distance(one: torch.Tensor, other: torch.Tensor) -> Floats:
    if one.shape != other.shape:
        raise BadInput(f"the model returned {len(one)} rows for one sequence and {len(other)} for another of the same length.")
    found: Floats = (one.double() - other.double()).abs().amax(1).numpy()
    return found


def _gradients(model: Model, ids: torch.Tensor, rows: Sequence[int]) -> Floats | None:
    """Which embeddings get a gradient from the output of a row; every rank takes part in every backward pass."""
    embedding = embedding_of(model)
    if embedding is None:
        return None
    found = []
    for row in rows:
        kept: list[torch.Tensor] = []

        def keep(_: Any, __: Any, output: torch.Tensor, kept: list[torch.Tensor] = kept) -> torch.Tensor:
            leaf = output.detach().requires_grad_()
            kept.append(leaf)
            return leaf

        hook = embedding.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                outputs, given, _ = _unpack(model(ids))
                tokens = torch.arange(len(ids)) if given is None else torch.as_tensor(given).cpu().long()
                weight = torch.linspace(1, 2, outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
                wanted = (tokens == row).to(outputs)[:, None]
                (outputs * wanted * weight).sum().backward(inputs=kept or None)  # parameters keep their gradients
        finally:
            hook.remove()
        grad = kept[0].grad if kept and kept[0].grad is not None else None
        found.append(np.zeros(len(tokens)) if grad is None else grad.double().abs().flatten(0, -2).amax(-1).cpu().numpy())
    return np.array(found).reshape(len(rows), -1)


def _unpack(returned: Any) -> tuple[Any, Any, Any]:
    return (*returned, None, None)[:3] if isinstance(returned, tuple) else (returned, None, None)


def embedding_of(model: Model) -> torch.nn.Module | None:
    """The module that turns ids into vectors: named by the model, asked from it, or its first nn.Embedding."""
    named = getattr(model, "embedding", None)
    if isinstance(named, torch.nn.Module):
        return named
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    return next((module for module in modules if isinstance(module, torch.nn.Embedding)), None)


def _idle_sinks(model: Model, ids: torch.Tensor, outputs: torch.Tensor, scale: float) -> tuple[str, ...]:
    """The parameters with `sink` in their name that do not change any output."""
    owner = getattr(model, "module", model)
    named = owner.named_parameters() if isinstance(owner, torch.nn.Module) else ()
    idle = []
    for name, parameter in named:
        if "sink" not in name.rsplit(".", 1)[-1]:
            continue
        before = parameter.detach().clone()
        parameter.add_(3.0)
        moved = _distance(_run(model, ids)[0], outputs) / scale
        parameter.copy_(before)
        if not np.any(moved > 16 * torch.finfo(outputs.dtype).eps):
            idle.append(name)
    return tuple(idle)


def join(parts: Sequence[Reading], seqlen: int) -> Reading:
    """Puts the readings of all ranks together, rows in the order of their tokens."""
    tokens = np.concatenate([part.tokens for part in parts])
    if all(len(part.tokens) == seqlen for part in parts):
        parts, tokens = parts[:1], parts[0].tokens  # every rank returned all rows
    order = np.argsort(tokens, kind="stable")
    if not np.array_equal(tokens[order], np.arange(seqlen)):
        raise BadInput(
            f"the ranks returned outputs of {len(np.unique(tokens))} of {seqlen} tokens, {len(tokens)} in all; each token needs one."
        )
    gradients = [part.gradient for part in parts if part.gradient is not None]
    gradient = np.concatenate(gradients, 1)[:, order] if len(gradients) == len(parts) else None
    if gradient is not None:
        gradient = gradient / np.maximum(gradient.max(1, keepdims=True), np.finfo(np.float64).tiny)
    losses = [part.loss for part in parts if part.loss is not None]
    return Reading(
        tokens[order],
        np.concatenate([part.outputs for part in parts])[order],
        np.concatenate([part.change for part in parts])[order],
        gradient,
        max(part.noise for part in parts),
        losses[0] if losses else None,
        parts[0].epsilon,
        parts[0].idle,
    )
