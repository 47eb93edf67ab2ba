"""Prints how well simulations agree with published figures, and with times of gloo ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longca.cli._tables import show_table
from longca.errors import BadInput

if TYPE_CHECKING:
    from longca.results.record import Record
    from longca.simulate.against import Pair
    from longca.simulate.cluster import Cluster
    from longca.simulate.validate import Point


GLOO = "cpu-gloo"  # the cluster that models ranks on the cores of one machine


def show_all(name: str, cluster: Cluster, as_json: bool) -> int:
    """Published figures of H100 clusters, then the gloo records that come with LongCA. A cluster whose ranks share cores has the second
    alone."""
    from longca.recommend.shipped import for_calibrating
    from longca.simulate.cluster import find

    records = next(iter(for_calibrating()), None)
    if records is None:
        raise BadInput("the measured gloo records are missing from this installation; `longca simulate --validate --measure` makes others.")
    shared = (name, cluster) if cluster.cores else find(GLOO)
    if as_json:
        published = {} if cluster.cores else {"published": _published(name, cluster)}
        print(json.dumps(published | {"gloo": _measured(records, *shared)}))
        return 0
    if not cluster.cores:
        _show_published(name, cluster)
    print(f"\nMeasured on two cores with gloo, and predicted with {shared[0]}:")
    return show_against(records, *shared, as_json=False, rows=False)


def show_measured(folder: Path, as_json: bool) -> int:
    """Measures gloo ranks here, makes a cluster file from it, and compares."""
    from longca.api.files import write_text
    from longca.api.gloo import measure_gloo
    from longca.simulate import calibrate
    from longca.simulate.cluster import find, to_toml

    measure_gloo(folder)
    cluster, _ = calibrate.calibrate(folder, find(GLOO)[1])
    file = folder / "cluster.toml"
    write_text(str(file), to_toml(cluster))
    if as_json:
        print(json.dumps({"gloo": _measured(folder, str(file), cluster)}))
        return 0
    return show_against(folder, str(file), cluster, as_json=False)


def _published(name: str, cluster: Cluster) -> dict[str, object]:
    """Errors against published figures, and every figure."""
    from longca.simulate import validate

    figures = validate.published()
    points = validate.compare(figures, cluster)
    plain = [{**point._asdict(), "pass_": point.pass_.value, "error": point.error} for point in points]
    return {"cluster": name, **validate.summary(points, figures), "points": plain}


def _measured(place: Path, name: str, cluster: Cluster) -> dict[str, object]:
    """Errors against measured records, of all, of each number of ranks, and every record."""
    from longca.simulate.against import against, errors

    pairs = against(place, cluster)

    def summary(own: Sequence[Pair]) -> dict[str, object]:
        typical, most = errors(own)
        return {"records": len(own), "error": typical, "nine_in_ten": most}

    ranks = {count: summary([pair for pair in pairs if pair.record.problem.ranks == count]) for count in _counts(pairs)}
    return {"cluster": name, **summary(pairs), "ranks": ranks, "points": [_plain(pair) for pair in pairs]}


def _show_published(name: str, cluster: Cluster) -> None:
    from longca.simulate import validate

    figures = validate.published()
    points = validate.compare(figures, cluster)
    summary = validate.summary(points, figures)
    print(
        f"{figures.about}; {figures.source}.\n"
        f"Published, predicted and error, for {', '.join(map(str, figures.gpus))} GPUs, and of the ratio of the most to the fewest:\n"
    )
    lines: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.mask, point.pass_.value, point.method), []).append(point)
    columns = ("mask", "pass", "method", *(f"{gpus} GPUs" for gpus in figures.gpus), f"{figures.gpus[-1]} over {figures.gpus[0]}")
    rows = [
        (*names, *(f"{point.published:.0f} {point.predicted:.0f} {point.error:+.0%}" for point in line), _scaling(line[-1]))
        for names, line in lines.items()
    ]
    show_table(columns, rows)
    plain, documents = summary["plain"], summary["documents"]
    print(f"\nConstants of {name}: {', '.join(f'{constant} {validate.constant(cluster, constant):g}' for constant in validate.CONSTANTS)}.")
    for what, figure in (("full and causal", plain), ("documents", documents)):
        print(
            f"{what}: median error {figure['error']:.1%}; beyond {figures.gpus[0]} GPUs {figure['later_error']:.1%}, "
            f"where 'the same as at {figures.gpus[0]} GPUs' has {figure['same_as_first']:.1%}."
        )
    scaling = documents["scaling_error"]
    print(f"full and causal: worst {plain['worst']:.0%}; documents: of the scaling from {figures.gpus[0]} GPUs {scaling:.1%}.")
    within, total = documents["scaling_within_25"], documents["scaling_rows"]
    print(f"documents: the ratio of 64 to 8 GPUs is within 25 % in {within} of {total} rows.")
    worst = sorted(documents["rank_correlation"].items(), key=lambda item: item[1])
    print(f"documents: rank correlation of methods, lowest first: {', '.join(f'{what} {value:.2f}' for what, value in worst)}.")
    print("\nDeviations over 20 %, and what may explain them:")
    for method, reason in validate.explanations(points, figures).items():
        print(f"* {method}: {reason}")


def _scaling(last: Point) -> str:
    published, predicted = last.published / last.at_first, last.predicted / last.predicted_at_first
    return f"{published:.2f} {predicted:.2f} {last.scaling_error:+.0%}"


def show_against(place: Path, name: str, cluster: Cluster, as_json: bool, rows: bool = True) -> int:
    """The errors against measured records: of each where `rows` are wanted, of each number of ranks, and of all."""
    from longca.simulate.against import against, errors

    pairs = against(place, cluster)
    if as_json:
        for pair in pairs:
            print(json.dumps(_plain(pair)))
        return 0
    if rows:
        cells = [
            (*_names(pair.record).values(), f"{pair.record.times.median:.4g}", f"{pair.ms:.4g}", f"{pair.error:+.0%}") for pair in pairs
        ]
        show_table(("method", "grid", "ranks", "mask", "tokens", "pass", "measured ms", "simulated ms", "error"), cells)
    print()
    counts = _counts(pairs)
    for count in counts if len(counts) > 1 else []:
        own = [pair for pair in pairs if pair.record.problem.ranks == count]
        typical, most = errors(own)
        print(f"{count} ranks: {len(own)} records, median error {typical:.1%}, nine in ten within {most:.1%}.")
    typical, most = errors(pairs)
    print(f"{len(pairs)} records against {name}: median error {typical:.1%}, nine in ten within {most:.1%}.")
    return 0


def _counts(pairs: Sequence[Pair]) -> list[int]:
    return sorted({pair.record.problem.ranks for pair in pairs})


def _names(record: Record) -> dict[str, object]:
    problem, grid = record.problem, record.split.grid if record.split else ""
    names: dict[str, object] = {"method": record.method, "grid": grid, "ranks": problem.ranks, "mask": problem.mask}
    return names | {"seqlen": problem.seqlen, "pass": problem.pass_.value}


def _plain(pair: Pair) -> dict[str, object]:
    return {**_names(pair.record), "measured_ms": pair.record.times.median, "simulated_ms": pair.ms, "error": pair.error}
