"""Names of kernels beside plugins: what is a typo is refused, what a broken plugin may have offered is recorded."""

from dataclasses import replace
from pathlib import Path

import pytest

from longca.bench.one_device.level import offered_by
from longca.bench.plan.catalogue import Catalogue, Entry, Offered, make_catalogue
from longca.bench.plan.suite import Suite
from longca.errors import BadInput
from longca.results.record import Outcome, Status
from longca.results.settings import Limits


def suite(*kernels: str) -> Suite:
    return Suite(kernels=kernels, masks=("causal",), seqlens=("16",))


def catalogue(asked: Suite, plugins: list[str], device: str, only_named: bool = False) -> Catalogue:
    return make_catalogue(asked, offered_by(plugins, device, Limits()), device, only_named)


@pytest.fixture
def broken(tmp_path: Path) -> list[str]:
    files = [tmp_path / "one" / "mine.py", tmp_path / "two" / "mine.py"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"raise RuntimeError('number {number}')\n")
    return list(map(str, files))


def test_an_unknown_name_may_be_one_of_a_broken_plugin(broken: list[str], plugins: Path) -> None:
    offered = offered_by([broken[0], str(plugins / "cheap.py")], "cpu", Limits())
    with pytest.raises(BadInput, match="did you mean 'cheap'"):
        make_catalogue(suite("cheep"), replace(offered, failed={}), "cpu", only_named=True)
    with pytest.raises(BadInput, match="unknown variant of cheap 'foo'; there are none"):
        make_catalogue(suite("cheap:foo"), offered, "cpu", only_named=True)
    found = make_catalogue(suite("mine", "zzzzzz"), offered, "cpu", only_named=True)
    assert [entry.failure is not None for entry in found.entries.values()] == [True, True]


def test_dense_kernels_run_beside_block_patterns_and_nowhere_else() -> None:
    asked = Suite(kernels=("flex",), dense=("sdpa:math", "flex"), masks=("uniform_block",), seqlens=("512",))
    found = catalogue(asked, [], "cpu")
    assert list(found.entries) == ["flex", "sdpa:math"]
    assert found.for_all_masks == ["flex"]
    with pytest.raises(BadInput, match="unknown kernel 'fa9'"):
        catalogue(Suite(kernels=("flex",), dense=("fa9",), masks=("uniform_block",)), [], "cpu")
    everything = catalogue(Suite(kernels=("all",), dense=("sdpa:math",), masks=("uniform_block",)), [], "cpu")
    assert "sdpa:math" not in everything.for_all_masks  # it can do no block pattern, and is there for the dense mask all the same
    assert "sdpa:math" in everything.entries


def test_broken_plugins_of_one_name_are_told_apart(broken: list[str]) -> None:
    found = catalogue(suite("torch"), broken, "cpu")
    reasons = {label: entry.failure.reason for label, entry in found.entries.items() if entry.failure}
    assert "number 0" in reasons["mine"]
    assert "number 1" in reasons[broken[1]]


def test_a_broken_file_is_told_even_where_only_others_are_wanted(broken: list[str]) -> None:
    found = catalogue(Suite(kernels=("torch:plain",)), broken[:1], "cpu", only_named=True)
    assert list(found.entries) == ["torch:plain"]
    assert len(found.left_out) == 1
    assert all(found.left_out.values())


def test_a_plugin_that_cannot_be_loaded_has_a_version_and_a_status(broken: list[str], plugins: Path) -> None:
    offered = offered_by([broken[0], str(plugins / "dying_import.py"), str(plugins / "variants.py")], "cpu", Limits())
    assert list(offered.kernels) == ["kk:a", "kk:good", "kk:b", "kk:c"]
    assert all(entry.versions.keys() == {"torch", "code"} for entry in (*offered.kernels.values(), *offered.failed.values()))
    failures = [entry.failure for entry in offered.failed.values()]
    assert [failure.status for failure in failures if failure] == [Status.ERROR] * 2
    assert failures[1] is not None
    assert failures[1].reason == "its process ended with exit code 3 during starting"
    with pytest.raises(BadInput, match=r"there is no plugin file .*none\.py"):
        offered_by(["none.py"], "cpu", Limits())


def test_a_catalogue_tells_own_kernels_files_and_versions_apart() -> None:
    failed = Outcome(status=Status.ERROR, reason="it cannot be imported")
    offered = Offered({"mine:a": Entry("mine:a", {"code": "1"}, "mine.py")}, {"bad.py": Entry("bad", {"code": "2"}, "bad.py", failed)})
    found = make_catalogue(suite("torch:plain"), offered, "cpu")
    assert list(found.entries) == ["torch:plain", "mine:a", "bad"]
    assert found.plugin_kernels == ["mine", "bad"]
    assert found.plugin_files == {"mine.py": ["mine"], "bad.py": ["bad"]}
    assert found.versions["mine:a"] == {"code": "1"}
    assert found.versions["torch:plain"].keys() == {"torch", "code"}


def test_what_all_leaves_out_is_told_with_its_reason() -> None:
    asked = Suite(kernels=("all",), without=("torch:plain", "flex"), masks=("causal",), seqlens=("16",))
    found = catalogue(asked, [], "cpu")
    assert found.left_out["torch:plain"] == found.left_out["flex"] == "the suite excludes it"
    assert found.left_out["fa3"].startswith("runs on cuda only")
    assert {"torch:chunked", "sdpa:math"} <= set(found.entries)
    assert not set(found.left_out) & set(found.entries)
