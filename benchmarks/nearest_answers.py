"""How far off nearest answers are: every measured length is hidden, asked for, and compared with its records. Measures nothing.

    PYTHONPATH=src python benchmarks/nearest_answers.py results/h200/{paper-kernel,model-shapes} > results/h200/nearest_answers.txt

Three distances ask for 64:8 heads: `between` hides one length, so that the nearest shorter and the nearest longer one remain; `next` hides
it and all longer ones; `far` leaves only lengths up to half of it. `heads` asks for other heads of 128 and hides all records of them;
`shortest` asks for their longer lengths and leaves those of 8K tokens, so that speeds change with the length as those of 64:8 heads. The
journals have one seed, so that a prediction is compared with a measurement of the same documents. A prediction is right where the measured
time lies in the range of the answer. The regret is how much slower than the fastest measured kernel the kernel is that was recommended.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

from longca.recommend.answer import Choice, recommend
from longca.recommend.question import Question
from longca.results.metrics import median
from longca.results.problem import Pass
from longca.results.reading import Results, read_some
from longca.results.record import Record
from longca.results.tables import markdown_table

SHORTEST = 8192  # of the lengths that are asked for
USUAL = (64, 8)  # heads
Shape = tuple[int, int, int]  # tokens, query heads, KV heads
DISTANCES: dict[str, Callable[[Shape, Shape], bool]] = {  # whether a record of the first is seen where the second is asked for
    "between": lambda shape, asked: shape[0] != asked[0],
    "next": lambda shape, asked: shape[0] < asked[0],
    "far": lambda shape, asked: 2 * shape[0] <= asked[0],
    "heads": lambda shape, asked: shape[1:] != asked[1:],
    "shortest": lambda shape, asked: shape[1:] != asked[1:] or shape[0] == SHORTEST,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="+")
    print(table(read_some(parser.parse_args().journals)))


def table(results: Results) -> str:
    columns = ["distance", "documents", "answers", "time off, median", "9 of 10 within", "in the range", "best or as good"]
    columns += ["regret, 9 of 10", "regret, most"]
    rows = [[name, "yes" if documents else "no", *_row(results, name, documents)] for name in DISTANCES for documents in (False, True)]
    return markdown_table(columns, rows)


def _row(results: Results, distance: str, documents: bool) -> list[str]:
    ratios, inside, regrets, good = list[float](), list[bool](), list[float](), 0
    longer = SHORTEST + 1 if distance == "shortest" else SHORTEST
    for question in _questions(results, documents, other_heads=distance in ("heads", "shortest")):
        if question.seqlen < longer:
            continue
        truth = {choice.name: choice for choice in recommend(replace(question, exact=True), results).choices}
        fastest = min(choice.ms for choice in truth.values())
        visible = [record for record in results.records if DISTANCES[distance](_shape(record), _shape(question))]
        found = recommend(question, replace(results, records=visible))
        if found.best is None:
            continue
        for choice in found.choices:
            if choice.name in truth:
                ratios.append(truth[choice.name].ms / choice.ms)
                inside.append(_holds(choice, truth[choice.name].ms))
        if found.best.name in truth:
            measured = truth[found.best.name]
            regrets.append(measured.ms / fastest - 1)
            good += measured.as_good or measured is next(iter(truth.values()))
    ordered = sorted(ratios)
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.05, 0.95))
    worst = sorted(regrets)[int(0.9 * (len(regrets) - 1))]
    off = f"{100 * median(abs(ratio - 1) for ratio in ratios):.1f} %"
    within = f"{100 * (low - 1):+.0f} to {100 * (high - 1):+.0f} %"
    shares = [f"{100 * sum(inside) / len(inside):.0f} % of {len(inside)}", f"{good} of {len(regrets)}"]
    return [str(len(regrets)), off, within, *shares, f"{100 * worst:.1f} %", f"{100 * max(regrets):.1f} %"]


def _holds(choice: Choice, ms: float) -> bool:
    return choice.ms_range is not None and choice.ms_range[0] <= ms <= choice.ms_range[1]


def _questions(results: Results, documents: bool, other_heads: bool) -> list[Question]:
    wanted = [record for record in results.records if record.ok and record.problem.seqlen >= SHORTEST and record.problem.head_dim == 128]
    places = dict.fromkeys((record.problem.mask, *_shape(record)) for record in wanted if (_shape(record)[1:] != USUAL) == other_heads)
    asked = [Question(*place, pass_=pass_) for place in places for pass_ in (Pass.FWD, Pass.BWD)]
    return [question for question in asked if question.has_documents == documents]


def _shape(of: Record | Question) -> Shape:
    return of.seqlen, of.heads_q, of.heads_kv


if __name__ == "__main__":
    main()
