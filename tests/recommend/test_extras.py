"""Softcap and sinks that no record has: the nearest answer is of records without them, and only of kernels that take them."""

import pytest

import longca
from journals import Write
from longca import masks
from longca.bench.plan.suite import names
from longca.bench.plan.workload import model
from longca.cli import main
from longca.kernels import registry
from longca.kernels.base import Case
from longca.recommend.table import NO_RECORD, NoRecord
from recommend.cells import answer, cell

WITH_EXTRAS = [name for name in names("models") if model(name).softcap or model(name).sinks]


@pytest.mark.parametrize("name", WITH_EXTRAS)
def test_every_model_has_an_answer_of_kernels_that_take_it(name: str) -> None:
    shape = model(name)
    found = longca.recommend("causal", "32K", model=name).answer
    assert found.best is not None
    assert found.nearest is not None
    assert {choice.ms_range for choice in found.choices} == {None}
    q, kv = map(int, shape.heads.split(":"))
    case = Case(32768, 32768, q, kv, int(shape.head_dim), int(shape.head_dim), "bf16", "cuda", softcap=shape.softcap, sinks=shape.sinks)
    mask = masks.causal(32768)
    assert all(registry.supports(registry.get(choice.kernel), mask, case) for choice in found.choices)
    refused = [out.line for out in found.out if out.status == "unsupported" and not out.reason.startswith("at ")]
    assert not any(registry.supports(registry.get(line), mask, case) for line in refused)
    assert bool(refused) is bool(shape.softcap), "all of the measured kernels take sinks"
    with pytest.raises(NoRecord):
        longca.best("causal", "32K", model=name, exact=True)


@pytest.mark.parametrize(
    ("given", "what", "costs"),
    [
        (["--softcap", "50"], "softcap 50: the times are without it, of kernels that take it", "softcap 50 costs"),
        (["--sinks"], "sinks: the times are without them, of kernels that take them", "sinks cost"),
        (["--sinks", "--softcap", "30"], "softcap 30 and sinks: the times are without them, of kernels", "softcap 30 and sinks cost"),
    ],
)
def test_it_is_said_what_the_times_are_without(
    write: Write, capsys: pytest.CaptureFixture[str], given: list[str], what: str, costs: str
) -> None:
    """At a measured length, too."""
    folder = write("made", [cell("flex", n, 400.0) for n in (4096, 8192)])
    words = ["recommend", "--mask", "causal", "--pass", "fwd", "--results", str(folder), *given, "--seqlen"]
    for seqlen in ("6K", "8K"):
        assert main([*words, seqlen]) == 0
        said = capsys.readouterr().out
        assert said.splitlines()[0].endswith("; NEAREST ANSWER, scaled from other measurements, error unknown.")
        assert f"\nno record near this has {what}" in said
        assert f"the error of these times is unknown: no record tells what {costs}" in said
        assert main([*words, seqlen, "--exact"]) == NO_RECORD
        obstacle = capsys.readouterr().out.splitlines()[2]
        assert obstacle.startswith("there is no measured record of causal ")
        assert obstacle.endswith(", and --exact excludes nearest answers.")


def test_records_with_the_softcap_come_first(write: Write) -> None:
    plain = [cell("flex", n, 400.0) for n in (4096, 8192, 16384)]
    folder = write("made", [*plain, cell("flex", 8192, 300.0, softcap=50.0)])
    capped = answer(folder, "16K", softcap=50.0)
    assert capped.best is not None
    assert capped.nearest is not None
    assert (capped.best.tflops, capped.best.sources[0].record.problem.softcap) == (pytest.approx(300.0), 50.0)
    assert "softcap" not in " ".join([*capped.nearest.differences, *capped.nearest.unknown])
    other = answer(folder, "8K", softcap=30.0).best
    assert other is not None
    assert other.sources[0].record.problem.softcap == 0.0


def test_a_kernel_that_is_not_loaded_is_not_trusted_to_take_it(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [cell("mine", n, 900.0) for n in (4096, 8192)])
    words = ["recommend", "--mask", "causal", "--pass", "fwd", "--results", str(folder), "--seqlen", "6K"]
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--sinks"]) == NO_RECORD
    assert "mine  unsupported  is of a plugin, and its records do not tell whether it takes sinks" in capsys.readouterr().out


def test_what_records_do_not_have_is_said_as_a_flag_that_is_not_given(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["recommend", "--mask", "causal", "--seqlen", "8K", "--pass", "fwd", "--softcap", "50", "--exact"]
    assert main([*words, "--results", str(write("made", [cell("flex", 8192, 400.0)]))]) == NO_RECORD
    assert "\nthere are records without --softcap.\n" in capsys.readouterr().out
