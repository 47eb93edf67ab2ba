"""The rule of streams, on programs of a few events whose times are worked out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from longca import masks
from longca.errors import LongcaError
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.comm.trace import Event
from longca.results.metrics import flops
from longca.results.problem import Pass
from longca.simulate.cluster import Algorithm, Cluster, Compute, Links, Operations
from longca.simulate.predict import predict
from longca.simulate.programs import Programs, sent
from longca.simulate.replay import replay
from parallel.running import STATIC

GB = 10**9
# 1 GB/s of memory, 1 GB/s inside a node, .5 between nodes; nodes of two ranks; nothing else costs anything
PLAIN = Cluster(
    about="for tests",
    device="none",
    memory_gib=1,
    per_node=2,
    compute=Compute(forward_tflops=1, backward_tflops=1, memory_gb_s=1, host_us=0),
    inside=Links(gb_s=1),
    between=Links(gb_s=0.5),
)


def work(seconds: float, calls: int = 1) -> Event:
    return Event("memory", bytes=int(seconds * GB), calls=calls)


def post(
    number: int, to: int, source: int, size: float, channel: str = "a", what: str = "exchange", members: tuple[int, ...] = ()
) -> Event:
    sends, receives = (((peer, int(size * GB)),) if peer >= 0 else () for peer in (to, source))
    return Event("post", number, int(size * GB), 1, what, channel, members, sends, receives)


def wait(number: int) -> Event:
    return Event("wait", number)


def ends(*ranks: list[Event], cluster: Cluster = PLAIN) -> list[float]:
    return [times.end for times in replay(ranks, cluster)]


def test_a_transfer_runs_beside_compute_and_a_wait_holds_the_stream() -> None:
    rank = [[post(1, 1 - me, 1 - me, 2.0), work(1.5), wait(1), work(1.0)] for me in (0, 1)]
    times = replay(rank, PLAIN)
    assert [time.end for time in times] == pytest.approx([3.0, 3.0])
    assert times[0].exposed == pytest.approx(0.5)
    assert times[0].late == 0


def test_a_post_starts_when_the_compute_before_it_is_done_and_the_other_end_has_come() -> None:
    fast, slow = [post(1, 1, -1, 1.0), wait(1)], [work(3.0), post(1, -1, 0, 1.0), wait(1)]
    times = replay([fast, slow], PLAIN)
    assert [time.end for time in times] == pytest.approx([4.0, 4.0])
    assert (times[0].late, times[0].exposed) == pytest.approx((3.0, 1.0))


def test_what_is_done_beside_attention_neither_waits_for_it_nor_holds_it() -> None:
    """Rank 0 sends to rank 1, which passes on to rank 2 while it computes for 10 s; that rank is in another node."""
    ranks = [
        [post(1, 1, -1, 1.0), wait(1)],
        [
            post(1, -1, 0, 1.0),
            *(replace(event, beside=True) for event in (wait(1), work(0.5), post(2, 2, -1, 1.0, "b"))),
            work(10.0),
            wait(2),
            work(1.0),
        ],
        [post(2, -1, 1, 1.0, "b"), wait(2)],
    ]
    assert ends(*ranks) == pytest.approx([1.0, 11.0, 3.5])  # 1 s inside the node, a copy, 2 s between nodes
    on_gloo = replace(PLAIN, wait_holds_host=True)  # there is no second stream
    assert ends(*ranks, cluster=on_gloo) == pytest.approx([1.0, 12.5, 3.5])


def test_posts_on_one_channel_follow_one_another_and_channels_share_the_link() -> None:
    def rank(me: int, channels: str) -> list[Event]:
        return [post(n, 1 - me, 1 - me, 1.0, channel) for n, channel in enumerate(channels)] + [wait(0), work(0.25), wait(1)]

    one = replay([rank(0, "aa"), rank(1, "aa")], PLAIN)
    two = replay([rank(0, "ab"), rank(1, "ab")], PLAIN)
    assert one[0].end == pytest.approx(2.0)  # the first after 1 s, the second after 2
    assert one[0].exposed == pytest.approx(1.75)
    assert two[0].end == pytest.approx(2.25)  # both after 2 s, at half the speed each
    assert two[0].exposed == pytest.approx(2.0)


def test_posts_of_both_streams_on_one_channel_keep_the_order_in_which_the_host_issued_them() -> None:
    """As with NCCL: what the second stream sends after 5 s comes before what the first stream could have sent at once."""
    sender = [*(replace(event, beside=True) for event in (work(5.0), post(1, 1, -1, 1.0), wait(1))), post(2, 1, -1, 2.0), wait(2)]
    receiver = [post(1, -1, 0, 1.0), wait(1), post(2, -1, 0, 2.0), wait(2)]
    times = replay([sender, receiver], PLAIN, watched=(1,))
    assert [time.end for time in times] == pytest.approx([8.0, 8.0])
    assert [span.end for span in times[1].spans if span.kind == "transfer"] == pytest.approx([6.0, 8.0])


def test_links_between_nodes_are_slower_and_each_rank_has_its_own() -> None:
    inside = [[post(1, 1, 1, 1.0), wait(1)], [post(1, 0, 0, 1.0), wait(1)]]
    assert ends(*inside) == pytest.approx([1.0, 1.0])
    across = [[post(1, (me + 2) % 4, (me + 2) % 4, 1.0), wait(1)] for me in range(4)]
    assert ends(*across) == pytest.approx([2.0] * 4)


def test_latency_comes_before_the_bytes() -> None:
    slow = replace(PLAIN, inside=Links(gb_s=1, latency_us=250_000))
    assert ends([post(1, 1, -1, 1.0), wait(1)], [post(1, -1, 0, 1.0), wait(1)], cluster=slow) == pytest.approx([1.25, 1.25])


def test_the_host_pays_for_every_event_and_runs_ahead() -> None:
    """Short operations take as long as the host needs to issue them; a long one hides the host."""
    hosted = replace(PLAIN, compute=replace(PLAIN.compute, host_us=100_000))
    assert ends([work(0.01, calls=5)], cluster=hosted) == pytest.approx([0.5])
    assert ends([work(2.0), work(0.1), work(0.1)], cluster=hosted) == pytest.approx([2.3])


def test_a_wait_holds_the_host_of_gloo_only() -> None:
    hosted = replace(PLAIN, compute=replace(PLAIN.compute, host_us=100_000))
    ranks = [[post(1, 1 - me, 1 - me, 1.0), wait(1), work(0.0, calls=5)] for me in (0, 1)]
    assert ends(*ranks, cluster=hosted) == pytest.approx([1.1, 1.1])  # five operations were issued while bytes were under way
    assert ends(*ranks, cluster=replace(hosted, wait_holds_host=True)) == pytest.approx([1.6, 1.6])


def test_a_ring_collective_sends_everything_through_every_link_once() -> None:
    """Four ranks of two nodes, 1 GB each: 3 GB over each link, over both adapters of a node at once; direct, 2 of 3 parts cross nodes."""

    def rank(me: int) -> list[Event]:
        peers = tuple((peer, GB) for peer in range(4) if peer != me)
        return [Event("post", 1, 3 * GB, 3, "all_gather", "a", (0, 1, 2, 3), peers, peers), wait(1)]

    ranks = [rank(me) for me in range(4)]
    assert ends(*ranks) == pytest.approx([3.0] * 4)
    direct = replace(PLAIN, operations=Operations(all_gather=Algorithm.DIRECT))
    assert ends(*ranks, cluster=direct) == pytest.approx([4.0] * 4)


def test_slow_ranks_and_shared_cores() -> None:
    assert ends([work(1.0)], [work(1.0)], cluster=replace(PLAIN, slow={"1": 1.5})) == pytest.approx([1.0, 1.5])
    shared = replace(PLAIN, cores=1.0, wait_holds_host=True)
    assert ends([work(1.0)], [work(2.0)], cluster=shared) == pytest.approx([2.0, 3.0])


def test_programs_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(LongcaError, match="rank 0 waits for exchange"):
        replay([[post(1, 1, -1, 1.0), wait(1)], []], PLAIN)


@pytest.mark.parametrize("method", STATIC)
def test_every_method_takes_at_least_its_work_and_its_bytes(method: str) -> None:
    """Bounds that hold for any schedule: the slowest rank's tiles, and the bytes of the busiest link."""
    mask = masks.build("causal_document", 4096, seed=1)
    case = Case(4096, 4096, 8, 4, 64, 64, "bf16", "cuda")
    programs = Programs.of(registry.plan(method, mask, case, 4, kernel="fa4"))
    for pass_ in (Pass.FWD, Pass.BWD, Pass.BOTH):
        found = predict(programs, PLAIN, pass_)
        assert found.ms * 1e-3 >= flops(mask, case, pass_) / 4 / 1e12
        assert found.ms * 1e-3 >= max(map(sent, programs.events(pass_))) / 1.5e9
        shares = found.compute_share + found.exposed_share + found.late_share + found.host_share
        assert shares == pytest.approx(1.0, abs=1e-6)
    assert predict(programs, PLAIN, Pass.BOTH).ms <= (predict(programs, PLAIN, Pass.FWD).ms + predict(programs, PLAIN, Pass.BWD).ms) * 1.05
