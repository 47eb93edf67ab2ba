"""What a mask lets each output depend on, which tokens are worth changing, and other masks that a mistake would turn it into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from longca.masks import Mask

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
MOST_LAYERS = 4  # of which each is suspected alone


@dataclass(frozen=True)
class Setting:
    """A probed model: the mask of each layer as [S, S] bools, its documents, and the rank that holds each token."""

    layers: tuple[Bools, ...]
    documents: tuple[int, ...]
    owner: Ints

    @property
    def seqlen(self) -> int:
        return len(self.owner)

    @property
    def ranks(self) -> int:
        return int(self.owner.max()) + 1


def reach(layers: Sequence[Bools]) -> Bools:
    """[i, j]: whether the output of i can depend on token j after these layers, each with a residual connection."""
    own = np.eye(len(layers[0]), dtype=bool)

    def above(below: Bools, layer: Bools) -> Bools:
        reached: Bools = (layer | own).astype(np.float32) @ below.astype(np.float32) > 0
        return reached

    return reduce(above, layers, own)


def through(layers: Sequence[Bools]) -> Bools:
    """[i, j]: whether the output of i depends on token j by one hop in each layer; so it does also without residual connections."""
    return reduce(lambda below, layer: layer.astype(np.float32) @ below.astype(np.float32) > 0, layers)


def direct(layers: Sequence[Bools]) -> Bools:
    """[i, j]: whether some layer shows token j to i."""
    shown: Bools = np.any(np.stack(layers), axis=0)
    return shown


def probed_tokens(masks: Sequence[Mask], owner: Ints, most: int) -> list[int]:
    """Tokens at the ends of documents, bands and ranks, then tokens spread evenly over the rest."""
    seqlen = len(owner)
    ends = [0, seqlen - 1]
    ends += [token + side for token in np.flatnonzero(np.diff(owner)).tolist() for side in (0, 1)]
    for mask in masks:
        starts = np.cumsum([0, *(mask.documents or ())])[:-1]
        ends += [int(start) + side for start in starts for side in (-1, 0)]
        ends += [int(edge) for q0, q1, lo, _, hi, _ in mask.table for edge in (lo, hi - 1, q0, q1 - 1)]
    chosen = list(dict.fromkeys(token for token in ends if 0 <= token < seqlen))
    if len(chosen) > most * 2 // 3:
        chosen = [chosen[place] for place in np.linspace(0, len(chosen) - 1, most * 2 // 3).astype(int)]
    spread = np.linspace(0, seqlen - 1, most).astype(int).tolist()
    return sorted(list(dict.fromkeys([*chosen, *spread]))[:most])


def mistakes_of_one_layer(setting: Setting) -> Iterator[tuple[str, list[Bools]]]:
    """The same mistakes in one layer alone, of a model with several."""
    layers = list(setting.layers)
    for name, wrong in mistakes(setting) if 1 < len(layers) <= MOST_LAYERS else ():
        for number in range(len(layers)):
            yield f"in layer {number} alone, {name}", [*layers[:number], wrong[number], *layers[number + 1 :]]


def mistakes(setting: Setting) -> Iterator[tuple[str, list[Bools]]]:
    """Names of mistakes, with the masks of the layers that each would cause; the most specific first."""
    layers, owner, seqlen = setting.layers, setting.owner, setting.seqlen
    index = np.arange(seqlen)
    causal = index[:, None] >= index
    document = np.repeat(np.arange(len(setting.documents)), setting.documents) if setting.documents else np.zeros(seqlen, int)
    same_document, same_rank = document[:, None] == document, owner[:, None] == owner
    if len(layers) > 1:
        for number, layer in enumerate(layers):
            yield f"every layer has the mask of layer {number}", [layer] * len(layers)
    windows, distance = [_window(layer, document) for layer in layers], index[:, None] - index
    if any(windows):
        wider = [
            layer | ((distance == window + 1) & same_document) if window else layer for layer, window in zip(layers, windows, strict=True)
        ]
        yield "each row sees one key more at the start of its window", wider
        narrower = [layer & (distance != window) if window else layer for layer, window in zip(layers, windows, strict=True)]
        yield "each row misses the first key of its window", narrower
    yield "each row sees one key after its own", [layer | ((index[:, None] + 1 == index) & same_document) for layer in layers]
    if setting.ranks > 1:
        yield "each rank sees only its own keys", [layer & same_rank for layer in layers]
        for step in range(1, setting.ranks if setting.ranks > 2 else 1):
            away = (owner[:, None] - owner) % setting.ranks == step
            yield f"keys of the rank {step} before a row's own are not seen", [layer & ~away for layer in layers]
        local = _places(owner)
        yield "causality compares tokens by their place on their rank", [local[:, None] >= local] * len(layers)
        yield "causality compares tokens by their place on their rank", [(local[:, None] >= local) & same_document] * len(layers)
        order = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        yield (
            "the mask is applied to the tokens in the order of ranks, not of the sequence",
            [layer[np.ix_(order, order)] for layer in layers],
        )
        yield "the mask holds on each rank; keys of other ranks are all seen", [layer | ~same_rank for layer in layers]
        earlier = owner[:, None] > owner
        yield "the mask holds on each rank; keys of earlier ranks are all seen", [(layer & same_rank) | earlier for layer in layers]
    hidden = ~direct(layers).any(0)
    if hidden.any():
        yield "padding is seen", [layer | (hidden & causal) for layer in layers]
        yield "padding is seen", [layer | hidden for layer in layers]
    if len(setting.documents) > 1:
        moved = {"one token late": np.append(document[:1], document[:-1]), "one token early": np.append(document[1:], document[-1:])}
        for name, shifted in moved.items():
            together = shifted[:, None] == shifted
            yield f"documents begin {name}", [_rebuilt(layer, causal) & together for layer in layers]
        yield (
            "documents are merged",
            [(distance <= (window or seqlen)) & _rebuilt(layer, causal) for layer, window in zip(layers, windows, strict=True)],
        )
    if any(windows):
        yield "the window is ignored", [_rebuilt(layer, causal) & same_document for layer in layers]
    yield "the mask is causal, and its other rules are ignored", [causal] * len(layers)
    yield "later tokens are seen: the mask is not causal", [(layer | layer.T) for layer in layers]
    yield "rows and keys of the mask are exchanged", [layer.T for layer in layers]
    yield "the mask is ignored: every token sees every token", [np.ones_like(causal)] * len(layers)
    yield "tokens do not see each other", [np.eye(seqlen, dtype=bool)] * len(layers)


def _rebuilt(layer: Bools, causal: Bools) -> Bools:
    """All keys before a row, or all keys if the mask shows later ones."""
    return causal if not (layer & ~causal).any() else np.ones_like(causal)


def _window(layer: Bools, document: Ints) -> int:
    """How far back the rows see that do not see the beginning of their document; 0 if there are none."""
    first = layer.argmax(1)
    windowed = layer.any(1) & (first > np.searchsorted(document, document))
    return int((np.arange(len(layer)) - first)[windowed].max(initial=0))


def _places(owner: Ints) -> Ints:
    """The place of each token among those of its rank."""
    places = np.zeros_like(owner)
    for rank in np.unique(owner):
        places[owner == rank] = np.arange(np.sum(owner == rank))
    return places
