"""Files of users with methods or kernels."""

from __future__ import annotations

from longca.bench.plan.plugin_trial import refuse_harmful
from longca.kernels import registry as kernels
from longca.parallel import registry as methods


def load_plugin(path: str) -> list[str]:
    """The methods of a user's file, or else its kernels."""
    return methods.load_plugin(path) or kernels.load_plugin(path)


def load_carefully(path: str, seconds: float) -> list[str]:
    """The same after a child process has imported the file."""
    refuse_harmful(path, seconds, "fix it, or give it a longer --deadline")
    return load_plugin(path)
