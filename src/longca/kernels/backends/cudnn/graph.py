"""cuDNN's fused attention as a graph, through the cuDNN frontend: full, causal and window masks, documents as ragged batches."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.errors import Refused
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.shared import band_mask, documents_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask
    from longca.masks.encodings import Varlen


class Cudnn(Kernel):
    name = "cudnn"
    about = "cuDNN's fused attention graph, with documents and windows"
    needs = "nvidia-cudnn-frontend==1.32.0"
    modules = ("cudnn",)
    capability = (9, 0)  # ragged batches
    tested = "H200"
    preference = Preference(cuda=40)

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=range(8, 257, 8))
        if refusal is not None:
            return refusal
        varlen = documents_of(mask)
        if isinstance(varlen, No):
            return varlen
        queries, keys = np.diff(varlen.cu_q), np.diff(varlen.cu_k)
        if not (queries.all() and keys.all()):
            return No("needs at least one query and one key in every document")
        if (varlen.left, varlen.right) != (-1, -1) and (queries > keys).any():
            return No("aligns a window at the last query and key only where a document has no more queries than keys")
        return Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        import cudnn

        try:
            return GraphAttention(band_mask(mask).varlen(), case)
        except cudnn.cudnnGraphNotSupportedError as unsupported:
            raise Refused(f"cuDNN has no engine for this graph: {str(unsupported).strip().splitlines()[-1]}") from unsupported


@cache
def handle_of(_device: int) -> tuple[Any, Lock]:
    """Returns cuDNN's handle for the current device and its lock: a stream belongs to the handle, and ranks may be threads."""
    import cudnn

    return cudnn.create_handle(), Lock()


