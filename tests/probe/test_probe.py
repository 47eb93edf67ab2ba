"""Planted defects are found and named; honest models are not accused."""

import numpy as np
import pytest
import torch

from longca import masks
from longca.probe.losses import EXPECTED, loss_mistakes
from probe.tiny import VOCAB, Tiny, contiguous, probed, restarting, zigzag

S = 96
DOCUMENTS = [29, 17, 31, 19]
INDEX = np.arange(S)
CAUSAL = INDEX[:, None] >= INDEX
DOCUMENT = np.repeat(np.arange(len(DOCUMENTS)), DOCUMENTS)
PACKED = masks.causal_document(S, documents=DOCUMENTS)
WINDOW = masks.sliding_window_causal_document(S, documents=DOCUMENTS, w=5)


def window(w):
    return CAUSAL & (INDEX[:, None] - INDEX <= w)


def findings(model, mask, layers=1, **settings):
    return probed(model, [mask] * layers, **settings)[0].findings


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", masks.names())
def test_honest_models_are_not_accused(name, layers):
    """With 1, 2 and 4 ranks in two orders, and three seeds: 216 cases over all masks."""
    for seed in (0, 1, 2):
        mask = masks.build(name, S, seed=seed)
        model = Tiny([mask.dense()] * layers, restarting(mask))
        for owner in (None, contiguous(S, 2), zigzag(S, 4)):
            assert findings(model, mask, layers, owner=owner, probes=24) == ()


SAME = DOCUMENT[:, None] == DOCUMENT
LATE = np.roll(DOCUMENT, 1)
LATE[0] = 0
HALVES, RING = contiguous(S, 2), contiguous(S, 4)
LOCAL = INDEX % 24
ORDER = np.argsort(np.argsort(zigzag(S, 2), kind="stable"), kind="stable")
PADDED = masks.from_dense(CAUSAL & (INDEX < 80))
DEFECTS = [  # mask, what the model does instead, ranks, kinds of findings, words of the cause
    (PACKED, CAUSAL, None, {"leak"}, "documents are merged"),
    (PACKED, SAME, None, {"leak"}, "not causal"),
    (PACKED, np.ones_like(SAME), None, {"leak"}, "the mask is ignored"),
    (PACKED, (LATE[:, None] == LATE) & CAUSAL, None, {"leak", "blind"}, "documents begin one token late"),
    (WINDOW, window(5), None, {"leak"}, "documents are merged"),
    (WINDOW, window(6) & SAME, None, {"leak"}, "one key more at the start"),
    (WINDOW, window(4) & SAME, None, {"blind"}, "misses the first key"),
    (WINDOW, CAUSAL & SAME, None, {"leak"}, "the window is ignored"),
    (PACKED, (CAUSAL | (INDEX[:, None] + 1 == INDEX)) & SAME, None, {"leak"}, "one key after its own"),
    (PACKED, PACKED.dense().T, None, {"leak", "blind"}, "exchanged"),
    (PADDED, CAUSAL, None, {"leak"}, "padding is seen"),
    (masks.causal(S), CAUSAL & (HALVES[:, None] == HALVES), HALVES, {"blind"}, "each rank sees only its own keys"),
    (masks.causal(S), LOCAL[:, None] >= LOCAL, RING, {"leak", "blind"}, "by their place on their rank"),
    (masks.causal(S), CAUSAL & ((RING[:, None] - RING) % 4 != 2), RING, {"blind"}, "the rank 2 before"),
    (masks.causal(S), CAUSAL[np.ix_(ORDER, ORDER)], zigzag(S, 2), {"leak", "blind"}, "in the order of ranks"),
    (PACKED, np.eye(S, dtype=bool), None, {"blind"}, "tokens do not see each other"),
]


@pytest.mark.parametrize(("mask", "actual", "owner", "kinds", "cause"), DEFECTS, ids=[f"{d[4]}-{n}" for n, d in enumerate(DEFECTS)])
def test_a_wrong_mask_is_found_and_named(mask, actual, owner, kinds, cause):
    found = findings(Tiny([actual], restarting(mask)), mask, owner=owner)
    assert {finding.kind for finding in found} == kinds
    assert all(cause in finding.causes[0] for finding in found), found[0].causes
    assert {finding.backward for finding in found} == {False, True}  # outputs and gradients show it


@pytest.mark.parametrize(("reach", "kind", "words"), [(4, "blind", "misses the first key"), (6, "leak", "sees one key more at the start")])
def test_a_window_that_is_wrong_in_one_of_two_layers(reach, kind, words):
    """No layer hides or shows what another does not; the two hops together reach one key less or more."""
    assert findings(Tiny([WINDOW.dense()] * 2, restarting(WINDOW)), WINDOW, 2) == ()
    found = findings(Tiny([WINDOW.dense(), window(reach) & SAME], restarting(WINDOW)), WINDOW, 2)
    assert {finding.kind for finding in found} == {kind}
    assert all(f"in layer 1 alone, each row {words}" in "; ".join(finding.causes) for finding in found)


