"""One reference per problem, made once and used by the workers of all kernels.

Within a worker it stays in memory while the problem stays the same. Between workers it travels as plain .npy files in the run's
cache folder, which are mapped, not parsed: at 48K tokens reading one is several times faster than computing it again.
"""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import torch

from longca.bench.check.reference import Reference, Values, home, reference
from longca.bench.check.sampled_rows import SampledRows
from longca.bench.plan.cell import fingerprint
from longca.code_version import of_texts
from longca.kernels import inputs
from longca.kernels.base import Case
from longca.masks import AnyMask

MOST_BYTES = 4 << 30  # a larger one is computed by every worker
KINDS = ("values", "rounding")
POINTS = tuple(field.name for field in fields(SampledRows))
HERE = Path(__file__).parent
LOADING = threading.Lock()  # numpy parses the header of a file with `ast`, which fails now and then in two threads at once (Python 3.11)
MADE_BY = of_texts([HERE / "sampled_rows.py", HERE / "reference.py", Path(inputs.__file__)])  # other code makes other references


class ReferenceStore:
    def __init__(self) -> None:
        self._name, self._held = "", None

    _held: Reference | None

    def get(self, mask: AnyMask, case: Case, seed: int, cache: Path | None, ranks: int = 1, all_rows: bool = False) -> Reference:
        """The reference of this problem, from memory, from the cache, or computed and put there; `ranks` of a machine hold one each."""
        name = "reference-" + fingerprint(mask.digest, asdict(replace(case, deterministic=False)), seed, all_rows, MADE_BY)
        if self._name != name or self._held is None:
            self.forget()
            path = None if cache is None else cache / name
            if path is not None and path.exists():
                with LOADING:
                    self._held = replace(load(path, case, ranks), mask=mask)
            else:
                self._held = reference(mask, case, seed, ranks, all_rows)
                if path is not None:
                    save(self._held, path)
            self._name = name
        return self._held

    def forget(self) -> None:
        self._name, self._held = "", None


def save(made: Reference, path: Path) -> None:
    """Into a folder that appears only when it is complete; left out where it would be large, or the disk is short."""
    tensors = {
        f"{kind}.{data_set}.{name}": tensor
        for kind in KINDS
        for data_set, values in getattr(made, kind).items()
        for name, tensor in values.items()
    }
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > MOST_BYTES or size > shutil.disk_usage(path.parent).free // 4:
        return
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.mkdir()
        for name in POINTS:
            np.save(fresh / f"{name}.npy", getattr(made.sampled, name))
        for name, tensor in tensors.items():
            np.save(fresh / f"{name}.npy", tensor.cpu().numpy())
        fresh.rename(path)
    except OSError:  # a full disk is no reason to stop: the next worker computes it again
        shutil.rmtree(fresh, ignore_errors=True)


def load(path: Path, case: Case, ranks: int = 1) -> Reference:
    read: dict[str, dict[str, Values]] = {kind: {} for kind in KINDS}
    keys_on = home(case, ranks)
    for file in path.glob("*.*.*.npy"):
        kind, data_set, name, _ = file.name.split(".")
        mapped = torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
        read[kind].setdefault(data_set, {})[name] = mapped.to(keys_on if kind == "values" and name in ("dk", "dv") else case.device)
    points = SampledRows(*(np.load(path / f"{name}.npy", allow_pickle=False) for name in POINTS))
    return Reference(points, read["values"], read["rounding"])
