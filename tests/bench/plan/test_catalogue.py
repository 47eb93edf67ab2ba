"""Names of kernels beside plugins: a typo is refused, and so is a plugin that cannot be loaded."""

from pathlib import Path

import pytest

from longca.bench.one_device.level import offered_by
from longca.bench.plan.catalogue import Catalogue, Entry, make_catalogue
from longca.bench.plan.suite import Suite
from longca.cli import main
from longca.errors import BadInput
from longca.results.settings import Limits


def suite(*kernels: str) -> Suite:
    return Suite(kernels=kernels, masks=("causal",), seqlens=("16",))


def catalogue(asked: Suite, plugins: list[str], device: str, only_named: bool = False) -> Catalogue:
    return make_catalogue(asked, offered_by(plugins, device, Limits()), device, only_named)


def test_names_and_variants_that_nobody_has_are_refused(plugins: Path) -> None:
    offered = offered_by([str(plugins / "cheap.py")], "cpu", Limits())
    with pytest.raises(BadInput, match="did you mean 'cheap'"):
        make_catalogue(suite("cheep"), offered, "cpu", only_named=True)
    with pytest.raises(BadInput, match="unknown variant of cheap 'foo'; there are none"):
        make_catalogue(suite("cheap:foo"), offered, "cpu", only_named=True)
    assert make_catalogue(suite("torch:plain"), offered, "cpu", only_named=True).left_out == {"cheap": "--kernels does not name it"}


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


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("broken_import.py", "fails when it is imported: RuntimeError: I need a library that nobody has (broken_import.py line 3)."),
        ("dying_import.py", "cannot be loaded: its process ended with exit code 3 during starting."),
        ("/etc/passwd", "the plugin /etc/passwd is not a Python file; its name must end in .py."),
        ("none.py", "there is no plugin file "),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_refused_before_anything_is_measured(
    file: str, words: str, plugins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--kernels", "torch:plain", "--masks", "causal", "--seqlens", "16", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert main(["run", "--plugin", str(plugins / file), *asked]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_catalogue_tells_own_kernels_files_and_versions_apart(plugins: Path) -> None:
    found = make_catalogue(suite("torch:plain"), {"mine:a": Entry("mine:a", {"code": "1"}, "mine.py")}, "cpu")
    assert list(found.entries) == ["torch:plain", "mine:a"]
    assert found.plugin_kernels == ["mine"]
    assert found.plugin_files == {"mine.py": ["mine"]}
    assert found.versions["mine:a"] == {"code": "1"}
    assert found.versions["torch:plain"].keys() == {"torch", "code"}
    offered = offered_by([str(plugins / "variants.py")], "cpu", Limits())
    assert list(offered) == ["kk:a", "kk:good", "kk:b", "kk:c"]
    assert all(entry.versions.keys() == {"torch", "code"} for entry in offered.values())


def test_what_all_leaves_out_is_told_with_its_reason() -> None:
    asked = Suite(kernels=("all",), without=("torch:plain", "flex"), masks=("causal",), seqlens=("16",))
    found = catalogue(asked, [], "cpu")
    assert found.left_out["torch:plain"] == found.left_out["flex"] == "the suite excludes it"
    assert found.left_out["fa3"].startswith("runs on cuda only")
    assert {"torch:chunked", "sdpa:math"} <= set(found.entries)
    assert not set(found.left_out) & set(found.entries)
