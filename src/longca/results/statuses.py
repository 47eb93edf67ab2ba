"""The letter and the words of each status, and of a kernel over all lengths: the one place for page, Markdown, figures and terminal."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from longca.results.naming import Row
from longca.results.record import NEVER_RAN, Record, Status

LETTERS = {
    Status.SKIPPED: "L",
    Status.UNSUPPORTED: "X",
    Status.UNAVAILABLE: "X",
    Status.OOM: "M",
    Status.TIMEOUT: "T",
    Status.WRONG: "W",
    Status.ERROR: "E",
    Status.INVALID: "E",
    Status.DOUBTFUL: "D",
}
WORDS = {status: status.value for status in Status} | {
    Status.OOM: "out of memory",
    Status.TIMEOUT: "timed out",
    Status.SKIPPED: "skipped by a rule",
}
NOT_RUN = "not run"
LETTER_WORDS = {letter: " or ".join(WORDS[status] for status in LETTERS if LETTERS[status] == letter) for letter in "XMTWELD"}
LETTERS_EXPLAINED = (
    f"A letter at the foot stands where a kernel has no time that counts: "
    f"{'; '.join(f'{letter} {words}' for letter, words in LETTER_WORDS.items())}. "
    "A grey letter stands for several kernels, and a number says how many: X3 means that three kernels are unsupported or unavailable."
)


def explaining(rows: Iterable[Row]) -> Row | None:
    """The row that tells why there is no time: a wrong one before all others, a skipped one only where nothing else is known."""
    order = {Status.WRONG: -1, Status.SKIPPED: 1}
    failed = (row for row in rows if not row.record.ok)
    return min(failed, key=lambda row: order.get(row.record.status, 0), default=None)


def why(rows: Iterable[Row]) -> str:
    """The words for rows without a time."""
    row = explaining(rows)
    return WORDS[row.record.status] if row else NOT_RUN


class Coverage(StrEnum):
    """The states of a coverage board, as they are explained to readers."""

    MEASURED = "measured"
    SIMULATED = "simulated"
    PARTLY = "measured in part"
    PARTLY_SIMULATED = "simulated in part"
    WRONG = "wrong"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not run"


_WRONG = {Status.WRONG, Status.INVALID, Status.DOUBTFUL}
_FAILED = {Status.ERROR, Status.TIMEOUT, Status.OOM}


def coverage(records: Iterable[Record]) -> Coverage:
    """The state of one kernel on one mask. A single wrong record makes it wrong: its other speeds may be wrong, too."""
    known = list(records)
    statuses = {record.status for record in known}
    if statuses & _WRONG:
        return Coverage.WRONG
    if Status.OK in statuses:
        simulated = all(record.simulated for record in known if record.ok)
        if statuses == {Status.OK}:
            return Coverage.SIMULATED if simulated else Coverage.MEASURED
        return Coverage.PARTLY_SIMULATED if simulated else Coverage.PARTLY
    if statuses & _FAILED:
        return Coverage.FAILED
    return Coverage.UNSUPPORTED if statuses & (NEVER_RAN - {Status.SKIPPED}) else Coverage.NOT_RUN
