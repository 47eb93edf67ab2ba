"""Names of kernels beside plugins: what is a typo is refused, what a broken plugin may have offered is recorded."""

from pathlib import Path

import pytest
from longca.bench.catalogue import catalogue
from longca.bench.suite import Suite

from longca.errors import BadInput


def suite(*kernels: str) -> Suite:
    return Suite(kernels=kernels, masks=("causal",), seqlens=("16",))


@pytest.fixture
def broken(tmp_path: Path) -> list[str]:
    files = [tmp_path / "one" / "mine.py", tmp_path / "two" / "mine.py"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"raise RuntimeError('number {number}')\n")
    return list(map(str, files))


def test_a_typo_beside_a_broken_plugin_is_a_typo(broken: list[str], plugins: Path) -> None:
    given = [broken[0], str(plugins / "cheap.py")]
    for name, meant in (("sdpaa", "sdpa"), ("cheep", "cheap"), ("mein", "mine")):
        with pytest.raises(BadInput, match=f"did you mean '{meant}'"):
            catalogue(suite(name), given, "cpu", only_named=True)
    with pytest.raises(BadInput, match="unknown variant of cheap 'foo'; there are none"):
        catalogue(suite("cheap:foo"), given, "cpu", only_named=True)
    found = catalogue(suite("mine", "zzzzzz"), given, "cpu", only_named=True)
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
    reasons = {label: entry.failure[1] for label, entry in found.entries.items() if entry.failure}
    assert "number 0" in reasons["mine"]
    assert "number 1" in reasons[broken[1]]


def test_a_broken_file_is_told_even_where_only_others_are_wanted(broken: list[str]) -> None:
    found = catalogue(Suite(kernels=("torch:plain",)), broken[:1], "cpu", only_named=True)
    assert list(found.entries) == ["torch:plain"]
    assert len(found.left_out) == 1
    assert all(found.left_out.values())
