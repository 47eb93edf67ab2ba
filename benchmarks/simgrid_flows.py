"""Replays recordings in LongCA's simulator and in SimGrid (model CM02, factors 1), and prints both times.

SimGrid is no dependency: `apt-get install libsimgrid-dev`, then
g++ -O1 -std=c++17 -o simgrid_flows benchmarks/simgrid_flows.cpp -lsimgrid && python benchmarks/simgrid_flows.py ./simgrid_flows
Exit code 1 where a time differs by more than 5 %.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from longca import masks
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.comm.trace import Event
from longca.results.problem import Pass
from longca.simulate.cluster import Algorithm, Cluster, Operations, find
from longca.simulate.costs import attention_s, memory_s
from longca.simulate.programs import Programs
from longca.simulate.replay import replay

FLAGS = [
    "--cfg=network/model:CM02", "--cfg=network/bandwidth-factor:1", "--cfg=network/latency-factor:1", "--cfg=network/weight-S:0",
    "--cfg=network/TCP-gamma:1e15", "--cfg=network/crosstraffic:0", "--log=root.thresh:error",
]  # fmt: skip
MASKS = (("causal_document", 16), ("full", 8))
PROBLEMS = [(method, *chosen) for method in ("ulysses", "ring_p2p", "ring_allgather", "usp", "magi") for chosen in MASKS]
PROBLEMS += [("magi", "full", 16), ("magi", "full_document", 32)]  # relays between two and four nodes
PROBLEMS += [("magi", "causal_document", 64), ("ulysses", "causal_document", 64)]
PROBLEMS += [("magi", "causal_document", 128), ("ring_allgather", "causal_document", 96)]  # of more flows than are kept one by one
LIMIT = 0.05


def lines(programs: Sequence[Sequence[Event]], cluster: Cluster) -> Iterator[str]:
    """The file that the C++ program reads. A path has its latency on its first link."""
    ranks = len(programs)
    for rank in range(ranks):
        for kind, links in (("inside", cluster.inside), ("between", cluster.between)):
            yield f"link {kind}-out-{rank} {links.bytes_s} {links.latency_us * 1e-6}"
            yield f"link {kind}-in-{rank} {links.bytes_s} 0"
    for sender in range(ranks):
        for receiver in range(ranks):
            if sender != receiver:
                kind = "inside" if cluster.node(sender) == cluster.node(receiver) else "between"
                yield f"route {sender} {receiver} {kind}-out-{sender} {kind}-in-{receiver}"
    channels: dict[str, int] = {}
    for rank, events in enumerate(programs):
        yield f"rank {rank}"
        for event in events:
            stream = "beside " if event.beside else ""
            if event.kind == "wait":
                yield f"{stream}wait {event.number}"
            elif event.kind == "post":
                sides = [_side(messages) for messages in (event.sends, event.receives)]
                yield f"{stream}post {event.number} {channels.setdefault(event.channel, len(channels))} {' '.join(sides)}"
            elif event.call is not None:
                yield f"{stream}compute {attention_s(event.call, cluster.compute)}"
            else:
                yield f"{stream}compute {memory_s(event.bytes, event.calls, cluster.compute)}"


def _side(messages: Sequence[tuple[int, int]]) -> str:
    sizes: dict[int, int] = {}
    for peer, size in messages:
        sizes[peer] = sizes.get(peer, 0) + size
    return " ".join([str(len(sizes)), *(f"{peer} {size}" for peer, size in sizes.items())])


def in_simgrid(binary: str, programs: Sequence[Sequence[Event]], cluster: Cluster) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines(programs, cluster)) + "\n")
        file.flush()
        done = subprocess.run([binary, file.name, *FLAGS], capture_output=True, text=True, check=True)
    return max(float(line.split()[1]) for line in done.stdout.splitlines())


def main(binary: str) -> int:
    _, h100 = find("h100-ib")
    direct = Operations(all_gather=Algorithm.DIRECT, reduce_scatter=Algorithm.DIRECT)
    cluster = replace(h100, operations=direct, compute=replace(h100.compute, host_us=0.0))
    worst = 0.0
    for method, name, ranks in PROBLEMS:
        drawn = {"distribution": "prolong64k"} if "document" in name else {}  # short documents: transfers take most of the time
        mask = masks.build(name, ranks * 8192, seed=42, **drawn)
        case = Case(mask.seqlen_q, mask.seqlen_k, 64, 8, 128, 128, "bf16", "cuda")
        options = registry.get(method).default_options(case.group, ranks, cluster.per_node)
        programs = Programs.of(registry.plan(method, mask, case, ranks, kernel="fa4", options=options))
        for pass_ in (Pass.FWD, Pass.BWD):
            events = programs.events(pass_)
            ours, theirs = max(times.end for times in replay(events, cluster)), in_simgrid(binary, events, cluster)
            worst = max(worst, abs(ours / theirs - 1))
            relayed = " by relays" if any(event.beside for rank in events for event in rank) else ""
            times = f"{ours * 1e3:8.3f} ms, SimGrid {theirs * 1e3:8.3f}: {ours / theirs - 1:+.2%}"
            print(f"{method:14} {name:16} {ranks:3} ranks {pass_.value}: {times}{relayed}", flush=True)
    print(f"largest difference {worst:.2%}; the limit is {LIMIT:.0%}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve())))
