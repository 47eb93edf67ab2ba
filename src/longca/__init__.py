"""LongCA: measuring attention for long contexts.

>>> import longca
>>> mask = longca.masks.causal_document(1024, seed=0)
>>> out = longca.attention(q, k, v, mask, kernel="torch")  # q [L, Hq, D], k and v [L, Hkv, D]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longca import masks, parallel
    from longca.errors import BadInput, LongcaError, Refused, Unavailable
    from longca.kernels.base import Attention, AutogradAttention, Case, Kernel, No, Yes
    from longca.kernels.functional import attention
    from longca.kernels.plugin import kernel
    from longca.recommend.best import best

# found when first used, so that `import longca` and the command line stay light
_WHERE = {
    "longca.errors": ("BadInput", "LongcaError", "Refused", "Unavailable"),
    "longca.kernels.base": ("Attention", "AutogradAttention", "Case", "Kernel", "No", "Yes"),
    "longca.kernels.functional": ("attention",),
    "longca.kernels.plugin": ("kernel",),
    "longca.recommend.best": ("best",),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Attention",
    "AutogradAttention",
    "BadInput",
    "Case",
    "Kernel",
    "LongcaError",
    "No",
    "Refused",
    "Unavailable",
    "Yes",
    "attention",
    "best",
    "kernel",
    "masks",
    "parallel",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in ("masks", "parallel"):
        return import_module(f"longca.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'longca' has no attribute {name!r}")
