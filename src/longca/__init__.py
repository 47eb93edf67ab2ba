"""LongCA: measuring attention for long contexts.

>>> import longca
>>> mask = longca.masks.causal_document(1024, seed=0)
>>> out = longca.attention(q, k, v, mask, kernel="torch")  # q [L, Hq, D], k and v [L, Hkv, D]
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from longca import masks, parallel, testing
    from longca.api.ab import ab
    from longca.api.calibrate import calibrate
    from longca.api.case import case
    from longca.api.compare import compare, history
    from longca.api.doctor import doctor
    from longca.api.explain import explain
    from longca.api.journals import export, merge, schema, submit
    from longca.api.ls import ls
    from longca.api.mask_limit import mask_limit
    from longca.api.numerics import numerics
    from longca.api.plan import plan
    from longca.api.probe import probe
    from longca.api.profile import profile
    from longca.api.recommend import best, recommend
    from longca.api.report import report
    from longca.api.run import run
    from longca.api.show_mask import show_mask
    from longca.api.simulate import simulate, validate_simulation
    from longca.api.tune import tune
    from longca.api.verify import verify
    from longca.api.verify_cp import verify_cp
    from longca.errors import BadInput, LongcaError, Refused, Unavailable
    from longca.kernels.base import Attention, AutogradAttention, Case, Kernel, No, Yes
    from longca.kernels.functional import attention
    from longca.kernels.plugin import kernel
    from longca.masks.own import mask

# found when first used, so that `import longca` and the command line stay light
_WHERE = {
    "longca.api.ab": ("ab",),
    "longca.api.calibrate": ("calibrate",),
    "longca.api.case": ("case",),
    "longca.api.compare": ("compare", "history"),
    "longca.api.doctor": ("doctor",),
    "longca.api.explain": ("explain",),
    "longca.api.journals": ("export", "merge", "schema", "submit"),
    "longca.api.ls": ("ls",),
    "longca.api.mask_limit": ("mask_limit",),
    "longca.api.numerics": ("numerics",),
    "longca.api.plan": ("plan",),
    "longca.api.probe": ("probe",),
    "longca.api.profile": ("profile",),
    "longca.api.recommend": ("best", "recommend"),
    "longca.api.report": ("report",),
    "longca.api.run": ("run",),
    "longca.api.show_mask": ("show_mask",),
    "longca.api.simulate": ("simulate", "validate_simulation"),
    "longca.api.tune": ("tune",),
    "longca.api.verify": ("verify",),
    "longca.api.verify_cp": ("verify_cp",),
    "longca.errors": ("BadInput", "LongcaError", "Refused", "Unavailable"),
    "longca.kernels.base": ("Attention", "AutogradAttention", "Case", "Kernel", "No", "Yes"),
    "longca.kernels.functional": ("attention",),
    "longca.kernels.plugin": ("kernel",),
    "longca.masks.own": ("mask",),
}
_MODULES = ("masks", "parallel", "testing")
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
    "ab",
    "attention",
    "best",
    "calibrate",
    "case",
    "compare",
    "doctor",
    "explain",
    "export",
    "history",
    "kernel",
    "ls",
    "mask",
    "mask_limit",
    "masks",
    "merge",
    "numerics",
    "parallel",
    "plan",
    "probe",
    "profile",
    "recommend",
    "report",
    "run",
    "schema",
    "show_mask",
    "simulate",
    "submit",
    "testing",
    "tune",
    "validate_simulation",
    "verify",
    "verify_cp",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"longca.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'longca' has no attribute {name!r}")


class _Package(ModuleType):
    """The type of this module. Some rooms, such as `longca.compare` and `longca.probe`, have the name of a function: importing one of
    their modules does not put the room in the place of the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
