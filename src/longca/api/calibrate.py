"""`longca.calibrate`: makes a cluster file for `longca.simulate` from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from longca.api.files import write_text
from longca.api.journals import folder_of
from longca.simulate import calibrate as fits
from longca.simulate import cluster as clusters
from longca.simulate.answers import Calibrated
from longca.text import parse_list


def calibrate(
    folder: str | Path, *, base: str = "h100-ib", kernel: str | None = None, masks: str | Sequence[str] = (), device: str | None = None,
    out: str | Path | None = None,
) -> Calibrated:  # fmt: skip
    """Fits a cluster to the journals of kernels and the transfers in a folder; constants that were not measured come from `base`.

    `kernel` uses only its records (default: the fastest for each mask), and `masks` only theirs, so that `simulate --against` can judge the
    cluster on the others. `device` names the device (default: that of the records), and `out` is a TOML file to write.

    >>> longca.calibrate("longca-cp-8", out="mine.toml").fits
    """
    place = folder_of(folder)
    name, start = clusters.find(str(base))
    names = parse_list(masks) if isinstance(masks, str) else masks
    cluster, fitted = fits.calibrate(Path(place), start, kernel or "", names)
    source = f"made from {place}; what was not measured there is from {name}"
    about = f"{name} with constants from {place}"
    made = Calibrated(replace(cluster, about=about, source=source, compared="", device=str(device or cluster.device)), fitted)
    if out is not None:
        write_text(out, made.toml)
    return made
