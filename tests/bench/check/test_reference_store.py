"""One reference per problem: computed once, read unchanged by other workers, and never by other code."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longca import masks
from longca.bench.check import reference_store
from longca.bench.check.reference import reference
from longca.kernels.base import Case


def test_a_reference_is_computed_once_and_travels_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = masks.causal_document(256, seed=3)
    case, made = Case(256, 256, 4, 2, 16, 16, "bf16"), list[Any]()
    monkeypatch.setattr(reference_store, "reference", lambda *given: made.append(given) or reference(*given))
    first, second = reference_store.ReferenceStore(), reference_store.ReferenceStore()
    computed = first.get(mask, case, 0, tmp_path)
    assert first.get(mask, case, 0, tmp_path) is computed
    read = second.get(mask, case, 0, tmp_path)
    assert len(made) == 1
    assert (read.sampled.rows == computed.sampled.rows).all()
    assert (read.sampled.loud_keys == computed.sampled.loud_keys).all()
    for kind in reference_store.KINDS:
        for data_set, values in getattr(computed, kind).items():
            assert all(torch.equal(getattr(read, kind)[data_set][name], tensor) for name, tensor in values.items())
    for other in (replace(case, dtype="fp16"), replace(case, heads_kv=4)):
        second.get(mask, other, 0, tmp_path)
    second.get(mask, case, 1, tmp_path)
    assert len(made) == 4
    monkeypatch.setattr(reference_store, "MADE_BY", "other code")
    reference_store.ReferenceStore().get(mask, case, 0, tmp_path)
    assert len(made) == 5
    monkeypatch.setattr(reference_store, "MOST_BYTES", 1000)
    reference_store.ReferenceStore().get(mask, case, 2, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5  # a large one stays where it was made
