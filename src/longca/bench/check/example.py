"""What the check gives to a kernel and what it expects, for an author who wants to look at a failure without workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from longca.bench.check.comparison import FACTOR, LSE_ALLOWED, Tensors
from longca.bench.check.reference import DATA_SETS, Reference, data, reference
from longca.bench.check.stretch import taken_out
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs
from longca.masks import AnyMask, Mask, write_mask

SCRIPT = '''"""{title}"""

import torch

import longca
from longca import masks
from longca.kernels import registry

{load}mask = masks.build("mask.json", {seqlen})
for name in ("plain", "loud"):
    saved = torch.load(f"{{name}}.pt", weights_only=True)
    q, k, v = (saved[letter].requires_grad_(saved["backward"]) for letter in "qkv")
    out = longca.attention(q, k, v, mask, kernel={kernel}, **saved["options"])
    got = {{"out": out[saved["rows"]]}}
    if saved["backward"]:
        out.backward(saved["dout"])
        got |= {{"dq": q.grad[saved["rows"]], "dk": k.grad, "dv": v.grad}}
    for tensor, x in got.items():
        share = (x.detach().double() - saved["expected"][tensor]).square().mean(-1).sqrt() / saved["allowed"][tensor]
        place, head = divmod(int(share.argmax()), share.shape[1])
        token = int(saved["rows"][place]) if tensor in ("out", "dq") else place
        print(f"{{name}} data, {{tensor}}: {{float(share.max()):.3g}} times the tolerance at token {{token}}, head {{head}}")
'''


@dataclass(frozen=True)
class Example:
    """One data set of the check. `expected` and `allowed` have all tokens of dk and dv, and of out, dq [rows, heads, size] and lse [heads,
    rows] the `rows` that are compared; `allowed` is the rms error that a token may have, without its head size."""

    mask: AnyMask
    case: Case
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    sinks: torch.Tensor | None
    rows: torch.Tensor
    expected: Tensors
    allowed: Tensors

    def save(self, path: Path) -> None:
        """Writes the tensors into a file."""
        case, tensors = self.case, {name: getattr(self, name) for name in ("q", "k", "v", "dout", "rows", "expected", "allowed")}
        options = {"scale": case.scale, "softcap": case.softcap, "sinks": self.sinks, "deterministic": case.deterministic}
        torch.save(tensors | {"options": options, "backward": case.backward}, path)


def example(mask: AnyMask, case: Case, seed: int, data_set: str, known: Reference | None = None) -> Example:
    """The inputs of a data set and the right results."""
    right = known or reference(mask, case, seed)
    inputs: Inputs = data(case, right.sampled, data_set, seed)
    expected, allowed = dict(right.values[data_set]), dict(right.rounding[data_set])
    for name, x in expected.items():
        factor = taken_out(name, data_set, case, x.device)
        scale = torch.ones(1, 1, device=x.device) if factor is None else 1 / factor
        off = FACTOR * allowed[name].double() + (LSE_ALLOWED[case.dtype] if name == "lse" else 0.0)
        expected[name], allowed[name] = x.double() * scale if x.dim() == 3 else x.double(), off * scale[:, 0]
    rows = torch.from_numpy(right.sampled.rows).to(case.device)
    return Example(mask, case, *inputs, inputs.sinks, rows, expected, allowed)


def dump(
    folder: Path,
    mask: Mask,
    case: Case,
    seed: int,
    kernel: str,
    plugin: str | None,
    title: str,
    is_object: bool = False,
    every: bool = False,
) -> None:
    """Writes both data sets, with `every` row or the sampled ones, and a script that calls the kernel on them. A kernel that is an object
    of the caller's program has to be put into the script."""
    folder.mkdir(parents=True, exist_ok=True)
    write_mask(mask, folder / "mask.json")
    known = reference(mask, case, seed, all_rows=every)
    for data_set in DATA_SETS:
        example(mask, case, seed, data_set, known).save(folder / f"{data_set}.pt")
    load = f"registry.load_plugin({str(Path(plugin).resolve())!r})\n" if plugin else ""
    load += f"kernel = ...  # {kernel} is an object of a program: import or define it here\n" if is_object else ""
    named = "kernel" if is_object else repr(kernel)
    script = SCRIPT.format(title=title.replace('"""', "'''"), load=load, kernel=named, seqlen=mask.seqlen_k)
    (folder / "reproduce.py").write_text(script if plugin else script.replace("from longca.kernels import registry\n", ""))
