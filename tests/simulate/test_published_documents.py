"""The documents that predictions are compared on are those that benchmarks/published_documents.py draws."""

import runpy
from pathlib import Path

import pytest

from longca.simulate.validate import published

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "published_documents.py"


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [8, 64])
def test_the_published_documents_are_drawn_by_the_script(gpus: int) -> None:
    drawn = runpy.run_path(str(SCRIPT))["packs"](gpus * 8192)
    assert published().documents[str(gpus)] == drawn
    assert all(sum(pack) == gpus * 8192 for pack in drawn)
