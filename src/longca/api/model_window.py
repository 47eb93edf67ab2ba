"""The window of a model's local layers beside the mask that is asked for, and how many layers share a plan."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from longca import masks
from longca.bench.plan.workload import WINDOWED, Model
from longca.recommend.answer import ModelNote
from longca.recommend.question import Question


def model_note(name: str, model: Model, question: Question, layers_per_plan: int | None, seeds: Sequence[int]) -> ModelNote:
    """The window is None where `--set` gives another one, or it hides nothing of the mask. `seeds` are those of the masks that answer."""
    window, windowed = model.window, None
    if window is not None and (own := model.params_of(question.problem.mask)):
        window = window if own.items() <= dict(question.problem.params).items() else None
    elif window is not None:
        window = window if _hides(window - 1, question, seeds or [0]) else None
        windowed = _windowed(window - 1, question) if window else None
    return ModelNote(name, model.layers, layers_per_plan, window, model.count("local"), windowed)


def _hides(w: int, question: Question, seeds: Sequence[int]) -> bool:
    """Whether a window of w keys on each side hides pairs that the mask shows. Of block patterns only the length is asked, as they take
    long to build."""
    problem = question.problem
    if w >= problem.seqlen - 1 or problem.is_pattern:
        return w < problem.seqlen - 1
    return any(_within(w, question, seed) != question.build(seed).digest for seed in seeds)


def _windowed(w: int, question: Question) -> str:
    """The mask with the window: one that has it by its name, which gets it from the model, or else an expression."""
    if not question.problem.is_pattern:
        same = _within(w, question, 0)
        for name in sorted(WINDOWED):
            if Question(replace(question.problem, mask=name, params=(("w", w),))).build(0).digest == same:
                return name
    named = masks.find(question.problem.mask)
    inner = repr(named.name) if isinstance(named, masks.MaskFile) else named.name
    return f"{f'({inner})' if isinstance(named, masks.Expression) else inner} & sliding_window(w={w})"


def _within(w: int, question: Question, seed: int) -> str:
    """The digest of the mask within the window."""
    mask = question.build(seed)
    assert isinstance(mask, masks.Mask)
    return (mask & masks.sliding_window(question.problem.seqlen, w=w)).digest
