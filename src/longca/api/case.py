"""`longca.case`: the inputs of the check and the right results, as tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from longca import devices
from longca.api.call import CallRequest, call_of, load_plugins
from longca.api.takes import takes
from longca.errors import unknown

if TYPE_CHECKING:
    from longca.bench.check.example import Example


@dataclass(frozen=True, kw_only=True)
class CaseRequest(CallRequest):
    """A mask, a shape, and one of the two data sets of the check: plain or loud."""

    data: str = "plain"
    scale: float = 0.0


@takes(CaseRequest)
def case(request: CaseRequest) -> Example:
    """Returns the inputs on which kernels are checked (`q`, `k`, `v`, `dout`, `sinks`), the `mask`, and what a right kernel makes of them:
    `expected` has out, lse and dq in the `rows` that are compared, and all of dk and dv, in fp64; `allowed` the rms error of each token.

    >>> example = longca.case("share_question", 509, heads="8:2", head_dim=64, dtype="fp32")
    >>> out = longca.attention(example.q, example.k, example.v, example.mask, kernel="my_kernel.py")
    >>> (out[example.rows] - example.expected["out"]).abs().max()
    """
    from longca.bench.check.example import example
    from longca.bench.check.reference import DATA_SETS

    if request.data not in DATA_SETS:
        raise unknown("data set", str(request.data), list(DATA_SETS))
    kind = devices.require(request.device)
    load_plugins(request)
    mask, shape = call_of(request, kind)
    return example(mask, replace(shape, scale=float(request.scale)), request.seed, request.data)
