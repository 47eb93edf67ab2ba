"""Makes a cluster file from measurements: compute constants from records of kernels, constants of links from measured transfers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace as replaced_fields
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
from msgspec.structs import replace

from longca.bench.many_devices.transfers import TransferTime
from longca.errors import BadInput
from longca.masks import Mask
from longca.parallel.cuts import TILE, tiles_touched
from longca.results.files import TRANSFERS, journals_below
from longca.results.grouping import grouped
from longca.results.metrics import flops_of
from longca.results.problem import Pass
from longca.results.reading import Results, read_all
from longca.results.record import Record
from longca.simulate.against import measured, recorded
from longca.simulate.cluster import Cluster, Compute, Links
from longca.simulate.costs import backward_bytes
from longca.simulate.fit import Fit, costs_of, error_of, rounded
from longca.simulate.fit_programs import fit_programs
from longca.simulate.predict import predict

POINT_TO_POINT = "p2p"
HALVINGS = 8  # of the range in which the number of cores is looked for
FEWEST = 4  # cells of a pass, or sizes of a transfer, from which constants are taken


def calibrate(folder: Path, cluster: Cluster, kernel: str = "", masks: Collection[str] = ()) -> tuple[Cluster, list[Fit]]:
    """Returns the cluster with constants fitted to the folder's measurements; all others stay. Without `kernel`, compute is fitted to the
    fastest kernel of each mask and shape. A method that sends nothing counts as its kernel, as every rank runs it by itself. If there are
    records of methods alone, compute is fitted to their times without transfers, unless ranks share cores. Links are fitted to transfers
    point to point only, because the simulation itself shares links in collectives. Where ranks share cores, `cores` is fitted to records
    of methods on the fewest ranks. `masks`: those whose records are used, so that the others can judge the cluster; none: all."""
    if not folder.exists():
        raise BadInput(f"there is no folder {folder}; give one that `longca run` or `longca verify --level cp` wrote.")
    fits: list[Fit] = []
    folders = journals_below(folder)
    results = read_all(tuple(folders)) if folders else None
    if masks:
        results = _of_masks(results or Results([]), masks)
    if results is not None:
        compute, fits = _compute(results, cluster.compute, kernel)
        if not (fits or kernel or cluster.cores):
            compute, fits = fit_programs(results, compute, FEWEST)
        cluster = replace(_of_device(cluster, results) if fits else cluster, compute=compute)
    transfers = read_transfers(folder / TRANSFERS) if (folder / TRANSFERS).exists() else []
    pairs = [transfer for transfer in transfers if transfer.op == POINT_TO_POINT]
    for name, chosen in (("inside", [t for t in pairs if t.nodes == 1]), ("between", [t for t in pairs if t.nodes > 1])):
        if len(chosen) >= FEWEST:
            links, own = fit_links(name, chosen)
            cluster, fits = replace(cluster, **{name: links}), fits + own
    if results is not None and cluster.cores:
        cluster, own = _fit_cores(results, cluster)
        fits += own
    if not fits:
        raise BadInput(
            f"{folder} has fewer than {FEWEST} masks or lengths with a time of a kernel, and fewer than {FEWEST} sizes of p2p in "
            f"{TRANSFERS}; measure more with `longca run`, and transfers with `longca verify --level cp`."
        )
    return cluster, fits


def _of_masks(results: Results, masks: Collection[str]) -> Results:
    there = sorted({record.problem.mask for record in results.records})
    if unknown := [name for name in masks if name not in there]:
        raise BadInput(f"no record is of the mask {', '.join(unknown)}; records have {', '.join(there) or 'none'}.")
    return replaced_fields(results, records=[record for record in results.records if record.problem.mask in masks])


def _of_device(cluster: Cluster, results: Results) -> Cluster:
    """The cluster with the device that its compute was measured on, whose peak and memory limit what is simulated."""
    here = [results.environment(record) for record in results.records if record.ok and not record.simulated]
    devices = {own.name: own for own in here if own.device}
    if len(devices) > 1:
        raise BadInput(f"there are records of several devices ({', '.join(sorted(devices))}); give a folder with those of one.")
    device = next(iter(devices.values()), None)
    if device is None or device.name == cluster.device:
        return cluster
    return replace(cluster, device=device.name, memory_gib=rounded(device.memory_gib or cluster.memory_gib))


def read_transfers(path: Path) -> list[TransferTime]:
    """The lines of the file that `longca verify --level cp` writes; what is not one is refused with its line."""
    transfers = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                transfer = msgspec.json.decode(line, type=TransferTime)
            except msgspec.MsgspecError as error:
                raise BadInput(f"{path} line {number} is no measured transfer: {error}.") from error
            if not transfer.seconds or min(transfer.seconds) <= 0:
                raise BadInput(f"{path} line {number} has no times over 0: {transfer.seconds}; measure again.")
            transfers.append(transfer)
    return transfers


def _compute(results: Results, compute: Compute, kernel: str) -> tuple[Compute, list[Fit]]:
    records = [record for record in results.records if record.ok and _is_alone(record) and not record.simulated]
    records = [replace(record, timed=record.times.as_measured) for record in records]  # as the times of ranks are
    records = [record for record in records if record.problem.sharing] or records  # kernels on a whole GPU say nothing about a share
    labels = sorted({record.label for record in records})
    if kernel and not any(label == kernel or label.partition(":")[0] == kernel for label in labels):
        raise BadInput(f"no record is of the kernel {kernel}; records have {', '.join(labels) or 'none'}.")
    chosen = [record for record in records if not kernel or record.label == kernel or record.kernel == kernel]
    fits: list[Fit] = []
    for pass_, field in ((Pass.FWD, "forward_tflops"), (Pass.BWD, "backward_tflops")):
        best = _fastest([record for record in chosen if record.problem.pass_ is pass_])
        features = [(record, pairs) for record in best if (pairs := _pairs(record, results, compute)) is not None]
        if len(features) < FEWEST:
            continue
        speed, memory, error = _fit_pass(features, pass_)
        compute = replace(compute, **{field: speed})
        fits.append(Fit(f"compute.{field}", speed, len(features), error))
        if memory:
            compute = replace(compute, memory_gb_s=memory)
            fits.append(Fit("compute.memory_gb_s", memory, len(features), error))
    return compute, fits


def _is_alone(record: Record) -> bool:
    """Whether a kernel was measured without transfers: by itself, or by all ranks at once, with as much work for each."""
    over = record.over_ranks
    return record.method is None or (over is not None and over.bytes_sent is not None and not any(over.bytes_sent) and over.imbalance == 1)


def _fastest(records: Iterable[Record]) -> list[Record]:
    """Of each mask, length and shape the fastest record: methods run the kernel that is best for a mask."""

    def question(record: Record) -> tuple[object, ...]:
        own = record.problem
        return record.built.digest, own.seqlen, own.heads_q, own.heads_kv, own.head_dim, own.head_dim_v, own.dtype

    return [min(same, key=lambda record: record.times.median) for same in grouped(records, question).values()]


def _pairs(record: Record, results: Results, compute: Compute) -> int | None:
    """The pairs of one head that a record's kernel computes on a rank; None for block patterns and masks that the journal does not hold."""
    entry = results.masks.get((record.built.digest, record.problem.mask))
    if entry is None or not entry.bands:
        return None
    if not compute.skips_tiles:
        return entry.seqlen_q * entry.seqlen_k // record.problem.ranks
    return tiles_touched(Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands)) * TILE * TILE // record.problem.ranks


