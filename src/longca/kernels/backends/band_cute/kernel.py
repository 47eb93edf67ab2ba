"""`band_cute`: the forward of fa4:bands, and an own backward in which a thread block takes several query heads of one KV head in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longca.kernels.backends.fa4.kernel import SHORT, Fa4, _kind, compile_ahead, supports_bands
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes
from longca.kernels.shared import band_mask, refuse_hopper_shapes

if TYPE_CHECKING:
    from longca.masks import AnyMask

ROWS = {64: 128, 128: 64}  # queries of a tile by head size, as in `fa4._bands.backward_rows`


class BandCute(Kernel):
    """The library keeps compiled kernels where fa4's are, so that this class declares no `compile_cache`."""

    name = "band_cute"
    about = "an own Hopper backward for band masks (CuTe DSL, on FlashAttention-4), several query heads per thread block"
    needs = Fa4.needs
    modules = Fa4.modules
    capability = most_capability = (9, 0)
    tested = "H200"
    preference = Preference(cuda=15)
    fp32_sums = ("dq", "dk", "dv")

    def __init__(self, variant: str = "", joined: int | None = None) -> None:
        super().__init__(variant)
        self.joined = joined  # query heads of a thread block; None leaves the choice to this adapter

    def present(self) -> Answer:
        number = self.versions().get("flash-attn-4", "")
        if f"flash-attn-4=={number}" in self.needs.split():
            return Yes()
        return No(f"replaces parts of one version of flash-attn-4, and {number or 'a copy without a number'} is here; {self.getting}")

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if (refusal := refuse_hopper_shapes(case)) is not None:
            return refusal
        if case.head_dim not in ROWS or case.head_dim_v != case.head_dim:
            return No(f"takes head sizes {' and '.join(map(str, ROWS))}, the same for v, not {case.head_dim}/{case.head_dim_v}")
        if case.seqlen_q % (rows := ROWS[case.head_dim]):
            return No(f"takes multiples of {rows} queries at head size {case.head_dim}, not {case.seqlen_q}; fa4:bands takes any number")
        if case.deterministic:
            return No("adds to dq in any order, so that it has no deterministic backward")
        answer = supports_bands(mask)
        if answer and not case.backward:
            return No("differs from fa4:bands in the backward only; a forward alone is that of fa4:bands")
        return answer

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends.band_cute._attention import JoinedAttention

        attention = JoinedAttention(band_mask(mask), case, self.joined)
        short = replace(case, seqlen_q=min(case.seqlen_q, SHORT), seqlen_k=min(case.seqlen_k, SHORT), numbers="")
        if (key := (_kind(vars(attention)), attention.heads, short)) not in _COMPILED:
            compile_ahead(attention, case)
            _COMPILED.add(key)
        return attention


_COMPILED: set[tuple[Any, int, Case]] = set()
