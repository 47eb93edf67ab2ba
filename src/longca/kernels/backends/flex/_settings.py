"""Settings of torch that hold during a call."""

from __future__ import annotations

from threading import Lock
from typing import Any


class ChangedSettings:
    """Changes attributes of torch's modules or classes while any thread is inside: a user's own compiled model has other ones."""

    def __init__(self, settings: dict[Any, dict[str, Any]]) -> None:
        self._settings, self._lock, self._inside = settings, Lock(), 0
        self._before: dict[Any, dict[str, Any]] = {}

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = {module: {name: getattr(module, name) for name in values} for module, values in self._settings.items()}
                self._write(self._settings)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._write(self._before)

    def _write(self, settings: dict[Any, dict[str, Any]]) -> None:
        for module, values in settings.items():
            for name, value in values.items():
                setattr(module, name, value)
