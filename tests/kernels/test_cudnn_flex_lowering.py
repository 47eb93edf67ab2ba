"""The endpoints that cuDNN's interval attention gets describe the mask, numbered over all keys or inside its blocks."""

import numpy as np
import pytest

from kernels.stand_ins import small_mask
from longca import masks
from longca.kernels.backends.cudnn.intervals import CudnnFlex, diagonal_blocks, endpoints
from longca.kernels.base import Case
from longca.masks import Mask

DOCUMENTS = (9, 20, 1, 31)
SEQLEN = sum(DOCUMENTS)


def build(name):
    return small_mask(name, DOCUMENTS)


def shown(points, seqlen_k):
    """[0, F0) and [F1, F2) and so on, written out: a key is seen where an odd number of endpoints lies beyond it."""
    return (points[:, :, None] > np.arange(seqlen_k)).sum(0) % 2 == 1


def cuts(mask):
    yield mask
    yield mask.rows([(13, 55)])
    yield mask.cols([(5, 40)])
    yield mask.rows([(0, 4), (30, SEQLEN)]).cols([(10, 35)])


@pytest.mark.parametrize("name", masks.names())
def test_endpoints_show_the_mask(name):
    for mask in cuts(build(name)):
        points = endpoints(*mask.row_intervals())
        assert len(points) % 2 == 1
        assert (np.diff(points, axis=0) >= 0).all()
        np.testing.assert_array_equal(shown(points, mask.seqlen_k), mask.dense())


@pytest.mark.parametrize("name", masks.names())
def test_blocks_hold_everything_the_mask_shows(name):
    for mask in cuts(build(name)):
        cu_q, cu_k = diagonal_blocks(*mask.row_intervals(), mask.seqlen_k)
        assert (np.diff(cu_q) > 0).all()
        assert (np.diff(cu_k) >= 0).all()
        assert (cu_q[-1], cu_k[-1]) == (mask.seqlen_q, mask.seqlen_k)
        inside = np.zeros((mask.seqlen_q, mask.seqlen_k), bool)
        for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:], strict=False):
            inside[q0:q1, k0:k1] = True
        assert not (mask.dense() & ~inside).any()


def test_blocks_are_the_documents():
    for name in ("full_document", "causal_document"):
        for edges in diagonal_blocks(*build(name).row_intervals(), SEQLEN):
            np.testing.assert_array_equal(edges, np.cumsum([0, *DOCUMENTS]))


def test_endpoints_are_as_few_as_possible_and_rows_that_see_nothing_have_none_beyond_the_first_key():
    assert len(endpoints(*build("causal").row_intervals())) == 1
    assert len(endpoints(*build("causal_document").row_intervals())) == 3
    points = endpoints(*Mask.of(6, 6, [(2, 4, 1, 0, 5, 0)]).row_intervals())
    assert (points[:, [0, 1, 4, 5]] == 0).all()


def test_what_it_refuses():
    causal, documents = build("causal"), build("causal_document")

    def answer(mask, heads=(8, 2), dims=(128, 128), variant="rows", **more):
        return CudnnFlex(variant).supports(mask, Case(SEQLEN, SEQLEN, *heads, *dims, device="cuda", **more))

    assert answer(causal)
    assert answer(documents, variant="documents")
    assert "single block" in answer(causal, variant="documents").reason
    assert "fp32" in answer(causal, dtype="fp32").reason
    assert answer(causal, dims=(256, 256))
    assert answer(causal, heads=(4, 4), dims=(192, 128))
    assert answer(causal, dims=(192, 128), backward=False)
    assert "grouped" in answer(causal, dims=(192, 128)).reason
    assert not answer(causal, dims=(192, 192))
    assert not answer(causal, dims=(128, 64))
    assert not CudnnFlex("rows").supports(
        masks.build("uniform_block", 512, b=64, ratio=0.5, heads=2), Case(512, 512, 8, 2, 128, 128, device="cuda")
    )
