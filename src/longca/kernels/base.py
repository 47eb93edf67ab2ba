"""The interface of a kernel: one class per file in `backends/`, found by the registry, checked and timed like any other.

Shapes are letters in the names: L tokens, H heads, D head size; so `q_LHD` is [tokens, heads, head size].

    class MyKernel(Kernel):
        name, needs, modules = "mine", "my-package", ("my_package",)
        def supports(self, mask, case): ...
        def prepare(self, mask, case): return MyAttention(...)
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from longca import code_version
from longca.errors import BadInput, Refused
from longca.text import format_dims

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.masks import AnyMask

    Gradients = tuple[Tensor, Tensor, Tensor]  # dq, dk, dv
    GradientsWithSinks = tuple[Tensor, Tensor, Tensor, Tensor]  # dq, dk, dv, dsinks

FRAMEWORK = True

BackwardKind = Literal["functional", "autograd", "none"]
Layout = Literal["LHD", "HLD"]
SinkSupport = Literal["no", "after", "native"]
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}  # of one value
PRE_RELEASE = re.compile(r"([\w.-]+)==([\d.]+(?:a|b|rc)\d+)")  # name and version
FORWARD_ONLY = 'a kernel without a backward declares it, with @longca.kernel(differentiable=False), or backward = "none" in a class'


@dataclass(frozen=True)
class Yes:
    """Supported; `how` tells whether the library knows the mask itself or the adapter lowers it."""

    how: Literal["native", "lowered"] = "native"
    note: str = ""
    quadratic: bool = False  # needs memory for every pair of tokens, so that long sequences do not fit
    per_head: bool = True  # needs that memory for each head, as scores do; a dense mask is shared by all heads

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class No:
    """Not supported; `reason` follows the kernel's name in a sentence for the user, such as "takes bf16, not fp32"."""

    reason: str

    def __bool__(self) -> bool:
        return False


Answer = Yes | No


@dataclass(frozen=True)
class Case:
    """Everything about one attention call except the mask and the numbers in it."""

    seqlen_q: int
    seqlen_k: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    dtype: str = "bf16"  # bf16, fp16, fp32, fp64
    device: str = "cpu"  # cpu, cuda
    scale: float = 0.0  # 0: 1/sqrt(head_dim)
    backward: bool = True  # whether dq, dk, dv are wanted
    partial_backward: bool = False  # backward from another call's out and lse, as a ring needs
    deterministic: bool = False
    numbers: str = ""  # the device whose random generator makes the inputs (generators differ between devices); empty: the case's own
    softcap: float = 0.0  # scaled scores s become softcap * tanh(s / softcap) before the mask hides some; 0: they stay
    sinks: bool = False  # one learned logit per query head joins the softmax's denominator; it has no value

    @property
    def softmax_scale(self) -> float:
        return self.scale or float(self.head_dim) ** -0.5

    @property
    def group(self) -> int:
        """Query heads per KV head; the KV head of query head h is h // group."""
        return self.heads_q // self.heads_kv


class Attention(ABC):
    """A kernel prepared for one mask and one case: functions of tensors, logically [L, H, D] whatever their memory order.

    q, k, v and dout come contiguous in the kernel's `layout`, or dout in the strides of `out`: `longca.attention` and the context parallel
    methods copy what is not. Each call returns new tensors, whose numbers are complete on the current stream when the call returns.
    out and the gradients have the dtype of q, k and v. lse is fp32 (fp64 beside fp64) [H, L], the natural log of the sum of exp of the
    scaled and capped scores. Rows without visible keys have lse -inf, and their out and gradients are 0. `backward` takes the global out
    and lse, so that the same object serves one GPU and every step of a ring.

    Where `Case.sinks` is set, `forward_with_sinks` and `backward_with_sinks` are called instead, with one logit per query head in the
    dtype of lse. There the lse includes the sink: in rows without visible keys it is the sink. The steps of a ring run without sinks.
    """

    @abstractmethod
    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]: ...

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        raise Refused('it has no backward, so its class should declare backward = "none".')

    def forward_with_sinks(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, sinks_H: Tensor) -> tuple[Tensor, Tensor | None]:
        """Adds the sinks to out and lse. Kernels whose library takes sinks replace it, and declare sinks = "native"."""
        from longca.kernels import sinks

        out_LHD, lse_HL = self.forward(q_LHD, k_LHD, v_LHD)
        if lse_HL is None:
            raise Refused("it gives no lse, without which sinks cannot be added.")
        return sinks.add(out_LHD, lse_HL, sinks_H)

    def backward_with_sinks(
        self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None, sinks_H: Tensor
    ) -> GradientsWithSinks:
        """Runs the backward from the out and lse that have the sinks, and adds dsinks."""
        from longca.kernels import sinks

        assert lse_HL is not None
        gradients = self.backward(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)
        return *gradients, sinks.gradient(dout_LHD, out_LHD, lse_HL, sinks_H)