def _fit_pass(features: Sequence[tuple[Record, int]], pass_: Pass) -> tuple[float, float | None, float]:
    """TFLOP/s over computed pairs and, of a backward, GB/s of what it moves for each row and head: least squares of relative errors.
    `half_rows` and `launch_us` are not fitted: calls of kernels are long."""
    seconds = np.array([record.times.median * 1e-3 for record, _ in features])
    work = np.array([flops_of(pairs * r.problem.heads_q, r.problem.head_dim, r.problem.head_dim_v, pass_) for r, pairs in features], float)
    columns = [work / 1e12]
    if pass_ is Pass.BWD:
        shapes = [(r.built.seqlen_q // r.problem.ranks, r.problem.heads_q, r.problem.head_dim, r.problem.dtype) for r, _ in features]
        columns.append(np.array([backward_bytes(*shape) / 1e9 for shape in shapes]))
    matrix = np.stack(columns, 1) / seconds[:, None]
    costs = costs_of(matrix)
    if len(costs) > 1 and min(costs) <= 0:  # the times do not tell rows and tiles apart
        matrix = matrix[:, :1]
        costs = costs_of(matrix)
    return rounded(1 / costs[0]), rounded(1 / costs[1]) if len(costs) > 1 else None, error_of(matrix, costs)


def fit_links(name: str, transfers: Sequence[TransferTime]) -> tuple[Links, list[Fit]]:
    """Seconds (the median sample) = latency + bytes / bandwidth: least squares of relative errors."""
    seconds = np.array([median(transfer.seconds) for transfer in transfers])
    matrix = np.array([(1.0, transfer.bytes) for transfer in transfers]) / seconds[:, None]
    latency, per_byte = costs_of(matrix)
    if per_byte <= 0:
        raise BadInput(f"transfers {name} nodes take no longer with more bytes, so they give no bandwidth; measure larger ones too.")
    latency = max(0.0, float(latency))
    error = error_of(matrix, np.array([latency, per_byte]))
    fitted = Links(gb_s=rounded(1e-9 / per_byte), efficiency=1.0, latency_us=rounded(latency * 1e6))
    count = len(transfers)
    return fitted, [Fit(f"{name}.gb_s", fitted.gb_s, count, error), Fit(f"{name}.latency_us", fitted.latency_us, count, error)]


def _fit_cores(results: Results, cluster: Cluster) -> tuple[Cluster, list[Fit]]:
    """Returns how many cores the ranks have, from one to those of the machine: the number with median error 0 in records on the fewest
    ranks. Busy cores share memory and clocks, so it is smaller than their count."""
    records = measured(results)
    fewest = min((record.problem.ranks for record in records), default=0)
    chosen = list(recorded(results, [record for record in records if record.problem.ranks == fewest]))
    if len(chosen) < FEWEST:
        return cluster, []

    def errors(cores: float) -> list[float]:
        tried = replace(cluster, cores=cores)
        return [predict(programs, tried, record.problem.pass_).ms / record.times.median - 1 for record, programs in chosen]

    low, high = 1.0, max(1.0, *(float(results.environment(record).cores or 1) for record, _ in chosen))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if median(errors(middle)) > 0 else (low, middle)
    cores = rounded(high)
    return replace(cluster, cores=cores), [Fit("cores", cores, len(chosen), median(map(abs, errors(cores))))]
