"""No value ends in a traceback: parsers read it or refuse it in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longca import masks, text
from longca.api.compare import parse_threshold
from longca.bench.plan import suite as suites
from longca.bench.plan.request import seeds_of, texts
from longca.cli import main
from longca.compare.baseline import baseline_folder
from longca.errors import BadInput
from longca.parallel.grid import Grid
from longca.recommend.question import Question
from longca.results.problem import parse_pass

LONG = "9" * 5000
VALUES = ["", " , ", "-1", "0", "1e30", "1e308", "nan", "inf", "-", "=", "a=", "=1", "w=1e30", "w=nan", "B=1e30", "ratio=2", "64:", ":8",
          "1/0", "1/99999999999999999999", "x" * 300, LONG, f"1,{LONG}", "\n", "../nowhere/..", "[]", "{}", "ünï", "0x10"]  # fmt: skip
TYPED = st.text(st.sampled_from("0123456789.eE+-KMGx:,/=%&|~() wnaif\"'\n"), max_size=12)  # letters that numbers and expressions have
PARSERS: list[Callable[[str], Any]] = [
    text.parse_size,
    text.parse_number,
    text.parse_heads,
    text.parse_dims,
    text.parse_memory,
    text.parse_list,
    lambda value: text.parse_settings([value]),
    lambda value: text.parse_axes([value]),
    lambda value: seeds_of(None, value),
    lambda value: texts("values", value),
    parse_pass,
    parse_threshold,
    baseline_folder,
    Grid.parse,
    masks.find,
    suites.find,
    lambda value: Question.parse(value, 64),
    lambda value: Question.parse("causal", value),
    lambda value: Question.parse("causal_document", 64, distribution=value),
    lambda value: masks.build("causal_document", 64, documents=[*map(text.parse_size, text.parse_list(value))]),
]


@given(st.one_of(st.sampled_from(VALUES), TYPED, st.text(max_size=40)), st.sampled_from(PARSERS))
@settings(max_examples=500, deadline=None)
@example(LONG, text.parse_heads)
def test_a_parser_reads_a_value_or_refuses_it_in_a_line(value: str, parser: Callable[[str], Any]) -> None:
    refusal = ""
    try:
        parser(value)
    except BadInput as error:
        refusal = str(error)
    assert not refusal or refusal.endswith((".", "?"))
    assert len(refusal) < 2000 + len(value)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("s.toml", "seeds = 1000000000000", "seeds"),
        ("s.toml", "params = " + "[" * 100_000, "s.toml"),
        ("w.jsonl", "[" * 100_000, "w.jsonl line 1"),
        ("w.jsonl", '{"mask": "causal", "seqlen": 64, "params": ' + '{"a":' * 100_000, "w.jsonl line 1"),
        ("w.jsonl", '{"mask": "causal", "seqlen": 64, "seed": 99999999999999999999999}', "seed"),
    ],
    ids=["many seeds", "nested lists", "brackets", "nested objects", "a large seed"],
)
def test_files(name: str, content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(content)
    given = [str(tmp_path / name)] if name.endswith("toml") else ["--workload", str(tmp_path / name)]
    assert main(["run", "--kernels", "torch", "--device", "cpu", "--dry-run", *given]) == 2
    assert sentence in capsys.readouterr().err
