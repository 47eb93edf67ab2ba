"""docs/python.md: its examples run, and print what it shows, but for figures and the name of the device."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from longca import devices

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.compile(r"```python\n(.*?)```\n```\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\b\d[\d.]*(?:e[+-]?\d+)?")


def shown(text: str) -> list[str]:
    """The lines without figures, names of devices, marks of noise, and widths of columns."""
    for device in ("AMD EPYC", devices.model("cpu")):
        text = text.replace(device, "DEVICE")
    lines = [re.sub(r"it took .*", "it took", line) for line in text.splitlines()]
    return [" ".join(NUMBER.sub("#", line.replace("~", "")).split()) for line in lines]


def last_value(code: str, names: dict[str, Any]) -> str:
    """Runs code and returns the repr of its last line where that is an expression, or what it raises."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "docs/python.md", "exec"), names)
        return "" if last is None else repr(eval(compile(ast.Expression(last.value), "docs/python.md", "eval"), names))
    except AssertionError as error:
        return f"AssertionError: {error}"


@pytest.mark.slow
def test_the_examples_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples, names = BLOCKS.findall(PAGE.read_text()), dict[str, Any]()
    assert len(examples) == PAGE.read_text().count("```python")
    for code, expected in examples:
        printed, wanted = shown(last_value(code, names)), shown(expected)
        cut = [line[: len(right) - 3] + "..." if right.endswith("...") else line for line, right in zip(printed, wanted, strict=True)]
        assert cut == wanted, code
