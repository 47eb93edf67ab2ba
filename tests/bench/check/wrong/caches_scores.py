"""Keeps the scores of q and k that it saw in this memory, as long as their versions tell of no change."""

import torch
from honest import Honest, HonestKernel


class Caches(Honest):
    known = None

    def forward(self, q, k, v):
        seen = [(x.data_ptr(), x._version) for x in (q, k)]
        if self.known is None or self.known[0] != seen:
            self.known = seen, self.scores(q, k), q, k
        scores = self.known[1]
        out = torch.softmax(scores, -1).nan_to_num() @ self.wide(v)
        return out.transpose(0, 1).to(q.dtype).contiguous(), scores.logsumexp(-1)


class CachesScores(HonestKernel):
    name, attention = "caches_scores", Caches
