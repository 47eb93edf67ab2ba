"""Context parallelism: one attention over many ranks, under any static mask and some block patterns, with any kernel.

>>> cp = longca.parallel.Group(mesh["cp"])  # or a process group; under torch.distributed
>>> plan = cp.plan(mask, heads=(64, 8), head_dim=128)
>>> batch = plan.shard(batch)  # ids, positions, labels
>>> out = plan.attention(q, k, v)
>>> loss = plan.mean(token_losses)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longca.parallel.group import Group
    from longca.parallel.plan import Plan
    from longca.parallel.planner import Planner

_WHERE = {"Group": "group", "Plan": "plan", "Planner": "planner"}
__all__ = ["Group", "Plan", "Planner"]


def __getattr__(name: str) -> Any:
    """Imports a class when it is first used, so that listing methods needs no torch."""
    if name in _WHERE:
        return getattr(import_module(f"longca.parallel.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'longca.parallel' has no attribute {name!r}")
