"""The results that answers come from: the journals that come with LongCA, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from longca.results.files import SHIPPED, TRANSFERS, journals, journals_below, results_file
from longca.results.reading import Results, read_all

KEPT = 4  # sets of journals that stay in memory


def shipped() -> list[Path]:
    """The journals that come with LongCA and answer questions: not those of one kernel, which `longca calibrate` reads. The largest comes
    last, so that its records count where others have the same cells: it has the most kernels of one run."""
    return sorted((folder for folder in _all_shipped() if not _is_for_calibrating(folder)), key=lambda folder: _stamps(folder)[1:])


def for_calibrating() -> list[Path]:
    """The folders that come with LongCA and that cluster files were made from."""
    return [folder for folder in _all_shipped() if _is_for_calibrating(folder)]


def portable(file: Path) -> str:
    """The path as given; that of a shipped journal without the place where LongCA is installed."""
    places = (place for place in SHIPPED if file.is_relative_to(place))
    return next((f"results/{file.relative_to(place).as_posix()}" for place in places), str(file))


def _all_shipped() -> list[Path]:
    """A folder beside an installed package is somebody else's."""
    *package, checkout = SHIPPED
    places = [*package, checkout] if (checkout.parent / "pyproject.toml").is_file() else package
    return next((folders for place in places if (folders := journals_below(place))), [])


def _is_for_calibrating(folder: Path) -> bool:
    return (folder / TRANSFERS).exists()


def load(folders: str | Path | Sequence[str | Path] | None = None) -> Results:
    """The results in these folders, or the shipped ones; they are read again only when a file has changed."""
    given = [folders] if isinstance(folders, str | Path) else folders
    chosen = journals(given) if given else shipped()
    return _read(tuple(chosen), tuple(_stamps(folder) for folder in chosen))


def _stamps(folder: Path) -> tuple[int, ...]:
    """Changes when a journal does."""
    file = results_file(folder)
    return (file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else ()


@lru_cache(maxsize=KEPT)
def _read(folders: tuple[Path, ...], stamps: tuple[tuple[int, ...], ...]) -> Results:
    return read_all(folders)
