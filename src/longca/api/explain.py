"""`longca.explain`: which kernels `best` would run for a mask and a length, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from longca import devices
from longca.api.masks import build_mask
from longca.api.takes import takes
from longca.bench.plan.request import Number, texts
from longca.bench.plan.workload import model as find_model
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import Case
from longca.kernels.block_selection import Heads
from longca.kernels.choice import chooser, kept, measured
from longca.kernels.choice.choice import Choice, Option
from longca.kernels.choice.chooser import Contest
from longca.masks import AnyMask
from longca.results.shown import Part, Shown
from longca.results.tables import Table
from longca.text import format_extras, format_memory, format_shape, format_size, parse_dims, parse_heads, parse_size

KINDS = {"cpu": "fp32", "cuda": "bf16"}  # the usual dtype
DTYPES = ("bf16", "fp16", "fp32", "fp64")
PASSES = {"fwd": "forward", "bwd": "backward"}


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What `best` would choose. `choice` is None where a trial has to decide; `contenders` are the kernels that it would try, by pass."""

    asked: Contest
    choice: Choice | None
    title: str
    here: bool  # on this machine

    @property
    def ok(self) -> bool:
        """Whether some kernel can do this."""
        return bool(self.asked.all)

    @property
    def device(self) -> str:
        return self.asked.device

    @property
    def contenders(self) -> dict[str, list[str]]:
        left = self.asked.contenders
        passes = {"fwd": left.forward} | ({"bwd": left.backward} if self.asked.wanted.backward else {})
        return {pass_: list(dict.fromkeys(kernel.label for kernel in (*kernels, *left.whole))) for pass_, kernels in passes.items()}

    @property
    def why(self) -> dict[str, str]:
        """A sentence for each pass."""
        if self.choice is not None:
            return self.choice.why
        if not self.ok:
            return {}
        return {pass_: self._undecided(pass_, labels) for pass_, labels in self.contenders.items()}

    def _undecided(self, pass_: str, labels: Sequence[str]) -> str:
        lead = chooser.lead(self.asked, pass_, labels[0])
        if len(labels) == 1:
            return lead or "no other kernel supports this"
        return f"{lead}; a trial decides between {', '.join(labels)}" if lead else f"not measured: a trial would try {', '.join(labels)}"

    @property
    def likely(self) -> dict[str, str]:
        """By pass the kernel that was chosen, or that is the likeliest to be."""
        if self.choice is not None or not self.ok:
            return self.choice.by_pass if self.choice else {}
        return {pass_: label for pass_, label in zip(PASSES, self.asked.first(), strict=True) if label}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per pass and kernel, the fastest first."""
        chosen = self.choice.by_pass if self.choice else {}
        rows = []
        for pass_, options in self._options.items():
            rows += [{"pass": pass_, "chosen": chosen.get(pass_) == option.kernel, **asdict(option)} for option in options]
        return rows

    @property
    def _options(self) -> dict[str, list[Option]]:
        if self.choice is not None and self.choice.options:
            return self.choice.options
        return {pass_: chooser.options(self.asked, pass_) for pass_ in self.contenders}

    def to_json(self) -> dict[str, Any]:
        choice = self.choice
        return {
            "question": self.title,
            "device": self.device,
            "class": self.asked.wanted._asdict(),
            "chosen": choice.by_pass if choice else {},
            "likely": self.likely,
            "source": choice.source if choice else "",
            "timed": choice.part if choice else "",
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
            label = f"{'undecided, likely ' if is_open else ''}{self.likely[pass_]}"
            parts.append(f"{PASSES[pass_]}: {label} ({sentence})")
        for pass_, options in self._options.items():
            columns, rows = _table(options)
            if columns:
                parts += ["", Table(f"{PASSES[pass_]}:", columns, rows)]
        if self.choice is not None and self.choice.source == "trial" and kept.read(self.asked.key) is None:
            parts += ["", f"this result was not stored: {kept.folder()} cannot be written. Set {kept.FOLDER} to a folder that can be."]
        if self.choice is None and self.here:
            parts += ["", "the first call runs the trial, and --try runs it now; the result is stored for all calls of this class."]
        return parts


def _table(options: Sequence[Option]) -> tuple[list[str], list[list[str]]]:
    """The columns that have values, and the rows; no columns where nothing is known of any kernel."""
    written = {
        "ms": [f"{option.ms:.4g}" if option.ms is not None else "" for option in options],
        "time / fastest": [f"{option.slower:.2f}x" if option.slower is not None else "" for option in options],
        "plan ms": [f"{option.plan_ms:.3g}" if option.plan_ms is not None else "" for option in options],
        "workspace": [format_memory(option.workspace) if option.workspace else "" for option in options],
        "": [option.note for option in options],
    }
    columns = [name for name, values in written.items() if any(values)]
    rows = [[option.kernel, *(written[name][number] or ("-" if name else "") for name in columns)] for number, option in enumerate(options)]
    return (["kernel", *columns] if columns else []), rows


@dataclass(frozen=True)
class ExplainRequest:
    """A call of `longca.attention`."""

    mask: str | AnyMask
    seqlen: int | str | None = None
    heads: str | int | Sequence[int] | None = None
    head_dim: int | str | None = None
    dtype: str | None = None
    _: KW_ONLY
    backward: bool = True
    deterministic: bool = False
    softcap: float | None = None
    sinks: bool | None = None
    model: str | None = None
    device: str | None = None
    seed: int = 0
    params: Mapping[str, Number] | None = None
    documents: str | Path | Sequence[int] | None = None
    distribution: str | None = None
    packing: str | None = None
    run_trial: bool = False


@takes(ExplainRequest)
def explain(request: ExplainRequest) -> Explanation:
    """Returns which kernels `best` would choose for a call of this shape, and why: from records, from an earlier trial, or the kernels that
    a trial would time.

    `heads`, `head_dim`, `softcap` and `sinks` default to those of `model`, or else to 64:8 heads of 128. `device` is cpu, cuda, or words of
    the name of a device that LongCA has records of, such as H200; the default is this machine. `run_trial` runs a trial now if one is
    needed.

    >>> longca.explain("causal_document", "32K", device="H200").contenders["bwd"]
    """
    kind, device = _device(request.device)
    mask, case = _call(request, kind)
    drawn = [f"documents of seed {request.seed}"] if isinstance(request.mask, str) and mask.documents and request.documents is None else []
    size = f"{mask.name or 'this mask'}, {format_size(mask.seqlen_k)} tokens"
    title = ", ".join([size, *drawn, format_shape(vars(case)), *format_extras(vars(case)), case.dtype])
    if not chooser.fits(mask, case):
        raise BadInput(chooser.missing(mask, case))
    if device and request.run_trial:
        raise BadInput(f"a trial runs on this machine, and records alone explain {device}; leave out the trial (--try) or the device.")
    if device:
        labels = {label for entry in measured.entries() if entry.device == device for label in entry.kernels}
        asked = chooser.contest(mask, case, lambda kernel: kernel.label in labels and registry.is_ours(kernel), device=device)
        return Explanation(asked, chooser.settled(asked) if asked.all else None, title, here=False)
    asked, choice = chooser.contest(mask, case), None
    if asked.all:
        choice = chooser.choose(mask, case) if request.run_trial else chooser.remembered(asked)
    return Explanation(asked, choice, title, here=True)


def _call(request: ExplainRequest, kind: str) -> tuple[AnyMask, Case]:
    """The mask and the shape, with those of the model where nothing else is given."""
    shape = None if request.model is None else find_model(request.model)

    def given(name: str, usual: Any) -> Any:
        value = getattr(request, name)
        return value if value is not None else getattr(shape, name) if shape else usual

    heads, dims, softcap = given("heads", "64:8"), parse_dims(str(given("head_dim", 128))), given("softcap", 0.0)
    heads_q, heads_kv = parse_heads(texts("heads", [tuple(heads) if isinstance(heads, list) else heads])[0])
    if not (isinstance(softcap, int | float) and math.isfinite(softcap) and softcap >= 0):
        raise BadInput(f"softcap must be a positive number, or 0 for none, not {softcap}.")
    if (dtype := request.dtype or KINDS[kind]) not in DTYPES:
        raise unknown("dtype", str(dtype), list(DTYPES))
    mask, seqlen = request.mask, request.seqlen
    if isinstance(mask, str):
        if seqlen is None:
            raise BadInput(f"give a length beside the mask {mask}, such as seqlen='32K'.")
        params = {**(shape.params_of(mask) if shape else {}), **(request.params or {})}
        drawing = {name: getattr(request, name) for name in ("seed", "documents", "distribution", "packing")}
        mask = build_mask(mask, parse_size(str(seqlen)), Heads(heads_q, heads_kv, dims[0]), params, **drawing)
    elif seqlen is not None and parse_size(str(seqlen)) != mask.seqlen_k:
        raise BadInput(f"the mask has {mask.seqlen_k} tokens, not {seqlen}; leave out seqlen.")
    case = Case(
        mask.seqlen_q, mask.seqlen_k, heads_q, heads_kv, *dims, dtype, kind,
        backward=request.backward, deterministic=request.deterministic, softcap=float(softcap), sinks=given("sinks", False),
    )  # fmt: skip
    return mask, case


def _device(device: str | None) -> tuple[str, str]:
    """The kind of a device, and the name under which records have it; an empty name stands for this machine."""
    if device is None or device in KINDS:
        kind = device or devices.kind()
        devices.require(kind)
        return kind, ""
    wanted = set(re.findall(r"\w+", str(device).lower()))
    names = [name for name in measured.devices() if wanted <= set(re.findall(r"\w+", name.lower()))]
    if len(names) != 1:
        raise unknown("device", str(device), [*KINDS, *measured.devices()])
    return "cuda", names[0]
