"""`longca.calibrate`: makes a cluster file for `longca.simulate` from measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from longca.api.files import write_text
from longca.results.shown import Part, Shown
from longca.simulate import calibrate as fits
from longca.simulate import cluster as clusters
from longca.simulate.calibrate import Fit
from longca.simulate.cluster import Cluster


@dataclass(frozen=True, repr=False)
class Calibrated(Shown):
    """A cluster, and the constants that were fitted to measurements."""

    cluster: Cluster
    fits: list[Fit]
    ok = True

    @property
    def toml(self) -> str:
        """The cluster as a file for `longca.simulate`."""
        return clusters.to_toml(self.cluster)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per fitted constant."""
        return [fit._asdict() for fit in self.fits]

    def parts(self) -> list[Part]:
        return [f"{fit.name} = {fit.value:g} from {fit.measurements} measurements, median error {fit.error:.1%}" for fit in self.fits]


def calibrate(
    folder: str | Path, *, base: str = "h100-ib", kernel: str | None = None, device: str | None = None, out: str | Path | None = None
) -> Calibrated:
    """Fits a cluster to the journals of kernels and the transfers in a folder; constants that were not measured come from `base`.

    `kernel` uses only its records (default: the fastest for each mask), `device` names the device, and `out` is a TOML file to write.

    >>> longca.calibrate("longca-cp-8", out="mine.toml").fits
    """
    name, start = clusters.find(base)
    cluster, fitted = fits.calibrate(Path(folder), start, kernel or "")
    source = f"made from {folder}; what was not measured there is from {name}"
    made = Calibrated(replace(cluster, source=source, device=device or start.device, error=0.0), fitted)
    if out is not None:
        write_text(out, made.toml)
    return made
