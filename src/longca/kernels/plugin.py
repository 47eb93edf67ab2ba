"""`@longca.kernel` makes a kernel of a function, for users who do not want to write a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, overload

from longca.errors import BadInput, Refused
from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, Layout, No, Yes
from longca.kernels.plugin_checks import refuse_settings
from longca.plugins import NAME

if TYPE_CHECKING:
    import torch

    from longca.masks import AnyMask

FRAMEWORK = True
Lowering = Callable[["AnyMask", Case], Any]
ARGUMENTS = ("q", "k", "v", "mask", "scale")  # of the function of a kernel, in this order


@overload
def kernel(function: Callable[..., Any], /) -> type[Kernel]: ...


@overload
def kernel(
    *,
    name: str = ...,
    devices: tuple[str, ...] = ...,
    layout: Layout = ...,
    lower: Lowering | None = ...,
    differentiable: bool = ...,
    gives_lse: bool = ...,
    own_files: tuple[str, ...] = ...,
    dtypes: tuple[str, ...] = ...,
    head_dims: Sequence[int] = ...,
    archs: tuple[str, ...] = ...,
    returns_own_buffer: bool = ...,
    configs: Sequence[Mapping[str, Any]] = ...,
) -> Callable[[Callable[..., Any]], type[Kernel]]: ...


def kernel(
    plain: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    devices: tuple[str, ...] = ("cpu", "cuda"),
    layout: Layout = "LHD",
    lower: Lowering | None = None,
    differentiable: bool = True,
    gives_lse: bool = False,
    own_files: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = (),
    head_dims: Sequence[int] = (),
    archs: tuple[str, ...] = (),
    returns_own_buffer: bool = False,
    configs: Sequence[Mapping[str, Any]] = (),
) -> type[Kernel] | Callable[[Callable[..., Any]], type[Kernel]]:
    """Makes a kernel of `f(q_LHD, k_LHD, v_LHD, lowered, scale) -> out` or `-> (out, lse)`. Returns a class derived from `longca.Kernel`,
    which `longca.attention(..., kernel=...)` takes; called with tensors, it still is the function.

    A function with a parameter `softcap` gets the number that caps the scores (0: none). A function with a parameter `sinks` gets the
    logits [Hq] or None. A function without these parameters is never run with a softcap or with sinks.

    `lower(mask, case)` converts the mask; the function gets its result in place of the mask. It runs once, outside the timed region, and
    may raise `longca.Refused("reason")`. Without it, the function gets the mask itself. The backward is torch's autograd. `gives_lse`
    declares that the function always returns (out, lse), which the rings of context parallelism need. `own_files` names files next to this
    one that are part of the kernel but are not imported, such as kernel.cu. `dtypes`, `head_dims` and `archs` declare limits, such as
    ("bf16",), (64, 128) and ("sm90",): other calls are refused, and `longca verify` checks what they allow. `returns_own_buffer` declares
    that the next call writes to the memory of the result, as a CUDA graph does.

    `configs`, such as [{"block": 64}, {"block": 128}], makes a variant of each: its entries are keyword arguments of the function, and of
    `lower` if that has such parameters. `name:block64` is one of them, and `name:*` are all. Without settings, write `@longca.kernel`.
    """
    if lower is not None and not callable(lower):
        raise BadInput(f"lower must be a function of (mask, case), not {lower!r}; leave it out, and the kernel gets the mask itself.")

    def decorate(function: Callable[..., Any]) -> type[Kernel]:
        kernel_name, kernel_lse = name or function.__name__, gives_lse
        chosen = _variants(configs, kernel_name)
        declared = _parameters(function, kernel_name, list(chosen.values()) or [{}])
        usual = next(iter(chosen.values()), {})

        class FunctionKernel(Kernel):
            about = (function.__doc__ or "a plugin").strip().splitlines()[0]

            def __new__(cls, *given: Any, **named: Any) -> Any:
                """Returns the kernel, of a variant or without one; for tensors the function's result."""
                is_variant = not named.keys() - {"variant"} and all(isinstance(value, str) for value in given)
                return super().__new__(cls) if is_variant or cls is not FunctionKernel else function(*given, **named)

            @property
            def config(self) -> Mapping[str, Any]:
                return chosen.get(self.variant, usual)

            def supports(self, mask: AnyMask, case: Case) -> Answer:
                if lower is None:
                    return Yes()
                try:
                    lower(mask, case, **_taken(lower, self.config))
                except Refused as refused:
                    return No(f"refuses this: {str(refused).rstrip('.')}")
                return Yes("lowered")

            def prepare(self, mask: AnyMask, case: Case) -> Attention:
                options = ({"softcap": case.softcap} if self.takes_softcap else {}) | dict(self.config)
                lowered = mask if lower is None else lower(mask, case, **_taken(lower, self.config))
                return _FunctionAttention(function, lowered, case, options)

        settings: dict[str, Any] = {
            "name": kernel_name, "devices": devices, "layout": layout, "capability": (0, 0), "gives_lse": kernel_lse,
            "own_files": own_files, "returns_own_buffer": returns_own_buffer, "variants": tuple(chosen), "dtypes": dtypes,
            "head_dims": head_dims, "archs": archs,
            "takes_softcap": "softcap" in declared, "sinks": "native" if "sinks" in declared else "no",
            "backward": "autograd" if differentiable else "none",
            "__module__": function.__module__, "__qualname__": function.__qualname__,
        }  # fmt: skip
        for setting, value in settings.items():
            setattr(FunctionKernel, setting, value)
        refuse_settings(FunctionKernel)
        return FunctionKernel

    if plain is not None and not callable(plain):
        raise BadInput(f"@longca.kernel takes its settings by name, such as name={plain!r}; write that.")
    return decorate if plain is None else decorate(plain)


