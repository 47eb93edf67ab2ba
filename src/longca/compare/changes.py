"""What changed within the journals of one page: cells that were measured again, with other code or versions, or in another folder."""

from __future__ import annotations

from longca.compare.verdicts import Cell, judge
from longca.results.ranking import PRACTICAL
from longca.results.reading import Results, by_work


def changes(results: Results) -> list[Cell]:
    """Cells that have an earlier record, with the verdict of `longca compare`; the worst first. Records of several folders are in the order
    of their dates; of one date, those without versions are of an older LongCA."""
    if not results.replaced and len(results.folders) < 2:
        return []
    everything = [*results.replaced, *results.records]
    written = by_work(everything, results.environments)
    replaced = set(map(id, results.replaced))
    dates = {name: environment.date or "" for name, environment in results.environments.items()}
    pairs = []
    for several in written.values():
        own = sorted(several, key=lambda record: (dates.get(record.env, ""), record.versions is not None))
        if len(own) > 1 and id(own[-1]) not in replaced:
            pairs.append((own[-2], own[-1]))
    return judge(pairs, PRACTICAL)
