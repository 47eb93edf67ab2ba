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

if TYPE_CHECKING:  # `as` tells type checkers that a name is exported
    # ruff: noqa: I001
    from longca import masks as masks, parallel as parallel, testing as testing
    from longca.api.ab import ab as ab
    from longca.api.calibrate import calibrate as calibrate
    from longca.api.case import case as case
    from longca.api.compare import compare as compare, history as history
    from longca.api.doctor import doctor as doctor
    from longca.api.explain import explain as explain
    from longca.api.journals import export as export, merge as merge, schema as schema, submit as submit
    from longca.api.ls import ls as ls
    from longca.api.mask_limit import mask_limit as mask_limit
    from longca.api.numerics import numerics as numerics
    from longca.api.plan import plan as plan
    from longca.api.probe import probe as probe
    from longca.api.profile import profile as profile
    from longca.api.recommend import best as best, recommend as recommend
    from longca.api.report import report as report
    from longca.api.run import run as run
    from longca.api.show_mask import show_mask as show_mask
    from longca.api.simulate import simulate as simulate, validate_simulation as validate_simulation
    from longca.api.tune import tune as tune
    from longca.api.verify import verify as verify
    from longca.api.verify_cp import verify_cp as verify_cp
    from longca.errors import BadInput as BadInput, LongcaError as LongcaError, Refused as Refused, Unavailable as Unavailable
    from longca.kernels.base import (
        Attention as Attention,
        AutogradAttention as AutogradAttention,
        Case as Case,
        Kernel as Kernel,
        No as No,
        Yes as Yes,
    )
    from longca.kernels.functional import attention as attention
    from longca.kernels.plugin import kernel as kernel
    from longca.masks.own import mask as mask

# found when first used, so that `import longca` and the command line stay light
_HOMES = {
    "longca.api.compare": ("compare", "history"),
    "longca.api.journals": ("export", "merge", "schema", "submit"),
    "longca.api.recommend": ("best", "recommend"),
    "longca.api.simulate": ("simulate", "validate_simulation"),
    "longca.errors": ("BadInput", "LongcaError", "Refused", "Unavailable"),
    "longca.kernels.base": ("Attention", "AutogradAttention", "Case", "Kernel", "No", "Yes"),
    "longca.kernels.functional": ("attention",),
    "longca.kernels.plugin": ("kernel",),
    "longca.masks.own": ("mask",),
}
_OWN_HOME = ("ab", "calibrate", "case", "doctor", "explain", "ls", "mask_limit", "numerics", "plan", "probe", "profile", "report", "run",
             "show_mask", "tune", "verify", "verify_cp")  # functions in modules of their names  # fmt: skip
_MODULES = ("masks", "parallel", "testing")
_HOME = {name: f"longca.api.{name}" for name in _OWN_HOME} | {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME, *_MODULES])


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