def _variants(configs: Sequence[Mapping[str, Any]], name: str) -> dict[str, Mapping[str, Any]]:
    """Returns the configs by the names of their variants, such as block64-stages2."""
    if not isinstance(configs, list | tuple) or not all(isinstance(config, Mapping) and config for config in configs):
        raise BadInput(f"the kernel {name!r} has configs = {configs!r}; it must be a list of dictionaries, such as [{{'block': 64}}].")
    named = {"-".join(f"{key}{value}" for key, value in config.items()): config for config in configs}
    if len(named) < len(configs):
        raise BadInput(f"two configs of the kernel {name!r} are the same; leave out one.")
    if odd := [variant for variant in named if not NAME.fullmatch(variant)]:
        raise BadInput(f"a config of the kernel {name!r} makes the name {odd[0]!r}; use numbers and words as its values.")
    return named


def _taken(function: Callable[..., Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of a config that a function has parameters for."""
    known = inspect.signature(function).parameters if config else {}
    return {key: value for key, value in config.items() if key in known}


def _parameters(function: Callable[..., Any], name: str, configs: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Returns the names of a function's parameters; raises BadInput where it cannot be called as a kernel is."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin
        return ()
    softcap = {"softcap": 0.0} if "softcap" in signature.parameters else {}
    for sinks, config in product(({}, {"sinks": None}) if "sinks" in signature.parameters else ({},), configs):
        try:
            signature.bind(*ARGUMENTS, **softcap, **sinks, **config)
        except TypeError as error:
            written = f"def {name}({', '.join([*ARGUMENTS, *config])}), with softcap=0.0 or sinks=None behind them if it takes these"
            raise BadInput(f"the kernel {name!r} has the arguments {signature}, which do not fit ({error}); write {written}.") from error
    return signature.parameters


class _FunctionAttention(AutogradAttention):
    def __init__(self, function: Callable[..., Any], lowered: Any, case: Case, options: dict[str, Any]) -> None:
        self.function, self.lowered, self.scale, self.options = function, lowered, case.softmax_scale, options

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        answer = self.function(q_LHD, k_LHD, v_LHD, self.lowered, self.scale, **self.options)
        return answer if isinstance(answer, tuple) else (answer, None)

    def forward_with_sinks(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        answer = self.function(q_LHD, k_LHD, v_LHD, self.lowered, self.scale, sinks=sinks_H, **self.options)
        return answer if isinstance(answer, tuple) else (answer, None)
