"""Files of users with methods or kernels. A file is imported by a child process first: importing it may do anything, even end the run.

`python -m longca.bench.cp_plugins FILE` is that child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

from longca.bench.outcome import of_exit
from longca.bench.supervisor import KEPT_OUTPUT
from longca.errors import BadInput, LongcaError
from longca.kernels import registry as kernels
from longca.parallel import registry as methods

SOUND, REFUSED = 96, 97  # the child's exit codes where the file can be imported: nothing that a file ends its process with


def load_plugin(path: str) -> list[str]:
    """The methods of a user's file, or else its kernels."""
    return methods.load_plugin(path) or kernels.load_plugin(path)


def load_carefully(path: str, seconds: float) -> list[str]:
    """The same in a child process first, so that a file which ends or hangs its process is a sentence."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}  # it finds what this process finds
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", __name__, path]
    with tempfile.TemporaryFile() as output:  # a pipe would stay open for as long as anything lives that the file started
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BadInput(f"the plugin {path} is not imported within {seconds:g} s; mend it, or give it a longer --deadline.") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # and what it started
            child.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - KEPT_OUTPUT))
        words = output.read().decode(errors="replace")
    if child.returncode not in (SOUND, REFUSED):
        _, why = of_exit(child.returncode, "import", words)
        raise BadInput(f"the plugin {path} breaks the process that imports it, so mend it first: {why}.")
    return load_plugin(path)  # what it is refused for is said here


def main(path: str) -> int:
    try:
        load_plugin(path)
    except LongcaError:
        return REFUSED
    return SOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
