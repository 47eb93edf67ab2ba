"""What a kernel is: one class per file, found by the registry, checked and timed like any other.

Shapes are letters in the names: L tokens, H heads, D head size; so `q_LHD` is [tokens, heads, head size].

    class MyKernel(Kernel):
        name, needs, modules = "mine", "my-package", ("my_package",)
        def supports(self, mask, case): ...
        def prepare(self, mask, case): return MyAttention(...)
"""

from __future__ import annotations

import hashlib
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from longca.errors import BadInput, Refused

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.masks import AnyMask

    Gradients = tuple[Tensor, Tensor, Tensor]  # dq, dk, dv

BackwardKind = Literal["functional", "autograd", "none"]
Layout = Literal["LHD", "HLD"]
CODE = re.compile(r"\.(py|so)(\.[0-9.]+)?$")
OURS = Path(__file__).parent  # where the files of our own kernels are
FORWARD_ONLY = 'a kernel without a backward says so, with @longca.kernel(differentiable=False), or backward = "none" in a class'
PIECE, PIECES = 1 << 14, 256  # bytes of a large binary that are read, and in how many places


@dataclass(frozen=True)
class Yes:
    """Supported; `how` says whether the kernel knows the mask itself or gets it through a lowering."""

    how: Literal["native", "lowered"] = "native"
    note: str = ""
    quadratic: bool = False  # needs memory for every pair, so that long sequences do not fit
    per_head: bool = True  # and that for each head, as scores do; a dense mask is there once for all

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class No:
    """Not supported, and why: what follows the kernel's name in a sentence for the user, such as "takes bf16, not fp32"."""

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
    backward: bool = True  # whether dq, dk, dv will be asked for
    partial_backward: bool = False  # backward from another call's out and lse, as a ring needs
    deterministic: bool = False
    numbers: str = ""  # whose generator makes the inputs; empty: the device's own, which differ from one another

    @property
    def softmax_scale(self) -> float:
        return self.scale or float(self.head_dim) ** -0.5

    @property
    def group(self) -> int:
        """Query heads per KV head; the KV head of query head h is h // group."""
        return self.heads_q // self.heads_kv


class Attention(ABC):
    """One mask and one case, lowered and ready: functions of tensors, logically [L, H, D] whatever their memory order.

    out and the gradients have the dtype of q, k and v. lse is fp32 (fp64 beside fp64) [H, L], the natural log of the sum of exp of the
    scaled scores; -inf for rows that see nothing, whose out and gradients are 0. `backward` takes the global out and lse, so that the
    same object serves one GPU and every step of a ring.
    """

    @abstractmethod
    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]: ...

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        raise Refused('it has no backward, so its class should say backward = "none".')


class AutogradAttention(Attention):
    """For kernels without a backward of their own: the graph that hangs on `out` is run, and kept for the next time."""

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        inputs, found = {"q": q_LHD, "k": k_LHD, "v": v_LHD}, tuple[Any, ...]((None, None, None))
        if out_LHD.requires_grad:
            found = torch.autograd.grad(out_LHD, tuple(inputs.values()), dout_LHD, retain_graph=True, allow_unused=True)
        missing = [name for name, gradient in zip(inputs, found, strict=True) if gradient is None]
        if missing:
            cure = "" if len(missing) < len(inputs) else f"; {FORWARD_ONLY}"
            raise BadInput(
                f"no gradient reaches {' and '.join(missing)}: torch must be able to differentiate out with respect to it{cure}."
            )
        dq, dk, dv = found
        return dq, dk, dv


