"""Choices on disk: one small JSON file per class, device and versions, in the user's cache folder.

A file is written beside its place and renamed, so that readers see all of it or nothing; one that cannot be read counts as missing, and the
trial is made again. While a process makes a trial it holds a lock, so that others on the machine neither disturb its times nor repeat it. A
folder that cannot be written only means that the choice lives as long as the process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec

from longca.kernels.choice.choice import Choice

FOLDER = "LONGCA_CACHE"  # the environment variable that moves the cache
FORMAT = 3  # raise it when files change, or trials choose by another rule
WAIT_S, STEP_S = 120.0, 0.05  # the longest to wait for another process's trial, and between two looks


class Kept(msgspec.Struct, frozen=True):
    """The contents of a file."""

    format: int
    key: dict[str, Any]
    choice: Choice


def folder() -> Path:
    """Returns the folder of choices: below $LONGCA_CACHE, else below the user's cache folder."""
    own = os.environ.get(FOLDER)
    home = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "longca"
    return home.expanduser() / "choices"


def path_of(key: Mapping[str, Any]) -> Path:
    return folder() / f"{hashlib.blake2b(_text(key), digest_size=12).hexdigest()}.json"


def read(key: Mapping[str, Any]) -> Choice | None:
    """Returns the choice that was kept under this key; None where there is none that can be read."""
    try:
        kept = msgspec.json.decode(path_of(key).read_bytes(), type=Kept)
    except (OSError, RuntimeError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return kept.choice if kept.format == FORMAT and _text(kept.key) == _text(key) else None


def write(key: Mapping[str, Any], choice: Choice) -> None:
    """Keeps a choice, in one step; does nothing where the folder cannot be written."""
    with suppress(OSError, RuntimeError):
        path = path_of(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            try:
                file.write(msgspec.json.format(msgspec.json.encode(Kept(FORMAT, dict(key), choice)), indent=1) + b"\n")
                file.flush()
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise


@contextmanager
def locked() -> Iterator[None]:
    """Holds the lock of trials, which the system gives back when a process ends; goes on without it after `WAIT_S`."""
    handle = None
    with suppress(OSError, RuntimeError):
        folder().mkdir(parents=True, exist_ok=True)
        handle = os.open(folder() / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _wait(handle)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _wait(handle: int) -> None:
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(STEP_S)
    return None


def _text(key: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(key, order="sorted")
