"""Files of users with masks of their own: the run imports these, as masks are built where cells are planned and where they are measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longca import masks
from longca.bench.plan.plugin_trial import refuse_harmful
from longca.masks.own import mentioned_in
from longca.results.settings import Limits


def load_masks(paths: Sequence[str]) -> list[str]:
    """Loads the masks of those files that use `longca.mask`, and returns their names. A child process imports each file first.
    Files without masks are left to who asks for their kernels or methods."""
    names = []
    for path in paths:
        if Path(path).is_file() and mentioned_in(path):
            refuse_harmful(path, Limits().start_s)
            names += masks.load_plugin(path)
    return names
