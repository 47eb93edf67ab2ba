"""Draws the documents behind the published figures of H100 clusters, and prints the table [documents] of published_h100.toml.

    PYTHONPATH=src python benchmarks/published_documents.py

How they were drawn is public (MagiAttention's repository, exps/dist_attn: benchmark_conf.py, benchmark/utils.py and the file of document
lengths): all documents of a data set, each as long as the middle of its bin; those longer than a quarter of the sequence are cut into
quarters; everything is shuffled (numpy's generator, seed 42) and laid end to end into packs as long as the sequence, documents are cut
where a pack ends, and the packs are shuffled. The published speed of a mask with documents is the mean over the first 20 packs.
"""

from __future__ import annotations

import numpy as np

BINS = (  # shortest, longest, documents
    (0, 10, 30254), (11, 50, 391188), (51, 100, 699596), (101, 200, 1377757), (201, 500, 3794735), (501, 1024, 3316785),
    (1025, 2048, 2106566), (2049, 4096, 988525), (4097, 8192, 410002), (8193, 16384, 173574), (16385, 32768, 115007),
    (32769, 65536, 18428), (65537, 131072, 22513), (131073, 196608, 18284),
)  # fmt: skip
SEED, PACKS = 42, 20
GPUS, TOKENS_PER_GPU = (8, 16, 32, 64), 8192


def packs(seqlen: int) -> list[list[int]]:
    """The lengths of the documents in each of the first packs."""
    generator = np.random.default_rng(SEED)
    length = np.array([(shortest + longest) // 2 for shortest, longest, _ in BINS])
    number, quarter = np.array([documents for _, _, documents in BINS]), seqlen // 4
    whole, rest = np.divmod(length, quarter)
    pieces = np.concatenate([np.full(int((whole * number).sum()), quarter), np.repeat(rest[rest > 0], number[rest > 0])]).astype(np.int32)
    generator.shuffle(pieces)
    edges = np.append(0, np.cumsum(pieces, dtype=np.int64))
    order = list(range(int(edges[-1]) // seqlen))
    generator.shuffle(order)
    drawn = []
    for place in order[:PACKS]:
        start, end = place * seqlen, (place + 1) * seqlen
        inside = edges[(edges > start) & (edges < end)]
        drawn.append(np.diff([start, *inside, end]).tolist())
    return drawn


def main() -> None:
    print("[documents]  # lengths in each pack, by GPUs; made by benchmarks/published_documents.py")
    for gpus in GPUS:
        print(f"{gpus} = [")
        for pack in packs(gpus * TOKENS_PER_GPU):
            print(f"    {pack},")
        print("]")


if __name__ == "__main__":
    main()
