"""How far off nearest answers are: measured cells are hidden, asked for, and compared with their records. Measures nothing.

    PYTHONPATH=src python benchmarks/nearest_answers.py results/h200 > results/h200/nearest_answers.txt

Every row hides records and asks for their forwards and backwards:

* `between` hides one length of 64:8 heads; `next` this and all longer ones; `far` leaves lengths up to half of it;
* `heads` hides all records of 32:8, 40:8 or 8:1 heads of 128; `shortest` leaves those of 8K tokens and asks for 32K and 128K;
* `head size` hides all records of 16:16 heads of 64, and of 128:128 heads of 192/128;
* `window` hides one window of `sliding_window_causal`: one between two others, or the narrowest or widest (`outer window`);
* `other documents` hides one of six seeds, and asks for its documents.

`in the range` counts the measured times within the range of the answer, of those that have a range. The regret is how much slower than the
fastest measured kernel the kernel is that was recommended.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace as replace_fields

from longca.recommend.answer import Answer, Choice
from longca.recommend.question import Question
from longca.recommend.rank import recommend
from longca.results.problem import Pass, Problem
from longca.results.ranking import records_of_one_clock
from longca.results.reading import Results, read_some
from longca.results.record import Record
from longca.results.tables import markdown_table

SHORTEST = 8192  # of the lengths that are asked for
USUAL = (64, 8)  # heads
SEED = 42  # of the journals with one seed
WINDOWS = (128, 512, 1024, 4096)
COLUMNS = ["hidden", "documents", "questions", "answers", "time off, median", "9 of 10 within", "in the range", "best or as good"]
Rule = Callable[[Question, Results], Answer]


class Asked(NamedTuple):
    """A question, the seed of the records that tell the truth, and whether a rule may see a record."""

    question: Question
    seed: int
    visible: Callable[[Record], bool]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder with paper-kernel, model-shapes, seeds and windows")
    print(table(parser.parse_args().results, recommend))


def table(folder: Path, rule: Rule) -> str:
    """A row per kind of question, for masks without and with documents."""
    rows = []
    for name, journals, asked in _rows():
        read = read_some([folder / journal for journal in journals])
        results = replace(read, records=list(records_of_one_clock(read.records)))  # answers and measurements in the same terms
        questions = list(asked(results))
        for documents in (False, True):
            own = [one for one in questions if one.question.has_documents == documents]
            rows += [[name, "yes" if documents else "no", *_texts(own, results, rule)]] if own else []
    return markdown_table([*COLUMNS, "regret, 9 of 10", "regret, most"], rows)


def _rows() -> list[tuple[str, tuple[str, ...], Callable[[Results], Iterable[Asked]]]]:
    shapes = ("paper-kernel", "model-shapes")
    lengths: dict[str, Callable[[int, int], bool]] = {
        "between": lambda seqlen, asked: seqlen != asked,
        "next": lambda seqlen, asked: seqlen < asked,
        "far": lambda seqlen, asked: 2 * seqlen <= asked,
    }
    rows = [(name, shapes, lambda results, sees=sees: _other_lengths(results, sees)) for name, sees in lengths.items()]
    return [
        *rows,
        ("heads", shapes, lambda results: _other_shapes(results, lambda problem: problem.head_dim == 128, SHORTEST, 0)),
        ("shortest", shapes, lambda results: _other_shapes(results, lambda problem: problem.head_dim == 128, SHORTEST + 1, SHORTEST)),
        ("head size", shapes, lambda results: _other_shapes(results, lambda problem: problem.head_dim != 128, SHORTEST, 0)),
        ("window", ("paper-kernel", "windows"), lambda results: _other_windows(WINDOWS[1:-1])),
        ("outer window", ("paper-kernel", "windows"), lambda results: _other_windows((WINDOWS[0], WINDOWS[-1]))),
        ("other documents", ("paper-kernel", "seeds"), _other_documents),
    ]


def _questions(problems: Iterable[Problem]) -> list[Question]:
    """Questions for these problems, of any seed and with default parameters, forward and backward."""
    places = dict.fromkeys(replace_fields(problem, pass_=Pass.BOTH, seed=0, params=()) for problem in problems)
    return [Question(replace_fields(place, pass_=pass_)) for place in places for pass_ in (Pass.FWD, Pass.BWD)]


def _other_lengths(results: Results, sees: Callable[[int, int], bool]) -> Iterable[Asked]:
    problems = [record.problem for record in results.records if record.ok]
    usual = [problem for problem in problems if (problem.heads_q, problem.heads_kv) == USUAL and problem.seqlen >= SHORTEST]
    for question in _questions(usual):
        yield Asked(question, SEED, lambda record, asked=question.problem.seqlen: sees(record.problem.seqlen, asked))


def _other_shapes(results: Results, wanted: Callable[[Problem], bool], shortest: int, seen: int) -> Iterable[Asked]:
    """Questions for other shapes than the usual one from `shortest` tokens on; those of `seen` tokens remain."""
    problems = [record.problem for record in results.records if record.ok]
    others = [problem for problem in problems if (problem.heads_q, problem.heads_kv) != USUAL and wanted(problem)]
    for question in _questions(problem for problem in others if problem.seqlen >= shortest):
        shape = question.problem.operator
        yield Asked(question, SEED, lambda record, asked=shape: record.problem.operator != asked or record.problem.seqlen == seen)


def _other_windows(windows: Iterable[int]) -> Iterable[Asked]:
    for w in windows:
        for seqlen in (SHORTEST, 4 * SHORTEST):
            for pass_ in (Pass.FWD, Pass.BWD):
                question = Question.parse("sliding_window_causal", seqlen, pass_=pass_, params={"w": w})
                yield Asked(question, SEED, lambda record, asked=w: record.built.params.get("w") != asked)


def _other_documents(results: Results) -> Iterable[Asked]:
    seeds = [record.problem for record in results.records if record.ok and record.problem.seed != SEED]
    for question in _questions(seeds):
        for seed in sorted({SEED, *(problem.seed for problem in seeds)}):
            documents = tuple(question.build(seed).documents or ())
            own = replace(question, problem=replace_fields(question.problem, documents=documents))
            yield Asked(own, seed, lambda record, asked=seed: record.problem.seed != asked)


def _texts(questions: Iterable[Asked], results: Results, rule: Rule) -> list[str]:
    count, good, ratios, inside, regrets = 0, 0, list[float](), list[bool](), list[float]()
    for question, seed, visible in questions:
        count += 1
        truth = _truth(question, replace(results, records=[record for record in results.records if record.problem.seed == seed]))
        answer = rule(question, replace(results, records=[record for record in results.records if visible(record)]))
        for choice in answer.choices:
            if choice.name in truth:
                ratios.append(truth[choice.name].ms / choice.ms)
                inside += [choice.ms_range[0] <= truth[choice.name].ms <= choice.ms_range[1]] if choice.ms_range else []
        if answer.best and answer.best.name in truth:
            measured = truth[answer.best.name]
            regrets.append(measured.ms / min(choice.ms for choice in truth.values()) - 1)
            good += measured.as_good or measured is next(iter(truth.values()))
    ordered = sorted(ratios)
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.05, 0.95))
    off = f"{100 * median(abs(ratio - 1) for ratio in ratios):.1f} %"
    within = f"{100 * (low - 1):+.0f} to {100 * (high - 1):+.0f} %"
    shares = [f"{100 * sum(inside) / len(inside):.0f} % of {len(inside)}" if inside else "unknown", f"{good} of {len(regrets)}"]
    most = [sorted(regrets)[int(0.9 * (len(regrets) - 1))], max(regrets)]
    return [str(count), str(len(regrets)), off, within, *shares, *(f"{100 * regret:.1f} %" for regret in most)]


def _truth(question: Question, results: Results) -> dict[str, Choice]:
    """The measured times by kernel, the fastest first."""
    drawn = replace(question, problem=replace_fields(question.problem, documents=None), exact=True)
    return {choice.name: choice for choice in recommend(drawn, results).choices}


if __name__ == "__main__":
    main()
