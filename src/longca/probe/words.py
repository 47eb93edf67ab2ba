"""Sentences about a probed model."""

from __future__ import annotations

from collections.abc import Sequence

from longca.probe import findings as facts
from longca.probe.findings import Finding
from longca.probe.probe import Probed
from longca.text import plural

MOST_NAMED = 3  # pairs or ranges in one sentence


def sentences(probed: Probed, seqlen: int) -> list[str]:
    """What was examined and found on a number of ranks. Gradients that only repeat what outputs show are left out."""
    where = plural(probed.ranks, "rank")
    packed = f"{plural(probed.documents, 'document')}, " if probed.documents else ""
    looked = f"{packed}{len(probed.probes)} of {seqlen} tokens changed one by one"
    looked += (
        f", gradients of {plural(len(probed.rows), 'row')} read" if probed.rows else ", no gradients read (the model names no embedding)"
    )
    unclear = int((probed.seen != probed.seen).sum())
    looked += f"; {plural(unclear, 'pair')} unclear" if unclear else ""
    if not probed.findings:
        return [f"{where}: the mask is honoured ({looked})."]
    outputs = {(finding.kind, finding.causes) for finding in probed.findings if not finding.backward}
    told = [finding for finding in probed.findings if not finding.backward or (finding.kind, finding.causes) not in outputs]
    return [f"{where}: {finding_text(finding)}" for finding in told] + [f"{where}: {looked}."]


def finding_text(finding: Finding) -> str:
    return f"{_what(finding)} {_why(finding)}"


def _what(finding: Finding) -> str:
    verb = "gets a gradient from" if finding.backward else "depends on"
    if finding.kind == facts.LEAK:
        return f"LEAK: {_pairs(finding, verb)}, which the mask hides."
    if finding.kind == facts.BLIND:
        verb = "gets no gradient from" if finding.backward else "does not depend on"
        return f"BLIND: {_pairs(finding, verb)}, which the mask shows."
    if finding.kind == facts.RANKS:
        return f"RANKS: outputs of {_rows(finding)} differ from those of one rank, by {finding.value:.1e} of their spread at most."
    if finding.kind == facts.POSITIONS:
        return f"POSITIONS: documents that begin with the same ids differ in {_rows(finding)}, by {finding.value:.1e} at most."
    if finding.kind == facts.LOSS:
        return f"LOSS: the model reports {finding.value:.6g}; the mean over all tokens that have a label is {finding.expected:.6g}."
    return f"SINKS: {', '.join(finding.names)} changes no output."


def _why(finding: Finding) -> str:
    if finding.causes:
        return f"Cause: {', or '.join(finding.causes[:MOST_NAMED])}."
    return "" if finding.kind == facts.SINKS else "No known mistake explains it."


def _pairs(finding: Finding, verb: str) -> str:
    (row, token), more = finding.pairs[0], len(finding.pairs) - 1
    if finding.backward:  # the gradient arrives at the token
        text = f"token {token} {verb} the output of row {row}"
    else:
        text = f"row {row} {verb} token {token}"
    return text + (f" (and {plural(more, 'pair')} more)" if more else "")


def _rows(finding: Finding) -> str:
    """Rows as ranges."""
    rows = sorted({row for row, _ in finding.pairs})
    ranges: list[list[int]] = []
    for row in rows:
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1][1] = row
        else:
            ranges.append([row, row])
    named = [f"{first}-{last}" if last > first else str(first) for first, last in ranges]
    return f"{'row' if len(rows) == 1 else 'rows'} {', '.join(named[:MOST_NAMED])}{', ...' if len(named) > MOST_NAMED else ''}"


def table_rows(results: Sequence[Probed]) -> list[dict[str, object]]:
    """One row per finding, for programs."""
    return [
        {
            "ranks": result.ranks,
            "finding": finding.kind,
            "backward": finding.backward,
            "pairs": len(finding.pairs),
            "first": list(finding.pairs[0]) if finding.pairs else None,
            "causes": list(finding.causes),
            "text": finding_text(finding),
        }
        for result in results
        for finding in result.findings
    ]
