"""Fingerprints of the bits of tensors: they tell whether a tensor changed, and need no copy of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import torch

from longca.bench.check.own_memory import CHECK, memory_for
from longca.bench.check.pieces import in_pieces

WORDS = (torch.int64, torch.int32, torch.int16)


@dataclass
class Fingerprinted:
    """Tensors, and the fingerprints that they had when they were seen first."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    fingerprints: dict[str, torch.Tensor] = field(default_factory=dict)

    @staticmethod
    def of(tensors: dict[str, torch.Tensor]) -> Fingerprinted:
        return Fingerprinted(tensors, {name: fingerprint(tensor) for name, tensor in tensors.items()})

    def changed(self) -> list[str]:
        """The names of tensors that are no longer what they were."""
        return self.unlike(self.tensors)

    def unlike(self, tensors: dict[str, torch.Tensor]) -> list[str]:
        """The names of given tensors that are not what those of this name were; also of those that are missing here or there."""
        return [name for name in self.tensors | tensors if not self._was(name, tensors.get(name))]

    def _was(self, name: str, tensor: torch.Tensor | None) -> bool:
        own = self.tensors.get(name)
        if own is None or tensor is None or (own.shape, own.dtype, own.device) != (tensor.shape, tensor.dtype, tensor.device):
            return False
        return torch.equal(fingerprint(tensor), self.fingerprints[name])


@memory_for(CHECK)
def fingerprint(x: torch.Tensor) -> torch.Tensor:
    """Sums of the bits, weighted by token and by place in a token, [2]: changed values and swapped ones both show.

    It is enqueued on the current stream; the host does not wait for it.
    """
    words = _words(x)
    words = words[(..., *(None,) * (3 - words.dim()))]  # lse, sinks
    of_tokens, of_places = in_pieces(_sums, words)
    sums = of_tokens, of_places.sum(0).flatten()
    return torch.stack([(part * (2 * torch.arange(len(part), device=part.device) + 1)).sum() for part in sums])


def _sums(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of each token and of each place. High bits are mixed into low ones first: where many numbers change only there, in their sign
    or by a power of two, the sums would overflow to what they were."""
    mixed = (words >> (4 * words.element_size() - 3)).bitwise_xor_(words)
    return mixed.sum((1, 2), dtype=torch.int64), mixed.sum(0, dtype=torch.int64)[None]


def _words(x: torch.Tensor) -> torch.Tensor:
    """The bits as integers, which are equal also where values are NaN, and differ for 0 and -0. The wider they are, the fewer have to be
    summed up, and sums of 64-bit words need no conversion."""
    for word in WORDS:
        with suppress(RuntimeError):  # its last dimension is too short for such a word, or not contiguous
            if word.itemsize >= x.element_size():
                return x.detach().view(word)
    raise TypeError(f"there is no fingerprint of {x.dtype}")
