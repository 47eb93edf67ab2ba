"""What became of a kernel on a mask over all lengths, in one word."""

from __future__ import annotations

from collections.abc import Iterable

from longca.results.record import NEVER_RAN, Record, Status, Word


class Coverage(Word):
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
