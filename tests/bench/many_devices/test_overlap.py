"""How far compute hides transfers, from the spans of a profiler, and the file for Perfetto."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.many_devices.conftest import records_of
from longca.bench.many_devices.overlap import Span, shares_of, write
from longca.bench.many_devices.rank_job import RankSession
from longca.cli import main
from longca.parallel.comm.null import NullComm

spans = st.lists(
    st.tuples(st.booleans(), st.integers(0, 50), st.integers(1, 20)).map(
        lambda made: Span("ncclDevKernel_SendRecv" if made[0] else "gemm", "stream 7", float(made[1]), float(made[1] + made[2]))
    ),
    min_size=1,
)


@given(st.lists(spans, min_size=1, max_size=3))
def test_shares_count_each_moment_once(ranks: list[list[Span]]) -> None:
    """Compared with a count of the microseconds in which something runs."""
    found = shares_of(ranks)
    wanted = []
    for own in ranks:
        moments = [[span.is_transfer for span in own if span.start <= t < span.end] for t in range(int(max(span.end for span in own)))]
        compute = sum(False in at for at in moments)
        exposed, transfers = sum(at != [] and all(at) for at in moments), sum(True in at for at in moments)
        hidden = (transfers - exposed) / transfers if transfers else 0.0
        wanted.append((compute / len(moments), exposed / len(moments), hidden))
    means = [sum(each) / len(ranks) for each in zip(*wanted, strict=True)]
    assert [*found.values()] == pytest.approx(means)


def test_a_file_for_perfetto_has_a_row_for_each_stream_of_each_rank(tmp_path: Path) -> None:
    own = [Span("gemm", "stream 7", 0, 5), Span("ncclDevKernel", "stream 20", 1, 3), Span("gemm", "stream 7", 6, 7)]
    path = write([own, own[:1]], "usp 2x2: causal", tmp_path / "new")
    events = json.loads(path.read_text())["traceEvents"]
    rows = {(entry["pid"], entry["tid"]): entry["args"]["name"] for entry in events if entry["name"] == "thread_name"}
    drawn = [(rows[entry["pid"], entry["tid"]], entry["cat"], entry["ts"], entry["dur"]) for entry in events if entry["ph"] == "X"]
    first = [("stream 7", "compute", 0, 5), ("stream 20", "transfer", 1, 2), ("stream 7", "compute", 6, 1)]
    assert drawn == [*first, first[0]]
    assert len(rows) == 3


def test_ranks_begin_a_traced_call_together_once_their_profilers_run() -> None:
    met = []

    class Meeting(NullComm):
        def barrier(self) -> None:
            met.append(torch.autograd._profiler_enabled())

    session = RankSession(Meeting(0, 1))
    work = SimpleNamespace(keep=lambda _: None, release=lambda: None, of=lambda _: lambda: torch.ones(4) + 1)
    session._current = SimpleNamespace(calls=work)  # type: ignore[assignment]
    assert session.trace("fwd")
    assert met == [True]


@pytest.mark.slow
def test_a_run_traces_its_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = "--masks causal --seqlens 64 --heads 4:2 --head-dim 16 --dtype fp32 --device cpu --budget 0.02 --passes fwd --nproc 2"
    traces = tmp_path / "traces"
    assert main(["run", "--methods", "ring_p2p", *shape.split(), "--out", str(tmp_path / "out"), "--trace", str(traces)]) == 0
    over = records_of(tmp_path / "out")["ring_p2p", "fwd"].over_ranks
    assert over.compute_share > 0
    assert over.compute_share + over.exposed_share <= 1
    assert 0 <= over.hidden_share <= 1
    (path,) = traces.iterdir()
    events = json.loads(path.read_text())["traceEvents"]
    assert {(entry["pid"], entry["cat"]) for entry in events if entry["ph"] == "X"} == {
        (r, c) for r in (0, 1) for c in ("compute", "transfer")
    }
    assert "transfers that nothing hides" in capsys.readouterr().out