class Kernel(ABC):
    """A way to compute attention. `supports` and everything at class level work without torch; `prepare` may import anything.

    A kernel with several ways lists them in `variants`, best first, and is instantiated once per variant.
    """

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""  # one line for `longca ls kernels`
    needs: ClassVar[str] = ""  # what to pip install; empty: torch alone
    install: ClassVar[str] = ""  # how to get it, where `pip install` with `needs` does not do
    modules: ClassVar[tuple[str, ...]] = ()  # importable when it is installed
    devices: tuple[str, ...] = ("cuda",)
    capability: ClassVar[tuple[int, int]] = (8, 0)  # least compute capability on cuda
    variants: ClassVar[tuple[str, ...]] = ()
    layout: Layout = "LHD"
    gives_lse: bool = True  # where the backend cannot, forward returns None for lse
    backward: BackwardKind = "functional"
    gqa: str = "native"  # or "expands": the adapter repeats KV heads
    own_files: tuple[str, ...] = ()  # files beside this one that are the kernel and that no package's version tells, such as kernel.cu
    tested: str = ""  # where it ran through the check; empty: never, written from documentation

    def __init__(self, variant: str = "") -> None:
        self.variant = variant

    @property
    def getting(self) -> str:
        """What a user must do to have it; empty where torch is enough."""
        return self.install or (f"pip install {self.needs}" if self.needs else "")

    @property
    def label(self) -> str:
        return f"{self.name}:{self.variant}" if self.variant else self.name

    def lse_in(self, case: Case) -> bool:
        """Whether forward gives the lse in this case: what puts partial results together needs it."""
        return self.gives_lse

    def present(self) -> Answer:
        """Whether what it needs beyond importable modules is there; asked only when the modules are."""
        return Yes()

    @abstractmethod
    def supports(self, mask: AnyMask, case: Case) -> Answer: ...

    @abstractmethod
    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        """Lower the mask and compile; timed apart from forward and backward."""

    def code_files(self) -> dict[str, Path]:
        """Where the code of its modules is, file or folder, found without importing it; nothing where one of them is missing."""
        found = {module: module_path(module) for module in self.modules}
        return {module: path for module, path in found.items() if path is not None} if None not in found.values() else {}

    def own_paths(self) -> list[Path]:
        """Its own files: beside the class, or beside the one that it builds on."""
        files = [getattr(sys.modules.get(base.__module__), "__file__", None) for base in type(self).__mro__]
        homes = [OURS if Path(file).parent == Path(__file__).parent else Path(file).parent for file in files if file]
        return [next((home / name for home in homes if (home / name).is_file()), homes[0] / name) for name in self.own_files]

    def versions(self) -> dict[str, str]:
        """Versions of what would change the figures if it changed: its packages, and the kernel itself where that is code of ours.

        A package that was copied and not installed has no number: then what its code says is the version.
        """
        from importlib.metadata import PackageNotFoundError, version

        found, numbered = dict[str, str](), True
        if self.own_files:
            found[f"longca.kernels.{self.label}"] = source_version(self.own_paths())
        for package in self.needs.split():
            name = package.split("==")[0].split("[")[0]
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                numbered = False
        return found if numbered else found | {name: code_version(path) for name, path in self.code_files().items()}


def source_version(files: Iterable[Path]) -> str:
    """A short hash of what files say: the version of code that has no number of its own."""
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=8).hexdigest()


def module_path(module: str) -> Path | None:
    """The folder of a package or the file of a module, without importing it or its package, which may take seconds, or a GPU; None where
    it is not installed."""
    package, *rest = module.split(".")
    spec = find_spec(package)
    if spec is None:
        return None
    places = [Path(place, *rest) for place in spec.submodule_search_locations or ()]
    if not rest and not places:
        return Path(spec.origin) if spec.has_location and spec.origin else None
    return next((path for place in places for path in (place, place.with_suffix(".py")) if path.exists()), None)


def code_version(path: Path) -> str:
    """A short hash of a file, or of all code in a folder; of large binaries of pieces all over them, as they take seconds to read."""
    files = [file for file in sorted(path.rglob("*")) if CODE.search(file.name) and file.is_file()] if path.is_dir() else [path]
    found = hashlib.blake2b(digest_size=8)
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.relative_to(path)} {size}\n".encode())
        with file.open("rb") as text:
            for start in range(0, size, max(PIECE, size // PIECES)):
                text.seek(start)
                found.update(text.read(PIECE))
    return found.hexdigest()


def refuse_shapes(case: Case, *, dtypes: tuple[str, ...], dims: Any, equal_dims: bool = False) -> No | None:
    """The refusals that almost every kernel shares; `dims` is a container of the head sizes it can do."""
    if case.dtype not in dtypes:
        return No(f"takes {', '.join(dtypes)}, not {case.dtype}")
    if case.head_dim not in dims or case.head_dim_v not in dims:
        return No(f"cannot do head size {case.head_dim}/{case.head_dim_v}")
    if equal_dims and case.head_dim != case.head_dim_v:
        return No(f"needs the same head size for q and v, not {case.head_dim}/{case.head_dim_v}")
    if case.heads_q % case.heads_kv:
        return No(f"needs a multiple of the {case.heads_kv} KV heads as query heads, not {case.heads_q}")
    return None
