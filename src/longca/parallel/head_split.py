"""Which heads each of U ranks computes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from longca.errors import Refused
from longca.kernels.base import Case


def _even(first: int, last: int, parts: int) -> list[tuple[int, int]]:
    """[first, last) in parts whose sizes differ by at most one."""
    size, longer = divmod(last - first, parts)
    edges = [first + part * size + min(part, longer) for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


@dataclass(frozen=True)
class HeadSplit:
    """Ranges of query and KV heads per rank. Where there are fewer KV heads than ranks, several ranks have the same KV head."""

    queries: tuple[tuple[int, int], ...]
    keys: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, case: Case, ranks: int) -> HeadSplit:
        if ranks > case.heads_q:
            raise Refused(f"{ranks} ranks cannot share {case.heads_q} query heads; split heads over {case.heads_q} ranks at most.")
        if case.heads_kv >= ranks:
            keys = _even(0, case.heads_kv, ranks)
            return cls(tuple((first * case.group, last * case.group) for first, last in keys), tuple(keys))
        queries, shared = [], []
        for head, (first, last) in enumerate(_even(0, ranks, case.heads_kv)):
            queries += _even(head * case.group, (head + 1) * case.group, last - first)
            shared += [(head, head + 1)] * (last - first)
        return cls(tuple(queries), tuple(shared))

    def case(self, case: Case, rank: int) -> Case:
        """The case as that rank computes it."""
        (q0, q1), (k0, k1) = self.queries[rank], self.keys[rank]
        return replace(case, heads_q=q1 - q0, heads_kv=k1 - k0, scale=case.softmax_scale)
