"""Cluster files: those of the package, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from longca.bench.plan.suite import names
from longca.errors import BadInput
from longca.simulate.cluster import changed, find, to_toml

GOOD = to_toml(find("h100-ib")[1])


@pytest.mark.parametrize("name", names("clusters"))
def test_clusters_of_the_package_are_read_and_written(name: str, tmp_path: Path) -> None:
    label, cluster = find(name)
    assert label == name
    assert cluster.source
    (tmp_path / "copy.toml").write_text(to_toml(cluster))
    assert find(str(tmp_path / "copy.toml")) == ("copy", cluster)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("per_node = 8", "per_node = 0", r"per_node: Expected `int` >= 1, not 0"),
        ("gb_s = 450.0", 'gb_s = "fast"', r"inside.gb_s: Expected `float`, got `str`"),
        ("efficiency = 0.62", "efficiency = 1.2", r"inside.efficiency: Expected `float` <= 1.0"),
        ('all_gather = "ring"', 'all_gather = "rings"', "all_gather.*rings"),
        ("latency_us = 10.0", "latency_ms = 10.0", "latency_ms.*latency_us"),
        ("per_node = 8\n", "", "per_node"),
        ("[compute]", '[slow]\n"first" = 2.0\n\n[compute]', "slow has 'first', which must be a rank such as 3, or ranks such as 8-15"),
    ],
)
def test_bad_files_name_the_field_and_what_it_may_be(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in GOOD
    (tmp_path / "bad.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(BadInput, match=message) as error:
        find(str(tmp_path / "bad.toml"))
    assert "bad.toml" in str(error.value)


def test_unknown_clusters_and_constants() -> None:
    with pytest.raises(BadInput, match="h100-ib"):
        find("h100")
    with pytest.raises(BadInput, match=r"between\.speed is no constant"):
        changed(find("h100-ib")[1], {"between.speed": 1.0})
    assert changed(find("h100-ib")[1], {"between.gb_s": 100.0}).between.bytes_s == 90e9


def test_slow_ranks() -> None:
    _, cluster = find("h100-ib")
    slow = type(cluster)(**{name: getattr(cluster, name) for name in cluster.__struct_fields__} | {"slow": {"3": 1.5, "8-9": 2.0}})
    assert [slow.slowness(rank) for rank in (0, 3, 8, 9, 10)] == [1.0, 1.5, 2.0, 2.0, 1.0]
