"""Balancers of other projects give ranks the tokens that the originals give them, and say so when documents do not divide."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributed.tensor.experimental._context_parallel import _load_balancer as theirs
from torch.nn.attention.flex_attention import create_block_mask

from longca import masks
from longca.masks import Mask
from longca.parallel import registry
from longca.parallel.grid import Grid
from longca.parallel.ranges import tokens
from parallel.running import assert_right, case_of, plan_of, reference, run_local

RANKS, DOCUMENTS = 4, (256, 1024, 64, 704)
DOCUMENT_MASK = masks.causal_document(sum(DOCUMENTS), documents=DOCUMENTS)
BALANCERS = [name for name in registry.peers() if registry.get(name).balancer]


def owned(name: str, mask: Mask) -> list[list[int]]:
    return [sorted(tokens(shard).tolist()) for shard in registry.get(name).shards(mask, Grid(1, RANKS))]


def dealt(indices: torch.Tensor) -> list[list[int]]:
    """The tokens of each rank, from the order in which the original puts all tokens."""
    return [sorted(part.tolist()) for part in indices.flatten().chunk(RANKS)]


def test_shards_are_those_of_torch() -> None:
    length = DOCUMENT_MASK.seqlen_q
    assert owned("torch_head_tail", DOCUMENT_MASK) == dealt(theirs._HeadTailLoadBalancer(length, RANKS, "cpu")._generate_indices())
    per_document = theirs._PerDocumentHeadTailLoadBalancer([list(DOCUMENTS)], RANKS, "cpu")._generate_indices()
    assert owned("torch_per_document", DOCUMENT_MASK) == dealt(per_document)


def test_an_imbalance_that_no_test_of_correctness_finds_is_in_the_plan() -> None:
    """torch's per-document balancer reorders chunks inside documents, and cuts the whole: one long document is on few ranks."""
    mask = masks.causal_document(4096, documents=[64] * 32 + [2048])
    work = {name: [mask.rows(shard).area for shard in registry.get(name).shards(mask, Grid(1, RANKS))] for name in BALANCERS}  # type: ignore[arg-type]
    uneven = {name: max(areas) * RANKS / sum(areas) for name, areas in work.items()}
    assert uneven["torch_per_document"] > 1.8
    assert uneven["ring_flash_zigzag"] < 1.01


@pytest.mark.parametrize("name", ["causal", "causal_document", "sliding_window", "share_question"])
def test_ptrr_is_torchs(name: str) -> None:
    mask = masks.build(name, 2048, **({"documents": DOCUMENTS} if masks.find(name).has_documents else {}))
    dense = torch.from_numpy(np.asarray(mask.dense()))
    blocks = create_block_mask(lambda b, h, q, k: dense[q, k], None, None, 2048, 2048, device="cpu")
    assert owned("torch_ptrr", mask) == dealt(theirs._PTRRLoadBalancer(blocks, RANKS)._generate_indices())


@pytest.mark.parametrize("name", BALANCERS)
def test_attention_over_their_shards_is_right(name: str) -> None:
    mask = masks.causal_document(301, documents=[100, 1, 200])
    case = case_of(301, (4, 2))
    assert_right(run_local(plan_of(name, mask, case, 3)), reference(mask, case))


def test_padding_of_documents_that_do_not_divide_is_said() -> None:
    case = case_of(100, (4, 2))
    plan = plan_of("megatron_p2p", masks.causal_document(100, documents=[92, 8]), case, 4)
    assert "4.0% more tokens" in plan.method.describe(plan)[0]
    assert not plan_of("megatron_p2p", masks.causal_document(96, documents=[88, 8]), case_of(96, (4, 2)), 4).describe()
