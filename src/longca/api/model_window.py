"""Remarks on the window of a model's local layers: which w it is, or that the mask that is asked for does not have it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from longca import masks
from longca.bench.plan.workload import WINDOWED, Model
from longca.recommend.question import Question


def window_remarks(name: str, model: Model, question: Question, seeds: Sequence[int]) -> tuple[str, ...]:
    """Names the window, the layers that have it, and the mask that asks for it; where the mask has a window, that w is one less. Empty
    where `--set` gives another window, or the model's window hides nothing of the mask. `seeds` are those of the masks that answer."""
    if model.window is None:
        return ()
    if own := model.params_of(question.mask):
        is_own = question.params.get("w") == own["w"]
        return (f"w={own['w']} is the window of {model.window} of {name}: models count the token itself, w does not.",) if is_own else ()
    if not _hides(model.window - 1, question, seeds or [0]):
        return ()
    local = model.count("local")
    layers = f"all of its {model.layers} layers" if local == model.layers else f"{local} of its {model.layers} layers"
    window = f"{name} has a window of {model.window} keys in {layers}, which {question.mask} does not have"
    return (f"{window}; ask for such a layer with --mask {shlex.quote(_windowed(model.window - 1, question))}.",)


def _hides(w: int, question: Question, seeds: Sequence[int]) -> bool:
    """Whether a window of w keys on each side hides pairs that the mask shows. Of block patterns only the length is asked, as they take
    long to build."""
    if w >= question.seqlen - 1 or question.is_pattern:
        return w < question.seqlen - 1
    return any(_within(w, question, seed) != question.build(seed).digest for seed in seeds)


def _windowed(w: int, question: Question) -> str:
    """The mask with the window: one that has it by its name, which gets it from the model, or else an expression."""
    if not question.is_pattern:
        same = _within(w, question, 0)
        for name in sorted(WINDOWED):
            if replace(question, mask=name, params={"w": w}).build(0).digest == same:
                return name
    named = masks.find(question.mask)
    inner = repr(named.name) if isinstance(named, masks.MaskFile) else named.name
    return f"{f'({inner})' if isinstance(named, masks.Expression) else inner} & sliding_window(w={w})"


def _within(w: int, question: Question, seed: int) -> str:
    """The digest of the mask within the window."""
    mask = question.build(seed)
    assert isinstance(mask, masks.Mask)
    return (mask & masks.sliding_window(question.seqlen, w=w)).digest
