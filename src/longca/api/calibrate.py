"""`longca.calibrate`: makes a cluster file for `longca.simulate` from measurements."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from longca.api.files import write_text
from longca.simulate import calibrate as fits
from longca.simulate import cluster as clusters
from longca.simulate.answers import Calibrated


def calibrate(
    folder: str | Path, *, base: str = "h100-ib", kernel: str | None = None, device: str | None = None, out: str | Path | None = None
) -> Calibrated:
    """Fits a cluster to the journals of kernels and the transfers in a folder; constants that were not measured come from `base`.

    `kernel` uses only its records (default: the fastest for each mask), `device` names the device (default: that of the records), and
    `out` is a TOML file to write.

    >>> longca.calibrate("longca-cp-8", out="mine.toml").fits
    """
    name, start = clusters.find(base)
    cluster, fitted = fits.calibrate(Path(folder), start, kernel or "")
    source = f"made from {folder}; what was not measured there is from {name}"
    about = f"{name} with constants from {folder}"
    made = Calibrated(replace(cluster, about=about, source=source, compared="", device=device or cluster.device), fitted)
    if out is not None:
        write_text(out, made.toml)
    return made