def test_layers_with_swapped_masks():
    wide = masks.causal(S)
    narrow = masks.sliding_window_causal(S, w=5)
    model = Tiny([narrow.dense()] * 2, INDEX)
    (found, *_) = probed(model, [narrow, wide])[0].findings
    assert found.kind == "blind"
    assert found.causes[0] == "every layer has the mask of layer 0"


def test_an_unknown_mistake_gets_no_name():
    odd = CAUSAL & ~((INDEX[:, None] % 3 == 0) & (INDEX == 40))
    found = findings(Tiny([odd], INDEX), masks.causal(S), probes=S)
    assert {finding.kind for finding in found} == {"blind"}
    assert all(not finding.causes for finding in found)


def test_positions_that_run_through_all_documents():
    found = findings(Tiny([PACKED.dense()], INDEX), PACKED)
    assert [finding.kind for finding in found] == ["positions"]
    assert "begin anew" in found[0].causes[0]


def test_positions_that_begin_anew_on_each_rank():
    mask = masks.causal(S)
    right = probed(Tiny([mask.dense()], INDEX), [mask])[1]
    found = findings(Tiny([mask.dense()], LOCAL), mask, owner=RING, alone=right)
    assert [finding.kind for finding in found] == ["ranks"]
    assert found[0].pairs[0] == (24, 24)
    assert "positions or order" in found[0].causes[0]


def test_gradients_that_do_not_come_back_from_other_ranks():
    class Cut(Tiny):
        def forward(self, ids):
            x = self.embedding(ids) + self.places(self.positions)
            own = torch.as_tensor(HALVES[:, None] == HALVES)
            normal = torch.nn.functional.layer_norm(x, (x.shape[1],))
            q, k, v = (normal @ weight for weight in self.weights[0][:3])
            stopped = [torch.where(own[..., None], key, key.detach()) for key in (k.expand(S, S, -1), v.expand(S, S, -1))]
            scores = (torch.einsum("id,ijd->ij", q, stopped[0]) / q.shape[1] ** 0.5).masked_fill(~self.layers[0], -torch.inf)
            return self.head(x + torch.einsum("ij,ijd->id", scores.softmax(1), stopped[1]) @ self.weights[0][3])

    found = findings(Cut([CAUSAL], INDEX), masks.causal(S), owner=HALVES)
    assert [(finding.kind, finding.backward) for finding in found] == [("blind", True)]
    assert found[0].causes[0] == "each rank sees only its own keys"


def test_a_probe_leaves_a_model_as_it_was():
    model = Tiny([CAUSAL], INDEX, sinks=True)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    assert findings(model, masks.causal(S)) == ()
    assert all(torch.equal(parameter, before[name]) and parameter.grad is None for name, parameter in model.named_parameters())


def test_sinks_that_change_nothing():
    assert findings(Tiny([CAUSAL], INDEX, sinks=True), masks.causal(S)) == ()
    (found,) = findings(Tiny([CAUSAL], INDEX, sinks=False), masks.causal(S))
    assert (found.kind, found.names) == ("sinks", ("sinks",))


def reporting(which):
    """Gives a model the loss that a mistake makes."""

    def wrap(model, args):
        def run(ids):
            logits = model(ids)
            losses = dict(reversed(list(loss_mistakes(logits.detach().numpy(), ids.numpy(), DOCUMENTS, RING))))
            return logits, None, losses[which]

        run.embedding = model.embedding
        return run

    return wrap


LOSSES = list(dict.fromkeys(name for name, _ in loss_mistakes(np.zeros((S, VOCAB)), np.zeros(S, int), DOCUMENTS, RING)))


@pytest.mark.parametrize("which", LOSSES)
def test_a_wrong_loss_is_named(which):
    found = findings(Tiny([PACKED.dense()], restarting(PACKED)), PACKED, owner=RING, wrap=reporting(which))
    if which == EXPECTED:
        assert found == ()
    else:
        assert [(finding.kind, finding.causes) for finding in found] == [("loss", (which,))]


def test_the_expected_loss_is_that_of_torch():
    logits, ids = torch.randn(S, VOCAB, dtype=torch.float64), torch.randint(VOCAB, (S,))
    labels = ids.roll(-1)
    labels[np.cumsum(DOCUMENTS) - 1] = -100
    expected = next(iter(loss_mistakes(logits.numpy(), ids.numpy(), DOCUMENTS, RING)))
    assert expected == (EXPECTED, pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-12))
