"""FlashAttention-3 (Hopper): xformers 0.0.34 carries a build of it; an own build is imported as flash_attn_interface."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longca.code_version import module_path, of_path
from longca.errors import Unavailable
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes
from longca.kernels.shared import DocumentAttention, documents_of, refuse_hopper_shapes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask

OWN_BUILD = ("flash_attn_interface", "flash_attn_3")  # its Python and its binary


@dataclass(frozen=True)
class Tuning:
    """None leaves the choice to the library."""

    pack_gqa: bool | None = None
    sm_margin: int = 0


def library_file() -> Path | None:
    """Returns the binary that registers the operators: on its own (`fa3_C.so` in a folder of sys.path), or inside xformers."""
    loose = (Path(folder) / "fa3_C.so" for folder in sys.path if folder)
    spec = find_spec("xformers")
    packaged = (Path(folder) / "flash_attn_3" / "_C.so" for folder in (spec.submodule_search_locations or ()) if folder) if spec else ()
    return next((path for path in (*loose, *packaged) if path.is_file()), None)


def cuda_12_runtime(beside: Path) -> Path | None:
    """Returns CUDA 12's runtime, against which that binary is linked and which a torch for CUDA 13 does not bring."""
    package = (Path(folder) / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12" for folder in sys.path if folder)
    return next((path for path in (beside.with_name("libcudart.so.12"), *package) if path.is_file()), None)


def operators() -> Any:
    """Loads the operators and returns torch.ops.flash_attn_3."""
    import torch

    if find_spec("flash_attn_interface") is not None:
        import flash_attn_interface  # noqa: F401  # registers the operators

        return torch.ops.flash_attn_3
    library = library_file()
    if library is None:
        raise Unavailable("fa3 finds no build of FlashAttention-3; pip install xformers==0.0.34 nvidia-cuda-runtime-cu12.")
    runtime = cuda_12_runtime(library)
    if runtime is not None:
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    torch.ops.load_library(str(library))
    return torch.ops.flash_attn_3


class Fa3(Kernel):
    name = "fa3"
    about = "FlashAttention-3 for Hopper, with documents and windows"
    needs = "xformers==0.0.34 nvidia-cuda-runtime-cu12"
    capability = (9, 0)
    tested = "H200"
    preference = Preference(cuda=30)
    fp32_sums = ("dq", "dk", "dv")
    tuning = Tuning()

    def present(self) -> Answer:
        return Yes() if find_spec("flash_attn_interface") or library_file() else No(f"pip install {self.needs}")

    def code_files(self) -> dict[str, Path]:
        """Returns the files that `operators` loads."""
        own = {name: path for name in OWN_BUILD if (path := module_path(name))}
        library = library_file()
        return own or ({"flash_attn_3._C": library} if library else {})

    def versions(self) -> dict[str, str]:
        """Adds the hash of an own build, which is loaded whatever version of xformers is installed."""
        own = self.code_files() if module_path(OWN_BUILD[0]) else {}
        return super().versions() | {name: of_path(path) for name, path in own.items()}

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_hopper_shapes(case)
        if refusal is not None:
            return refusal
        if case.deterministic and case.backward and case.head_dim == 256:
            return No("has no deterministic backward for head size 256")
        documents = documents_of(mask)
        return documents if isinstance(documents, No) else Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return Fa3Attention(mask, case, self.tuning)


class Fa3Attention(DocumentAttention):
    def __init__(self, mask: AnyMask, case: Case, tuning: Tuning) -> None:
        super().__init__(mask, case)
        self.operators = operators()
        self.options: dict[str, Any] = {
            "softmax_scale": case.softmax_scale,
            "is_causal": self.causal,
            "window_size_left": self.left,
            "window_size_right": self.right,
            "sm_margin": tuning.sm_margin,
        }
        if self.packed:
            self.options |= {"cu_seqlens_q": self.cu_q, "cu_seqlens_k": self.cu_k, "max_seqlen_q": self.max_q, "max_seqlen_k": self.max_k}
        self.pack_gqa = tuning.pack_gqa

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = self.batched(q_LHD, k_LHD, v_LHD)
        out, lse, *_ = self.operators.fwd(*tensors, num_splits=1, pack_gqa=self.pack_gqa, **self.options)  # splitting keys is for decoding
        out_LHD, lse_HL = self.unbatched(out, lse)
        return self.blind.after_forward(out_LHD, lse_HL)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        tensors = self.batched(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL.contiguous())
        dq, dk, dv, *_ = self.operators.bwd(*tensors, deterministic=self.case.deterministic, **self.options)
        dq, dk, dv = self.unbatched(dq, dk, dv)
        return dq, dk, dv
