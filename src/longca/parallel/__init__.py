"""Context parallelism: one attention over many ranks, under any static mask and some under block patterns, with any kernel.

>>> from longca import parallel
>>> owned = parallel.shards(mask, heads_q=8, method="usp", ranks=4)
>>> out_local = parallel.attention(q_local, k_local, v_local, mask, method="usp")  # under torch.distributed
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longca.parallel.functional import attention, gather, shard, shards, unshard

__all__ = ["attention", "gather", "shard", "shards", "unshard"]


def __getattr__(name: str) -> Any:
    """Imports a function when it is first used, so that listing methods needs no torch."""
    if name in __all__:
        return getattr(import_module("longca.parallel.functional"), name)
    raise AttributeError(f"module 'longca.parallel' has no attribute {name!r}")
