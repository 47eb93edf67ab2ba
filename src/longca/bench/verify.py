"""Checking kernels without timing them: every wanted kernel on every wanted mask and length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from longca.bench.check import Error, check
from longca.bench.reference import Reference, reference
from longca.errors import LongcaError, Refused, Unavailable
from longca.kernels import registry
from longca.kernels.base import Case, Kernel
from longca.masks import AnyMask

WRONG = ("wrong", "error")


@dataclass(frozen=True)
class Finding:
    """One kernel on one mask: ok, wrong, unsupported, unavailable, oom or error, with the reason and the errors per tensor."""

    kernel: str
    mask: str
    seqlen: int
    status: str
    reason: str
    errors: dict[str, Error]


def verify(labels: Sequence[str], masks: Sequence[AnyMask], case: Case, seed: int = 0) -> Iterator[Finding]:
    """Findings as they come, mask by mask, so that the reference of a mask is made once and used by all kernels."""
    for mask in masks:
        shaped = replace(case, seqlen_q=mask.seqlen_q, seqlen_k=mask.seqlen_k)
        references = _References(mask, seed)
        for label in labels:
            yield _one(label, mask, shaped, references, seed)


class _References:
    """The reference of one mask, made when the first kernel asks for it."""

    def __init__(self, mask: AnyMask, seed: int) -> None:
        self.mask, self.seed, self.made = mask, seed, dict[Case, Reference]()

    def get(self, case: Case) -> Reference:
        if case not in self.made:
            self.made[case] = reference(self.mask, case, self.seed)
        return self.made[case]


def _one(label: str, mask: AnyMask, case: Case, references: _References, seed: int) -> Finding:
    def finding(status: str, reason: str = "", kernel: str = label, errors: dict[str, Error] | None = None) -> Finding:
        return Finding(kernel, mask.name, mask.seqlen_q, status, reason, errors or {})

    try:
        chosen, case = _forward_only_if_needed(label, mask, case)
        attention = chosen.prepare(mask, case)
        verdict = check(chosen, attention, case, references.get(case), seed)
    except Refused as refusal:
        return finding("unsupported", str(refusal))
    except Unavailable as missing:
        return finding("unavailable", str(missing))
    except LongcaError as error:
        return finding("error", str(error))
    except (Exception, SystemExit) as error:  # a kernel may raise anything; the others are still to be checked
        if "out of memory" in str(error).lower():
            return finding("oom", str(error).splitlines()[0])
        return finding("error", f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")
    forward_only = "" if case.backward else "forward only"
    return finding("ok" if verdict.ok else "wrong", verdict.reason or forward_only, chosen.label, verdict.errors)


def _forward_only_if_needed(label: str, mask: AnyMask, case: Case) -> tuple[Kernel, Case]:
    """A kernel without a backward is still checked forward."""
    try:
        return registry.choose(label, mask, case), case
    except Refused:
        forward = replace(case, backward=False)
        return registry.choose(label, mask, forward), forward
