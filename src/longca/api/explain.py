"""`longca.explain`: which kernels `best` would run for a mask and a length, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from longca import devices
from longca.api.call import KINDS, CallRequest, call_of, load_plugins
from longca.api.takes import takes
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import Preference
from longca.kernels.choice import chooser, records, words
from longca.report.explanation import PASSES, Explanation, question


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(CallRequest):
    """A call of `longca.attention`."""

    deterministic: bool = False


@takes(ExplainRequest)
def explain(request: ExplainRequest) -> Explanation:
    """Returns which kernels `best` would choose for a call of this shape, and why: from records, from autotuning in this process, or the
    kernels that autotuning would time.

    `heads`, `head_dim`, `softcap` and `sinks` default to those of `model`, or else to 64:8 heads of 128. `device` is cpu, cuda, or words of
    the name of a device that LongCA has records of, such as H200; the default is this machine.

    >>> longca.explain("causal_document", "32K", device="H200").contenders["bwd"]
    """
    kind, device = _device(request.device)
    never = [name for name in load_plugins(request) if registry.get(name).preference == Preference()]
    mask, case = call_of(request, kind, deterministic=request.deterministic)
    if not words.fits(mask, case):
        raise BadInput(words.missing(mask, case))
    if device:
        labels = {label for entry in records.shipped() if entry.device == device for label in entry.kernels}
        asked = chooser.contest(mask, case, lambda kernel: kernel.label in labels and registry.is_ours(kernel), device=device)
        choice = chooser.without_autotuning(asked, case) if asked.all and asked.has_one_way else None
    else:
        asked = chooser.contest(mask, case)
        choice = chooser.remembered(asked, mask, case) if asked.all else None
    likely = choice.by_pass if choice else dict(zip(PASSES, asked.first(case), strict=True)) if asked.all else {}
    is_drawn = mask is not request.mask and mask.documents is not None and request.documents is None
    title = question(mask, case, request.seed if is_drawn else None)
    return Explanation(asked, choice, title, {pass_: label for pass_, label in likely.items() if label}, never)


def _device(device: str | None) -> tuple[str, str]:
    """The kind of a device, and the name under which records have it; an empty name stands for this machine."""
    if device is None or device in KINDS:
        return devices.require(device), ""
    wanted = set(re.findall(r"\w+", str(device).lower()))
    names = [name for name in records.devices() if wanted <= set(re.findall(r"\w+", name.lower()))]
    if len(names) != 1:
        raise unknown("device", str(device), [*KINDS, *records.devices()])
    return "cuda", names[0]
