"""Constants come back from times that were made with them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from journals import mask_line, writer
from longca import masks
from longca.bench.many_devices.transfers import TransferTime
from longca.errors import BadInput
from longca.parallel.cuts import tiles_touched
from longca.simulate.calibrate import calibrate, fit_links, read_transfers
from longca.simulate.cluster import Links, find
from report.made import around, kernel

H200 = Path(__file__).parents[2] / "results" / "h200" / "paper-kernel"


def write(path: Path, nodes: int, latency: float, bandwidth: float) -> None:
    sizes = [1 << shift for shift in range(10, 28, 2)]
    common = {"ranks": 8, "nodes": nodes, "backend": "nccl", "device": "cuda"}
    lines = []
    for size in sizes:
        seconds = latency + size / bandwidth
        lines.append(json.dumps({**common, "op": "p2p", "bytes": size, "seconds": [seconds, 9 * seconds, 0.9 * seconds]}))
        lines.append(json.dumps({**common, "op": "all_to_all", "bytes": size, "seconds": [7 * seconds]}))  # seven at once: not a link
    with path.open("a") as file:
        file.write("\n".join(lines) + "\n")


def test_links_come_from_transfers(tmp_path: Path) -> None:
    write(tmp_path / "transfers.jsonl", 1, 12e-6, 280e9)
    write(tmp_path / "transfers.jsonl", 2, 25e-6, 44e9)
    cluster, fits = calibrate(tmp_path, find("h100-ib")[1])
    assert cluster.inside == Links(gb_s=280.0, efficiency=1.0, latency_us=12.0)
    assert cluster.between == Links(gb_s=44.0, efficiency=1.0, latency_us=25.0)
    assert all(fit.error < 1e-6 and fit.measurements == 9 for fit in fits)
    assert cluster.compute == find("h100-ib")[1].compute


def test_compute_comes_from_records_of_kernels() -> None:
    cluster, fits = calibrate(H200, find("h200-ib")[1])
    error = {fit.name: fit.error for fit in fits}
    assert 500 < cluster.compute.forward_tflops < 700
    assert 550 < cluster.compute.backward_tflops < 700
    assert 1000 < cluster.compute.memory_gb_s < 4800
    assert error["compute.forward_tflops"] < 0.10
    assert error["compute.backward_tflops"] < 0.05  # by tiles, rows and heads; by area alone it is over 20 %


def test_compute_of_ranks_that_share_a_gpu_comes_from_calls_of_all_at_once(tmp_path: Path) -> None:
    """Eight ranks with documents of their own, at 80 TFLOP/s each; other records are of a whole GPU, or have transfers."""
    records, entries = [], []
    for length in (512, 1024, 2048, 4096):
        mask = masks.causal_document(65536, documents=[length] * (65536 // length))
        entries.append(mask)
        tiles = tiles_touched(masks.causal(length)) * (8192 // length)  # of a rank
        ms = 4 * tiles * 128 * 128 * 64 * 128 / 80e12 * 1e3
        place = dict(mask="causal_document", mask_digest=mask.digest, seqlen=65536, area=mask.area, ranks=8, level="cp")
        own = dict(imbalance=1.0, bytes_sent=[0] * 8, sharing={"ranks": 8})
        records.append(kernel("fa4:bands", around(ms), "fwd", method="hybrid_dcp", grid="1x8", **place, **own))
        records.append(
            kernel("fa4:bands", around(ms), "fwd", mask="causal_document", mask_digest=mask.digest, seqlen=65536, area=mask.area)
        )
        records.append(kernel("fa4:bands", around(9 * ms), "fwd", method="usp", grid="4x2", **place, **own | {"bytes_sent": [5] * 8}))
    folder = writer(tmp_path)("shared", records)
    (folder / "masks.jsonl").write_text("".join(map(mask_line, entries)))
    cluster, (fit,) = calibrate(folder, find("h200-ib")[1])
    assert (fit.name, fit.measurements) == ("compute.forward_tflops", 4)
    assert cluster.compute.forward_tflops == pytest.approx(80, rel=1e-3)


def test_times_that_do_not_tell_rows_and_tiles_apart_give_no_negative_speed(tmp_path: Path) -> None:
    """Backward times of a busy machine that grow no faster than the rows: with rows and tiles together, least squares make tiles take less
    than no time."""
    entries = [masks.causal(length) for length in (512, 1024, 2048, 4096)]
    place = {mask: dict(mask_digest=mask.digest, seqlen=mask.seqlen_q, area=mask.area) for mask in entries}
    records = [kernel("fa4:native", around(0.9 * mask.seqlen_q**0.8), "bwd", **place[mask]) for mask in entries]
    folder = writer(tmp_path)("busy", records)
    (folder / "masks.jsonl").write_text("".join(map(mask_line, entries)))
    cluster, fits = calibrate(folder, find("h100-ib")[1])
    assert [fit.name for fit in fits] == ["compute.backward_tflops"]
    assert cluster.compute.backward_tflops > 0
    assert cluster.device == "NVIDIA H200"  # of the records, not of the base


def test_nothing_to_calibrate_from(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"transfers\.jsonl"):
        calibrate(tmp_path, find("h100-ib")[1])
    with pytest.raises(BadInput, match="there is no folder"):
        calibrate(tmp_path / "none", find("h100-ib")[1])
    (tmp_path / "transfers.jsonl").write_text('{"op": "p2p"}\n')
    with pytest.raises(BadInput, match="line 1"):
        read_transfers(tmp_path / "transfers.jsonl")


def test_transfers_that_say_nothing_about_bandwidth() -> None:
    with pytest.raises(BadInput, match="measure larger ones"):
        fit_links("inside", [TransferTime("p2p", 2, 1, size, [1.0 / size], "gloo", "cpu") for size in (1, 2, 4, 8)])


def test_it_reads_what_verify_writes(tmp_path: Path) -> None:
    """Every field of the kit's lines, as `longca verify --level cp` encodes them."""
    lines = [TransferTime("p2p", 2, 1, 4**power, [1e-5 + 4**power / 1e9] * 7, "gloo", "cpu") for power in range(5, 12)]
    (tmp_path / "transfers.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    assert read_transfers(tmp_path / "transfers.jsonl") == lines
    assert calibrate(tmp_path, find("cpu-gloo")[1])[0].inside == Links(gb_s=1.0, efficiency=1.0, latency_us=10.0)
