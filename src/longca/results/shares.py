"""Errors as shares of the tolerance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from longca.results.naming import Row
from longca.results.problem import TENSORS
from longca.results.record import Status


class WorstError(NamedTuple):
    """The largest error as a share of its tolerance: infinite where the error is not finite."""

    share: float
    tensor: str
    row: Row


def worst_error(rows: Iterable[Row]) -> WorstError | None:
    """The worst error of the tensors that the rows' passes compute; of a wrong row, of all that were checked: a backward may be wrong for
    the lse that it starts from."""
    worst, worst_share = None, -1.0
    for row in rows:
        record = row.record
        check, status = record.check, record.status
        if check and (status in (Status.OK, Status.WRONG)):
            for name in TENSORS if status is Status.WRONG else record.problem.pass_.tensors:
                error = check.get(name)
                if error is not None and error.allowed is not None and (share := error.share) > worst_share:
                    worst, worst_share = (name, row), share
    return None if worst is None else WorstError(worst_share, *worst)
