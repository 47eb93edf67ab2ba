"""What a user asks for: suites of the package, own files and flags; what makes no sense is refused in one sentence."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.plan.test_cells import SMALL
from longca.api.request import RunRequest, resolve
from longca.bench.plan import suite as suites
from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite
from longca.cli import run
from longca.cli._flags import call
from longca.errors import BadInput
from longca.results.settings import Limits


def arguments(*given: str) -> RunRequest:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return call(RunRequest, parser.parse_args(given))


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, float) else json.dumps(value)


def read(table: dict[str, Any], folder: Path) -> Suite:
    """The suite of a user's file with these settings."""
    file = folder / "mine.toml"
    file.write_text("".join(f"{name} = {toml(value)}\n" for name, value in table.items()))
    return suites.read(file)


def printed_and_read(suite: Suite, folder: Path) -> Suite:
    file = folder / "printed.toml"
    file.write_text(suites.to_toml(suite))
    return suites.read(file)


@pytest.mark.parametrize("name", suites.names())
def test_every_suite_of_the_package_is_sound(name: str, tmp_path: Path) -> None:
    found = suites.find(name)
    cells = make_cells(found, ["torch"], "cpu")
    assert {cell.problem.mask for cell in cells} == set(found.masks) | (
        {"full"} if found.dense else set()
    )  # by name: a new mask changes no suite
    assert printed_and_read(found, tmp_path) == found


def test_parameters_by_flag_go_to_the_masks_that_have_them() -> None:
    found = resolve(arguments("paper-sparse", "--set", "ratio=.2,.5", "--set", "b=128"))
    assert found.params["uniform_block"] == {"b": 128, "ratio": [0.2, 0.5]}
    assert found == resolve(arguments("paper-sparse", "--set", "ratio=.2,.5,b=128"))
    assert found.params["variable_block"] == {"avg": [128, 256, 512, 1024], "ratio": [0.2, 0.5]}
    windows = resolve(arguments("quick", "--set", "w=1K")).params
    assert windows["sliding_window"] == windows["global_sliding_window"] == {"w": 1024}
    for text, message in (("c=1", "none of these masks has a parameter 'c'"), ("ratio", "is not a setting"), ("b=1,x", "is not a number")):
        with pytest.raises(BadInput, match=message):
            resolve(arguments("paper-sparse", "--set", text))
    with pytest.raises(BadInput, match="ratio is set twice"):
        resolve(arguments("paper-sparse", "--set", "ratio=.2", "--set", "ratio=.5"))


def test_a_users_file_is_a_suite_and_flags_change_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('kernels = ["torch"]\nseqlens = ["2K"]\n[clock]\nbudget_s = 0.1\n')
    found = resolve(arguments(str(file), "--masks", "full,causal", "--heads", "8:4", "--seeds", "3", "--budget", "0.2", "--memory", "1G"))
    assert (found.kernels, found.masks, found.seqlens, found.heads) == (("torch",), ("full", "causal"), ("2K",), ("8:4",))
    assert (found.seed_list, found.clock.budget_s, found.limits.memory) == ((0, 1, 2), 0.2, "1G")
    assert resolve(arguments("quick", "--seeds", "42,")).seed_list == (42,)


def test_a_deadline_is_for_the_steps_of_a_cell_and_not_for_starting() -> None:
    usual = Limits()
    assert usual.with_deadline(None) == usual
    for seconds in (3.0, 900.0):
        found = usual.with_deadline(seconds)
        assert (found.build_s, found.check_s, found.time_s, found.start_s) == (*[seconds] * 3, max(usual.start_s, seconds))


@pytest.mark.parametrize("flag", ["--budget", "--energy", "--deadline", "--stop-after"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_seconds_that_are_none_are_refused(flag: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"^{flag} must be a number of seconds over 0, not "):
        resolve(arguments("quick", flag + "=" + value))


def test_printed_settings_are_read_back_whatever_the_text(tmp_path: Path) -> None:
    found = replace(SMALL, about='a "🦜", a tab\t and an é')
    assert printed_and_read(found, tmp_path) == found


def test_a_missing_or_broken_suite_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("kernels = [")
    with pytest.raises(BadInput, match="is not TOML"):
        suites.find(str(tmp_path / "bad.toml"))
    with pytest.raises(BadInput, match="cannot read"):
        suites.find(str(tmp_path / "none.toml"))
    with pytest.raises(BadInput, match="did you mean 'quick'"):
        suites.find("quik")
    with pytest.raises(BadInput, match="name a suite"):
        resolve(arguments())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"masks": ["causl"]}, "FILE: unknown mask 'causl'; did you mean 'causal'?"),
    ({"mask": ["causal"]}, "unknown setting in FILE: 'mask'; did you mean 'masks'?"),
    ({"seqlens": ["8Q"]}, "FILE: '8Q' is not a size; write a whole number such as 8192, 8K or 1M."),
    ({"seqlens": []}, "FILE: the suite has no seqlens; give at least one."),
    ({"heads": ["7:2"]}, "FILE: 7:2: the number of query heads must be a multiple of the number of KV heads."),
    ({"dtypes": ["int4"]}, "FILE: unknown dtype 'int4'; known are: bf16, fp16, fp32, fp64."),
    ({"params": {"causal": {"w": 1}}}, "FILE: causal has no parameter 'w'; it has none."),
    ({"params": {"sliding_window": {"w": []}}}, "FILE: params.sliding_window: w has no values; give one, or a list of some."),
    ({"clock": {"budget": 1}}, "unknown setting in [clock] of FILE: 'budget'; did you mean 'budget_s'?"),
    ({"clock": {"least": 9, "most": 3}}, "FILE: clock: the clock needs least <= most, not least=9 and most=3."),
    ({"limits": {"memory": "1M"}}, "FILE: a worker needs 1G of memory or more, not 1M."),
    ({"seqlens": [1.5]}, "FILE: seqlens[0]: "),
    ({"passes": ["forward"]}, "FILE: passes[0]: "),
    ({"kernels": "torch"}, "FILE: kernels: "),
    ({"seeds": [-1]}, "FILE: seeds[0]: "),
    ({"deterministic": "yes"}, "FILE: deterministic: "),
    ({"params": {"sliding_window": {"w": 9}, "uniform_block": {"b": [64], "ratio": [0.5, "half"]}}}, "FILE: params[...][...][1]: "),
    ({"clock": {"budget_s": float("nan")}}, "FILE: clock.budget_s: "),
    ({"limits": {"time_s": 0}}, "FILE: limits.time_s: "),
]


@pytest.mark.parametrize(("table", "message"), WRONG)
def test_a_wrong_suite_is_refused_in_a_sentence(table: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(table, tmp_path)
    said = str(caught.value).replace(str(tmp_path / "mine.toml"), "FILE")
    assert said == message or (message.endswith(": ") and said.startswith(message))  # the rest is what msgspec says of a type or size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("budget=1", "unknown setting in --clock: 'budget'; did you mean 'budget_s'?"),
        ("warmup_s=-1", "--clock: warmup_s: Expected `float` >= 0.0, not -1."),
        ("least=9,most=3", "--clock: the clock needs least <= most, not least=9 and most=3."),
    ],
)
def test_a_wrong_clock_setting_is_refused(given: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        resolve(arguments("quick", "--clock", given))
    assert str(caught.value) == message