class GraphAttention(Attention):
    """One graph for the forward and one for the backward, each bound to this mask's lengths.

    cuDNN wants [batch, heads, tokens, size] with any strides; documents become batch entries whose start in memory is a ragged
    offset, so the tensors stay [tokens, heads, size]. lse is [heads, tokens] for one document and [tokens, heads] for ragged ones.
    """

    def __init__(self, varlen: Varlen, case: Case) -> None:
        import cudnn
        import torch

        from longca.kernels.lower import upload

        self.case, self.documents = case, len(varlen.cu_q) - 1
        self.ragged = self.documents > 1
        queries, keys = np.diff(varlen.cu_q), np.diff(varlen.cu_k)
        self.tokens = {"q": int(queries.max()), "k": int(keys.max())}
        self.buffers: dict[str, torch.Tensor] = {}  # what describes the documents, by the name of its graph tensor
        if self.ragged:
            for side, lengths, cu in (("q", queries, varlen.cu_q), ("k", keys, varlen.cu_k)):
                self.buffers[f"length_{side}"] = upload(lengths.astype(np.int32), case.device)
                self.buffers[f"start_{side}"] = upload(cu.astype(np.int64), case.device)
        aligned = "TOP_LEFT" if (queries == keys).all() else "BOTTOM_RIGHT"
        self.mask_options: dict[str, Any] = {
            "attn_scale": case.softmax_scale,
            "diagonal_alignment": getattr(cudnn.diagonal_alignment, aligned),
            "diagonal_band_left_bound": varlen.left + 1 if varlen.left >= 0 else None,  # cuDNN counts the diagonal itself
            "diagonal_band_right_bound": varlen.right if varlen.right >= 0 else None,
        }
        self.handle, self.lock = handle_of(torch.cuda.current_device())
        self.forward_graph = self._build_forward()
        self.backward_graph = self._build_backward() if case.backward else None

    def _build_forward(self) -> Graph:
        graph = Graph(self)
        q, k, v = graph.tensor("q", "q"), graph.tensor("k", "k"), graph.tensor("v", "k")
        out, lse = graph.graph.sdpa(q=q, k=k, v=v, generate_stats=True, **self.mask_options, **graph.lengths())
        graph.output(out, "out", "q")
        graph.output(lse, "lse", "q")
        return graph.built()

    def _build_backward(self) -> Graph:
        graph = Graph(self)
        names = (("q", "q"), ("k", "k"), ("v", "k"), ("out", "q"), ("dout", "q"), ("lse", "q"))
        inputs = [graph.tensor(name, side) for name, side in names]
        options = graph.lengths() | {"use_deterministic_algorithm": self.case.deterministic}
        if self.ragged:  # bounds the workspace, in whole tiles
            totals = {"q": self.case.seqlen_q, "kv": self.case.seqlen_k}
            options |= {f"max_total_seq_len_{name}": -(-total // 64) * 64 for name, total in totals.items()}
        grads = graph.graph.sdpa_backward(
            **dict(zip(("q", "k", "v", "o", "dO", "stats"), inputs, strict=True)), **self.mask_options, **options
        )
        for grad, name, side in zip(grads, ("dq", "dk", "dv"), ("q", "k", "k"), strict=True):
            graph.output(grad, name, side)
        return graph.built()

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        case = self.case
        out_LHD = q_LHD.new_empty(case.seqlen_q, case.heads_q, case.head_dim_v)
        shape = (case.seqlen_q, case.heads_q) if self.ragged else (case.heads_q, case.seqlen_q)
        lse = torch.empty(shape, dtype=torch.float32, device=q_LHD.device)
        self.forward_graph.run({"q": q_LHD.contiguous(), "k": k_LHD.contiguous(), "v": v_LHD.contiguous(), "out": out_LHD, "lse": lse})
        return out_LHD, lse.t() if self.ragged else lse

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        assert self.backward_graph is not None
        assert lse_HL is not None
        inputs = {"q": q_LHD, "k": k_LHD, "v": v_LHD, "out": out_LHD, "dout": dout_LHD, "lse": lse_HL.t() if self.ragged else lse_HL}
        tensors = {name: tensor.contiguous() for name, tensor in inputs.items()}
        dq, dk, dv = (torch.empty_like(tensors[name]) for name in ("q", "k", "v"))
        self.backward_graph.run(tensors | {"dq": dq, "dk": dk, "dv": dv})
        return dq, dk, dv


class Graph:
    """A cuDNN graph and its plan: tensors by name, each with the side (q or k) whose heads and tokens it has."""

    def __init__(self, attention: GraphAttention) -> None:
        import cudnn

        self.attention, case = attention, attention.case
        heads, size, size_v = {"q": case.heads_q, "k": case.heads_kv}, case.head_dim, case.head_dim_v
        sizes = {"q": size, "k": size, "v": size_v, "out": size_v, "dout": size_v, "lse": 1, "dq": size, "dk": size, "dv": size_v}
        self.heads, self.sizes = heads, sizes
        self.io_type = {"bf16": cudnn.data_type.BFLOAT16, "fp16": cudnn.data_type.HALF}[case.dtype]
        float32 = cudnn.data_type.FLOAT
        self.graph: Any = cudnn.pygraph(
            io_data_type=self.io_type, intermediate_data_type=float32, compute_data_type=float32, handle=attention.handle
        )
        self.by_name: dict[str, Any] = {}
        self.starts: dict[tuple[str, int], str] = {}  # ragged offsets count elements, so one buffer per tokens and row width

    def _layout(self, name: str, side: str) -> tuple[list[int], list[int]]:
        tokens, heads, size = self.attention.tokens[side], self.heads[side], self.sizes[name]
        by_head = name == "lse" and not self.attention.ragged
        strides = [tokens, 1] if by_head else [size, heads * size]
        return [self.attention.documents, heads, tokens, size], [tokens * heads * size, *strides, 1]

    def _ragged_offset(self, name: str, side: str) -> Any:
        import cudnn

        width = self.heads[side] * self.sizes[name]
        label = self.starts.setdefault((side, width), f"offset_{side}_{width}")
        if label not in self.by_name:
            buffers = self.attention.buffers
            buffers.setdefault(label, buffers[f"start_{side}"] * width)
            shape = [self.attention.documents + 1, 1, 1, 1]
            self.by_name[label] = self.graph.tensor(dim=shape, stride=[1, 1, 1, 1], data_type=cudnn.data_type.INT64, name=label)
        return self.by_name[label]

    def tensor(self, name: str, side: str) -> Any:
        import cudnn

        dim, stride = self._layout(name, side)
        data_type = cudnn.data_type.FLOAT if name == "lse" else self.io_type
        made = self.graph.tensor(dim=dim, stride=stride, data_type=data_type, name=name)
        if self.attention.ragged:
            made.set_ragged_offset(self._ragged_offset(name, side))
        self.by_name[name] = made
        return made

    def output(self, made: Any, name: str, side: str) -> None:
        import cudnn

        dim, stride = self._layout(name, side)
        made.set_output(True).set_dim(dim).set_stride(stride)
        made.set_data_type(cudnn.data_type.FLOAT if name == "lse" else self.io_type)
        if self.attention.ragged:
            made.set_ragged_offset(self._ragged_offset(name, side))
        self.by_name[name] = made

    def lengths(self) -> dict[str, Any]:
        import cudnn

        if not self.attention.ragged:
            return {}
        shape = [self.attention.documents, 1, 1, 1]
        for label in ("length_q", "length_k"):
            self.by_name[label] = self.graph.tensor(dim=shape, stride=[1, 1, 1, 1], data_type=cudnn.data_type.INT32, name=label)
        return {"use_padding_mask": True, "seq_len_q": self.by_name["length_q"], "seq_len_kv": self.by_name["length_k"]}

    def built(self) -> Graph:
        import cudnn

        self.graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self.workspace_bytes = int(self.graph.get_workspace_size())
        return self

    def run(self, tensors: dict[str, torch.Tensor]) -> None:
        import cudnn
        import torch

        handle = self.attention.handle
        workspace = torch.empty(max(self.workspace_bytes, 1), dtype=torch.uint8, device=tensors["q"].device)
        pack = {tensor: tensors[name] if name in tensors else self.attention.buffers[name] for name, tensor in self.by_name.items()}
        with self.attention.lock:
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            self.graph.execute(pack, workspace, handle=handle)
