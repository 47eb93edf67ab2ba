"""What became of a child process that did not end its job: a status and a reason."""

from __future__ import annotations

import signal

from longca.errors import OUT_OF_MEMORY
from longca.text import short

PHASES = {
    "start": "starting",
    "build": "preparation or the first call",
    "reference": "the reference",
    "check": "checking",
    "time": "measuring",
}
SILENT_S = 10.0  # without a message or an answer, after which whoever waits is told so, once
FRAMES = ("File ", "Current thread", "Thread ", "Extension modules", "...", "<")  # how lines of a stack begin


class ChildLost(Exception):
    """The child is gone. `status` is error, timeout or oom, and `reason` a whole sentence; `event` is the part of it that tells what
    happened ("was killed by SIGSEGV"), and `output` the end of what the child printed."""

    def __init__(self, status: str, reason: str, event: str = "", output: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.event, self.output = status, reason, event, output


def lost(status: str, event: str, phase: str, output: str) -> ChildLost:
    """The exception for an event in a phase, with the child's last words."""
    words = last_words(output)
    reason = f"its process {event} during {PHASES.get(phase, phase)}" + (f"; its last words: {words}" if words else "")
    return ChildLost(status, short(reason), event, output)


def of_exit(code: int, phase: str, output: str) -> ChildLost:
    """The exception for a child that ended with an exit code, or with minus the number of a signal."""
    if code < 0:
        event = f"was killed by {signal.Signals(-code).name if -code in set(signal.Signals) else -code}"
    else:
        event = f"ended with exit code {code}"
    return lost("oom" if any(word in output.lower() for word in OUT_OF_MEMORY) else "error", event, phase, output)


def last_words(output: str) -> str:
    """The last line of an output that is not part of a stack."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(FRAMES)]
    return telling[-1][:200] if telling else ""
