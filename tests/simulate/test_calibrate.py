"""Constants come back from times that were made with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import longca
from journals import mask_line, writer
from longca import masks
from longca.bench.many_devices.transfers import TransferTime
from longca.errors import BadInput
from longca.masks import Mask
from longca.parallel.cuts import tiles_touched
from longca.simulate.calibrate import calibrate, fit_links, read_transfers
from longca.simulate.cluster import Links, find
from report.made import around, kernel

RESULTS = Path(__file__).parents[2] / "results"
SHARED, H200 = RESULTS / "h200-shared", RESULTS / "h200" / "paper-kernel"


def transfers(nodes: int, latency: float, bandwidth: float) -> list[TransferTime]:
    """As `longca verify --level cp` measures them."""
    made = []
    for size in [1 << shift for shift in range(10, 28, 2)]:
        seconds = latency + size / bandwidth
        made.append(TransferTime("p2p", 8, nodes, size, [seconds, 9 * seconds, 0.9 * seconds], "nccl", "cuda"))
        made.append(TransferTime("all_to_all", 8, nodes, size, [7 * seconds], "nccl", "cuda"))  # seven at once: not a link
    return made


def journal(place: Path, name: str, records: list[Any], entries: Sequence[Mask], environment: dict[str, Any] | None = None) -> Path:
    folder = writer(place)(name, records, environment or {})
    (folder / "masks.jsonl").write_text("".join(map(mask_line, entries)))
    return folder


def of(mask: Mask) -> dict[str, Any]:
    """The fields of a record that say its mask."""
    return {"mask_digest": mask.digest, "seqlen": mask.seqlen_q, "area": mask.area}


def test_links_come_from_transfers(tmp_path: Path) -> None:
    measured = transfers(1, 12e-6, 280e9) + transfers(2, 25e-6, 44e9)
    (tmp_path / "transfers.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, measured)))
    assert read_transfers(tmp_path / "transfers.jsonl") == measured
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


def test_a_cluster_has_the_gpu_that_its_compute_was_measured_on(tmp_path: Path) -> None:
    """Its peak and its memory limit what is simulated; --device overrides the name. One cluster has one GPU."""
    entries = [masks.causal(length) for length in (1024, 2048, 4096, 8192)]
    records = [kernel("fa4:bands", around(9.0), "fwd", **of(mask), mfu=None) for mask in entries]
    a100 = journal(tmp_path, "a100", records, entries, {"device": "NVIDIA A100-SXM4-40GB", "gpu_memory_mib": 40960})
    journal(tmp_path, "h200", records, entries)
    made = longca.calibrate(a100).cluster
    assert (made.device, made.memory_gib) == ("NVIDIA A100-SXM4-40GB", 40.0)
    assert longca.calibrate(a100, device="mine").cluster.device == "mine"
    for name, text, other in (
        ("env.json", '"e"', '"other"'),
        ("results.jsonl", '"env": "e"', '"env": "other"'),
        ("results.jsonl", '"key": "', '"key": "o'),
    ):
        (a100 / name).write_text((a100 / name).read_text().replace(text, other))
    with pytest.raises(BadInput, match="several devices"):
        longca.calibrate(tmp_path)


def test_compute_of_ranks_that_share_a_gpu_comes_from_calls_of_all_at_once(tmp_path: Path) -> None:
    """Eight ranks with documents of their own, at 80 TFLOP/s each; other records are of a whole GPU, or have transfers."""
    records, entries = [], []
    for length in (512, 1024, 2048, 4096):
        mask = masks.causal_document(65536, documents=[length] * (65536 // length))
        entries.append(mask)
        tiles = tiles_touched(masks.causal(length)) * (8192 // length)  # of a rank
        ms = 4 * tiles * 128 * 128 * 64 * 128 / 80e12 * 1e3
        place = dict(mask="causal_document", **of(mask))
        own = dict(ranks=8, level="cp", imbalance=1.0, bytes_sent=[0] * 8, sharing={"ranks": 8})
        records.append(kernel("fa4:bands", around(ms), "fwd", method="hybrid_dcp", grid="1x8", **place, **own))
        records.append(kernel("fa4:bands", around(ms), "fwd", **place))
        records.append(kernel("fa4:bands", around(9 * ms), "fwd", method="usp", grid="4x2", **place, **own | {"bytes_sent": [5] * 8}))
    cluster, (fit,) = calibrate(journal(tmp_path, "shared", records, entries), find("h200-ib")[1])
    assert (fit.name, fit.measurements) == ("compute.forward_tflops", 4)
    assert cluster.compute.forward_tflops == pytest.approx(80, rel=1e-3)


def test_times_that_do_not_tell_rows_and_tiles_apart_give_no_negative_speed(tmp_path: Path) -> None:
    """Backward times of a busy machine that grow no faster than the rows: with rows and tiles together, least squares make tiles take less
    than no time."""
    entries = [masks.causal(length) for length in (512, 1024, 2048, 4096)]
    records = [kernel("fa4:native", around(0.9 * mask.seqlen_q**0.8), "bwd", **of(mask)) for mask in entries]
    cluster, fits = calibrate(journal(tmp_path, "busy", records, entries), find("h100-ib")[1])
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


def test_a_mask_without_a_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no record is of the mask causal; records have none"):
        calibrate(tmp_path, find("h200-ib")[1], masks=["causal"])
    with pytest.raises(BadInput, match="no record is of the mask nope; records have causal, causal_blockwise"):
        calibrate(SHARED, find("h200-ib")[1], masks=("causal", "nope"))


def test_transfers_that_say_nothing_about_bandwidth() -> None:
    with pytest.raises(BadInput, match="measure larger ones"):
        fit_links("inside", [TransferTime("p2p", 2, 1, size, [1.0 / size], "gloo", "cpu") for size in (1, 2, 4, 8)])