class AutogradAttention(Attention):
    """Base of kernels without a backward of their own: torch runs the graph of `out`, and keeps it for the next call."""

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        dq, dk, dv = _graph_gradients(out_LHD, dout_LHD, {"q": q_LHD, "k": k_LHD, "v": v_LHD})
        return dq, dk, dv

    def backward_with_sinks(
        self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None, sinks_H: Tensor
    ) -> GradientsWithSinks:
        dq, dk, dv, dsinks = _graph_gradients(out_LHD, dout_LHD, {"q": q_LHD, "k": k_LHD, "v": v_LHD, "sinks": sinks_H})
        return dq, dk, dv, dsinks


def _graph_gradients(out: Tensor, dout: Tensor, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Returns the gradients of all inputs of the graph of `out`, and raises BadInput where one has none."""
    import torch

    gradients: tuple[Any, ...] = (None,) * len(inputs)
    if out.requires_grad:
        gradients = torch.autograd.grad(out, tuple(inputs.values()), dout, retain_graph=True, allow_unused=True)
    if missing := [name for name, gradient in zip(inputs, gradients, strict=True) if gradient is None]:
        hint = "" if len(missing) < len(inputs) else f"; {FORWARD_ONLY}"
        names = ", ".join(missing)
        raise BadInput(f"no gradient reaches {names}: torch must be able to differentiate out with respect to its inputs{hint}.")
    return gradients


LAST_RESORT = 99


class Preference(NamedTuple):
    """By device: the place of a kernel among those that `best` chooses from, lowest first; None: it is never chosen. A kernel in the place
    `LAST_RESORT` takes part only where no other runs the call and returns an lse: it is so slow that trying it would take minutes."""

    cpu: int | None = None
    cuda: int | None = None


class CompileCache(NamedTuple):
    """Environment variables of a library: `enable` set to 1 makes it keep compiled code on disk, in the folder that `folder` names."""

    enable: str
    folder: str


class Prepared(NamedTuple):
    """A prepared kernel: `kernel` is the one that runs, whose layout and kind of backward count."""

    kernel: Kernel
    attention: Attention


class Kernel(ABC):
    """A kernel: computes attention. `supports` and everything at class level work without torch; `prepare` may import anything.

    A kernel with several implementations lists them in `variants`, best first, and is instantiated once per variant. Attributes that are
    not a ClassVar may differ between variants.
    """

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""  # one line for `longca ls kernels`
    needs: str = ""  # arguments of pip install; empty: torch alone
    install: str = ""  # how to install it, where `pip install` with `needs` does not work
    modules: tuple[str, ...] = ()  # importable when it is installed
    devices: tuple[str, ...] = ("cuda",)
    capability: tuple[int, int] = (8, 0)  # least compute capability on cuda
    most_capability: tuple[int, int] | None = None  # greatest compute capability; None: any
    archs: tuple[str, ...] = ()  # the only GPUs that it is compiled for, such as ("sm90", "sm100"); empty: any
    dtypes: tuple[str, ...] = ()  # the only ones that it takes; empty: any, unless `supports` refuses some
    head_dims: Sequence[int] = ()  # the only head sizes that it takes; empty: any, unless `supports` refuses some
    variants: ClassVar[tuple[str, ...]] = ()
    layout: Layout = "LHD"
    gives_lse: bool = True  # where the backend cannot, forward returns None for lse
    backward: BackwardKind = "functional"
    fp32_sums: tuple[str, ...] = ()  # the gradients that a backward sums up in memory of its own, in fp32
    gqa: str = "native"  # or "expands", "expands in backward": the adapter repeats KV heads
    takes_negative_scale: bool = False  # most libraries take the maximum of the scores before they scale them
    returns_own_buffer: bool = False  # results lie in memory that the next call writes to, as those of a CUDA graph do
    takes_empty: bool = False  # masks without queries or without keys
    takes_softcap: bool = False  # whether forward and backward apply `Case.softcap`
    sinks: SinkSupport | None = None  # None: see `sink_support`
    own_files: tuple[str, ...] = ()  # files beside this one that are part of the kernel and no Python module, such as kernel.cu
    tested: str = ""  # where it passed the check; empty: nowhere yet
    preference: Preference = Preference()  # whether `best`, which runs where no kernel is named, may choose it
    default_for_methods: tuple[str, ...] = ()  # devices on which context parallel methods use it by default: it serves all of them
    compile_cache: ClassVar[CompileCache | None] = None  # for libraries that keep compiled code on disk only on request
    chooses: ClassVar[bool] = False  # between the other kernels, so that `all` leaves it out
    chose: str = ""  # labels of the kernels that run in its place

    def __init__(self, variant: str = "") -> None:
        self.variant = variant

    @property
    def sink_support(self) -> SinkSupport:
        """How it does attention sinks: "native", by its library; "after", where LongCA adds them to its out and lse; or "no".

        A backward that takes the out and lse of a whole ring takes those with sinks too, so nothing more is needed than that and an lse.
        """
        return self.sinks or ("after" if self.backward == "functional" and self.gives_lse else "no")

    @property
    def getting(self) -> str:
        """How a user installs it; empty where torch is enough."""
        return self.install or (f"pip install {self.needs}" if self.needs else "")

    @property
    def label(self) -> str:
        return f"{self.name}:{self.variant}" if self.variant else self.name

    def workspace(self, case: Case) -> int:
        """Bytes that a backward holds beside inputs and results: its fp32 sums, with two numbers for each query row and head."""
        rows, keys = case.seqlen_q * case.heads_q, case.seqlen_k * case.heads_kv
        sizes = {"dq": rows * (case.head_dim + 2), "dk": keys * case.head_dim, "dv": keys * case.head_dim_v}
        grouped = case.heads_q > case.heads_kv  # sums over the query heads of a group; without groups dk and dv are results at once
        return 4 * sum(sizes[name] for name in self.fp32_sums if name == "dq" or grouped)

    def lse_in(self, case: Case) -> bool:
        """Whether forward returns the lse in this case; merging partial results needs it."""
        return self.gives_lse

    def present(self) -> Answer:
        """Whether its library is there and of a version that works; asked only when `modules` can be imported. A pre-release that `needs`
        names must be that one, as the next may have another interface."""
        for package, number in PRE_RELEASE.findall(self.needs):
            if (present := self.versions().get(package, "")) != number:
                return No(f"works with {package} {number}, and {present or 'a copy without a number'} is here; {self.getting}")
        return Yes()

    @abstractmethod
    def supports(self, mask: AnyMask, case: Case) -> Answer: ...

    @abstractmethod
    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        """Lowers the mask and compiles; timed apart from forward and backward."""

    def prepared(self, mask: AnyMask, case: Case) -> Prepared:
        """Returns the kernel that runs and its attention; a kernel that chooses between others replaces it."""
        return Prepared(self, self.prepare(mask, case))

    def code_files(self) -> dict[str, Path]:
        """Returns the file or folder of each of its modules, without importing any; empty where a module is missing."""
        paths = {module: code_version.module_path(module) for module in self.modules}
        return {module: path for module, path in paths.items() if path is not None} if None not in paths.values() else {}

    def own_paths(self) -> list[Path]:
        """Returns the paths of `own_files`: beside the class, or beside a class that it derives from."""
        files = [getattr(sys.modules.get(base.__module__), "__file__", None) for base in type(self).__mro__]
        homes = [Path(file).parent for file in files if file]
        return [next((home / name for home in homes if (home / name).is_file()), homes[0] / name) for name in self.own_files]

    def versions(self) -> dict[str, str]:
        """Returns the versions of its packages; `registry.versions` adds the version of its own code.

        A package that was copied and not installed has no version number: then a hash of its code is its version.
        """
        from importlib.metadata import PackageNotFoundError, version

        numbers, complete = dict[str, str](), True
        for package in self.needs.split():
            name = package.split("==")[0].split("[")[0]
            try:
                numbers[name] = version(name)
            except PackageNotFoundError:
                complete = False
        return numbers if complete else numbers | {name: code_version.of_path(path) for name, path in self.code_files().items()}


def refuse_declared(kernel: Kernel, case: Case) -> No | None:
    """Returns the refusal of a dtype or head size that is not among those that a kernel declares, or None."""
    if kernel.dtypes and case.dtype not in kernel.dtypes:
        return No(f"takes {', '.join(kernel.dtypes)}, not {case.dtype}")
    if kernel.head_dims and not {case.head_dim, case.head_dim_v} <= set(kernel.head_dims):
        return No(f"takes head size {', '.join(map(str, kernel.head_dims))}, not {format_dims(vars(case))}")
    return None


def refuse_shapes(case: Case, *, dtypes: tuple[str, ...], dims: Any, equal_dims: bool = False) -> No | None:
    """Returns the refusal of a dtype, head size or number of heads, or None; `dims` holds the head sizes that the kernel can do."""
    if case.dtype not in dtypes:
        return No(f"takes {', '.join(dtypes)}, not {case.dtype}")
    if case.head_dim not in dims or case.head_dim_v not in dims:
        return No(f"cannot do head size {case.head_dim}/{case.head_dim_v}")
    if equal_dims and case.head_dim != case.head_dim_v:
        return No(f"needs the same head size for q and v, not {case.head_dim}/{case.head_dim_v}")
    if case.heads_q % case.heads_kv:
        return No(f"needs a multiple of the {case.heads_kv} KV heads as query heads, not {case.heads_q}")
    return None
