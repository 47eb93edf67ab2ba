"""Masks of a user's own are measured like any other: in workers that load their files."""

from pathlib import Path
from typing import Any

import pytest

from longca import masks
from longca.results.reading import read


@pytest.mark.slow
def test_masks_of_a_plugin_a_file_and_an_expression(start_run: Any, tmp_path: Path, plugins: Path) -> None:
    mine = masks.causal(64) - masks.sliding_window(64, w=3)
    file = masks.write_mask(mine, tmp_path / "mine.json")
    (tmp_path / "lengths.txt").write_text("20, 30, 40")
    asked = f"stairs,first_tokens & causal,{file},causal_document & sink_window_causal(s=2, w=8)"
    run = start_run(
        *("--kernels", "torch:plain", "--plugin", plugins / "own_masks.py", "--masks", asked, "--passes", "fwd"),
        *("--lengths", tmp_path / "lengths.txt", "--set", "step=8", "--out", tmp_path / "out"),
    )
    said = run.communicate()
    assert run.returncode == 0, said
    results = read(tmp_path / "out")
    measured = {record.problem.mask: record for record in results.records}
    assert {record.status.value for record in measured.values()} == {"ok"}
    documents = [20, 30, 14]
    expected = {
        "stairs": masks.block_causal_document(64, documents=[64], B=8),
        str(file): mine,
        "causal_document & sink_window_causal(s=2, w=8)": masks.causal_document(64, documents=documents)
        & masks.sink_window_causal(64, s=2, w=8),
    }
    assert {name: measured[name].built.digest for name in expected} == {name: mask.digest for name, mask in expected.items()}
    assert measured["stairs"].built.params == {"step": 8}
    entry = results.masks[measured["first_tokens & causal"].built.digest, "first_tokens & causal"]
    assert entry.documents == documents
    assert results.environment(results.records[0]).plugins == {str(plugins / "own_masks.py"): ["first_tokens", "stairs"]}
