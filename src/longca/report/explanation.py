"""What `best` would choose for a call, and why, as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from longca.kernels.base import Case
from longca.kernels.choice import words
from longca.kernels.choice.choice import Choice, Option
from longca.kernels.choice.chooser import Contest
from longca.masks import AnyMask
from longca.results.shown import Part, Shown
from longca.results.tables import Table
from longca.text import format_extras, format_shape, format_size

PASSES = {"fwd": "forward", "bwd": "backward"}


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What `best` would choose. `choice` is None where autotuning has to decide."""

    asked: Contest
    choice: Choice | None
    title: str
    likely: dict[str, str]  # by pass the kernel that was chosen, or that is the likeliest to be
    never: Sequence[str] = ()  # kernels of plugins that `best` never chooses: they set no preference

    @property
    def ok(self) -> bool:
        """Whether some kernel can do this."""
        return bool(self.asked.all)

    @property
    def device(self) -> str:
        return self.asked.device

    @property
    def contenders(self) -> dict[str, list[str]]:
        """The kernels that autotuning would time, by pass."""
        return {pass_: [kernel.label for kernel in self.asked.entrants.of(pass_)] for pass_ in self.likely}

    @property
    def why(self) -> dict[str, str]:
        """A sentence for each pass."""
        return {pass_: words.why(self.asked, self.choice, pass_, label) for pass_, label in self.likely.items()}

    @property
    def options(self) -> dict[str, list[Option]]:
        """The kernels of each pass, with their times or ratios, the fastest first."""
        return self.choice.options if self.choice else {pass_: self.asked.options(pass_) for pass_ in self.likely}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per pass and kernel, the fastest first."""
        chosen = self.choice.by_pass if self.choice else {}
        rows = [(pass_, option) for pass_, options in self.options.items() for option in options]
        return [{"pass": pass_, "chosen": chosen.get(pass_) == option.kernel, **asdict(option)} for pass_, option in rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.title,
            "device": self.device,
            "class": self.asked.wanted._asdict(),
            "chosen": self.choice.by_pass if self.choice else {},
            "likely": self.likely,
            "source": self.choice.source if self.choice else "",
            "why": self.why,
            "contenders": self.contenders,
            "kernels": self.rows,
        }

    def parts(self) -> list[Part]:
        kind = self.asked.wanted.mask.replace(", 1/", ", density near 1/")
        parts: list[Part] = [f"{self.title}, {self.device}", f"class: {kind}", ""]
        if not self.ok:
            return [*parts, "no kernel that is available here supports this; `longca ls kernels` shows why."]
        for pass_, sentence in self.why.items():
            is_open = self.choice is None and len(self.contenders[pass_]) > 1
            parts.append(f"{PASSES[pass_]}: {'undecided, likely ' if is_open else ''}{self.likely[pass_]} ({sentence})")
        tables = [_table(f"{PASSES[pass_]}:", options) for pass_, options in self.options.items()]
        parts += [part for table in tables if table for part in ("", table)]
        if self.choice is None:
            parts += ["", "the first call in each process autotunes; `longca tune` measures beforehand, for all processes."]
        return parts


def question(mask: AnyMask, case: Case, seed: int | None) -> str:
    """What was asked, in words; the seed of drawn documents is named, as those of another seed may have another answer."""
    size = f"{mask.name or 'this mask'}, {format_size(mask.seqlen_k)} tokens"
    drawn = [] if seed is None else [f"documents of seed {seed}"]
    return ", ".join([size, *drawn, format_shape(vars(case)), *format_extras(vars(case)), case.dtype])


def _table(title: str, options: Sequence[Option]) -> Table | None:
    """The columns that have values; None where nothing is known of any kernel."""
    written = {
        "ms": [f"{option.ms:.4g}" if option.ms is not None else "" for option in options],
        "time / fastest": [f"{option.slower:.2f}x" if option.slower is not None else "" for option in options],
        "": [option.note for option in options],
    }
    columns = [name for name, values in written.items() if any(values)]
    rows = [[option.kernel, *(written[name][number] or ("-" if name else "") for name in columns)] for number, option in enumerate(options)]
    return Table(title, ["kernel", *columns], rows) if columns else None
