"""Large and small numbers in the second data set, so that it reaches far into the range of a dtype.

V of every second KV head is multiplied by a power of two, and dout divided by it; in the heads between it is the other way round. A right
kernel multiplies out by the same power and divides dv by it, to the bit, and nothing else changes. So the reference is that of the data
before, and results are compared after the power was taken out. A kernel that clamps V, or keeps it in a type with a smaller range, is
wrong.
"""

from __future__ import annotations

import torch

from longca.kernels.base import Case
from longca.kernels.inputs import Inputs

POWER = {"fp16": 2}  # of two; fp16 has little room, as its smallest numbers lose bits
USUAL_POWER = 60  # of 126 in bf16 and fp32


def stretch(inputs: Inputs, case: Case) -> Inputs:
    """Multiplies V and dout in place."""
    factor = _factors(case, case.heads_kv, inputs.v.device)
    inputs.v.mul_(factor.to(inputs.v))
    inputs.dout.mul_(1 / _factors(case, case.heads_q, inputs.dout.device).to(inputs.dout))
    return inputs


def taken_out(name: str, data_set: str, case: Case, device: torch.device) -> torch.Tensor | None:
    """What multiplies a tensor of a data set, so that it is that of the reference, [heads, 1]; None: nothing does."""
    if data_set == "plain" or name not in ("v", "out", "dv", "dout"):
        return None
    factor = _factors(case, case.heads_kv if name in ("v", "dv") else case.heads_q, device)
    return 1 / factor if name in ("v", "out") else factor


def underflow(dtype: str, factor: torch.Tensor | None) -> torch.Tensor | float:
    """What a tensor may lose where its numbers lose bits or become 0 in the dtype, once the factor of its heads is taken out. In fp16 that
    is its last bit; of others, whose range is that of fp32, GPUs flush what is below the normal numbers."""
    return 0.0 if factor is None else factor[:, 0] * (2.0**-24 if dtype == "fp16" else 2.0**-126)


def _factors(case: Case, heads: int, device: torch.device) -> torch.Tensor:
    """The factor of V of each KV head, or of the KV head of each query head, [heads, 1]."""
    power = POWER.get(case.dtype, USUAL_POWER)
    odd = torch.arange(heads, device=device) // (heads // case.heads_kv) % 2
    return torch.pow(2.0, power * (1 - 2 * odd))[:, None]
