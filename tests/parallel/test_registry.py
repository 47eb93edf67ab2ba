"""Methods are found, listed without torch, and may come from a user's file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from longca import code_version
from longca.errors import BadInput
from longca.parallel import registry
from parallel.running import assert_right, case_of, mask_of, plan_of, reference, run_local

PLUGIN = """
from longca.parallel.method import Method
from longca.parallel.sharding import contiguous


class PlainRing(Method):
    name = "plain_ring"
    about = "a ring over contiguous tokens"
    needs = "nothing"
    has_ring = True

    def shards(self, mask, grid):
        return contiguous(mask.seqlen_q, grid.ring)

    def program(self, plan, comm):
        from longca.parallel.primitives.ring import Ring

        return Ring(plan.local_kernel(comm), comm, plan.mask, plan.shards, (0, plan.case.heads_q))
"""


PUBLISHED = ["ulysses", "ring_p2p", "ring_allgather", "usp", "loongtrain", "magi"]  # in the order of the published charts


def test_all_methods_say_what_they_need_and_the_published_ones_keep_their_order() -> None:
    entries = registry.listing()
    assert [entry["name"] for entry in entries if entry["name"] in PUBLISHED] == PUBLISHED
    assert all(entry["about"] and entry["needs"] for entry in entries)
    assert {"ulysses", "ring_allgather"} <= {entry["name"] for entry in entries if entry["blocks"] == "yes"}


def test_the_version_of_a_method_from_a_file_covers_the_file_and_its_primitives(tmp_path: Path) -> None:
    versions = set()
    for folder, text in (("a", PLUGIN), ("b", PLUGIN), ("c", f"{PLUGIN}\nedited = 1\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(text)
        registry._plugins.clear()
        registry.load_plugin(tmp_path / folder / "mine.py")
        versions.add(registry.code_version("plain_ring"))
    assert len(versions) == 2
    assert code_version.of_texts([tmp_path / "a" / "mine.py"]) not in versions


def test_listing_needs_no_torch() -> None:
    program = "import sys; from longca.parallel import registry; registry.listing(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_method_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    assert registry.load_plugin(file) == ["plain_ring"]
    assert "plain_ring" in registry.names()
    mask, case = mask_of("prefix_lm_document"), case_of(197)
    assert_right(run_local(plan_of("plain_ring", mask, case, 3)), reference(mask, case))


def test_plugins_may_not_take_a_known_name_or_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.replace("plain_ring", "usp"))
    with pytest.raises(BadInput, match="'usp', which is a method of LongCA"):
        registry.load_plugin(file)
    with pytest.raises(BadInput, match="no plugin file"):
        registry.load_plugin(tmp_path / "nothing.py")
