"""Records of kernels with a rate that a test chooses, and answers from them."""

from pathlib import Path
from typing import Any

from longca import masks
from longca.recommend.answer import Answer
from longca.recommend.question import Question
from longca.recommend.rank import recommend
from longca.recommend.shipped import load
from report.made import Record, kernel


def cell(name: str, seqlen: int, rate: float, which: str = "fwd", mask: str = "causal", power: float = 0.0, **fields: Any) -> Record:
    """A record whose kernel computes the pairs that the mask shows at a rate (TFLOP/s) that changes by a power of the length."""
    shape = {"heads_q": 64, "heads_kv": 8, "head_dim": 128} | fields
    area = masks.build(mask, seqlen, **fields.get("params", {})).area
    per_pair = {"fwd": 4, "bwd": 10, "fwd+bwd": 14}[which]
    flops = per_pair * area * shape["heads_q"] * shape["head_dim"]
    ms = flops / (rate * (seqlen / 8192) ** power) / 1e9
    about = {"mask": mask, "mask_digest": f"{mask} {seqlen}", "area": area, "flops": flops, "seqlen_q": seqlen, "seqlen_k": seqlen}
    return kernel(name, [ms] * 6, which, seqlen=seqlen, **about | fields)


def answer(folder: Path, seqlen: str = "8K", mask: str = "causal", **more: Any) -> Answer:
    return recommend(Question.parse(mask, seqlen, **more), load([folder]))


def forward(folder: Path, seqlen: str = "8K", mask: str = "causal", **more: Any) -> Answer:
    return answer(folder, seqlen, mask, **{"pass_": "fwd"} | more)
