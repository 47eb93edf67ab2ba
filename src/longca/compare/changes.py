"""What changed within the journals of one page: cells that were measured again, with other code or versions, or in another folder."""

from __future__ import annotations

from longca.compare.verdicts import PRACTICAL, Cell, judge
from longca.results.reading import Results, by_work


def changes(results: Results) -> list[Cell]:
    """Cells that have an earlier record, with the verdict of `longca compare`; the worst first. Records of several folders are in the order
    of their dates; of one date, those without versions are of an older LongCA."""
    if not results.replaced and len(results.folders) < 2:
        return []
    written = by_work([*results.replaced, *results.records], results.environments)
    newest = {record.key: record for record in results.records}
    dates = {name: environment.date or "" for name, environment in results.environments.items()}
    pairs = []
    for several in written.values():
        own = sorted(several, key=lambda record: (dates.get(record.env, ""), record.versions is not None))
        if len(own) > 1 and own[-1] is newest.get(own[-1].key):
            pairs.append((own[-2], own[-1]))
    return judge(pairs, PRACTICAL)
