"""How even magi's shares are, what they cost in bytes, and how long the plan takes: `python benchmarks/magi_balance.py`.

Three tables, all from the plan alone (nothing is run):
  even    the heaviest rank's work over the mean, the worst of all seeds, with the bound where a mask makes 1.05 impossible
  curve   keys sent over those of an all-gather, as more imbalance is allowed, beside zigzag and contiguous shards
  plan    milliseconds for shares, needs and rounds at 1M tokens on 64 ranks, and for the routes by relays between nodes of 8, which take
          the place of the rounds (processor time, the least of three)
Exit code 1 where a share is over both 1.05 and the bound.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from longca import masks
from longca.masks import Mask
from longca.parallel import sharding
from longca.parallel.balance import SLACK, balanced, least_imbalance, row_work
from longca.parallel.options import STAGES
from longca.parallel.primitives.group_cast import JOIN_BYTES
from longca.parallel.ranges import Shards
from longca.parallel.routes import routes
from longca.parallel.transfers import Needs, rounds

MOST = 1.05
PER_NODE = 8
KEY_BYTES = 2 * 8 * 128 * 2  # of k and v: 8 heads of 128 in bf16
SLACKS = (0.0, 0.01, SLACK, 0.05, 0.1, 0.2, 0.5, 1.0)


def imbalance(work: np.ndarray, shards: Shards) -> float:
    each = [int((work[shard[:, 1]] - work[shard[:, 0]]).sum()) for shard in shards]
    return max(each) * len(each) / max(1, sum(each))


def sent(mask: Mask, shards: Shards) -> float:
    """Keys that travel, over those of an all-gather."""
    sizes = Needs(mask, shards).sizes
    return float(sizes.sum() - np.trace(sizes)) / (mask.seqlen_q * (len(shards) - 1))


def even(ranks: list[int], seeds: range, tokens: int) -> int:
    over = 0
    print(f"even: heaviest rank over mean, {tokens} tokens per rank, the worst of seeds {seeds.start} to {seeds.stop - 1}")
    print(f"{'mask':24}" + "".join(f"{number:>8}" for number in ranks))
    for name in masks.names():
        line = f"{name:24}"
        for number in ranks:
            worst, bound = 0.0, 1.0
            for seed in seeds:
                mask = masks.build(name, tokens * number, seed=seed)
                work = row_work(mask)
                value = imbalance(work, balanced(mask, number))
                if value > worst:
                    worst, bound = value, least_imbalance(work, number)
            proved = worst > MOST and worst <= bound + 0.01
            over += worst > MOST and not proved
            line += f"{worst:8.3f}" + (f" (bound {bound:.3f})" if proved else "")
        print(line, flush=True)
    return over


def curve(ranks: int, seed: int, tokens: int) -> None:
    print(f"\ncurve: heaviest rank over mean / keys sent over an all-gather's; {ranks} ranks, {tokens} tokens per rank, seed {seed}")
    print(f"{'mask':24}" + "".join(f"{f'slack {slack:g}':>14}" for slack in SLACKS) + f"{'zigzag':>14}{'contiguous':>14}")
    for name in masks.names():
        mask = masks.build(name, tokens * ranks, seed=seed)
        work = row_work(mask)
        choices = [balanced(mask, ranks, slack) for slack in SLACKS]
        choices += [sharding.zigzag(mask, ranks), sharding.contiguous(mask.seqlen_q, ranks)]
        print(f"{name:24}" + "".join(f"{imbalance(work, shards):8.3f}/{sent(mask, shards):.3f}" for shards in choices), flush=True)


def plan_times(ranks: int, tokens: int) -> None:
    print(f"\nplan: ms at {tokens} tokens on {ranks} ranks")
    print(f"{'mask':24}{'shares':>8}{'needs':>8}{'rounds':>8}{'all':>8}{'routes':>8}{'all':>8}{'number of rounds':>18}")
    for name in masks.names():
        mask, best = masks.build(name, tokens, seed=0), np.full(4, np.inf)
        for _ in range(3):
            times = [time.process_time()]
            shards = balanced(mask, ranks)
            times.append(time.process_time())
            needs = Needs(mask, shards)
            times.append(time.process_time())
            turns = rounds(needs.sizes)
            times.append(time.process_time())
            routes(needs, PER_NODE, STAGES.default or 1, JOIN_BYTES // KEY_BYTES)
            times.append(time.process_time())
            best = np.minimum(best, 1e3 * np.diff(times))
        to_needs, by_rounds, by_routes = best[:2].sum(), best[2], best[3]
        shown = [*best[:3], to_needs + by_rounds, by_routes, to_needs + by_routes]
        print(f"{name:24}" + "".join(f"{ms:8.1f}" for ms in shown) + f"{len(turns):18}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,16,32,64")
    parser.add_argument("--tokens", type=int, default=8192, help="per rank")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    ranks = [int(number) for number in args.ranks.split(",")]
    over = even(ranks, range(args.seeds), args.tokens)
    curve(ranks[0], 0, args.tokens)
    plan_times(64, 1 << 20)
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
