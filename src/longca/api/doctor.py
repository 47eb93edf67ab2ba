"""`longca.doctor`: what this machine can do, what disturbs measurements, what to install."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longca import devices
from longca.bench.plan.suite import Suite
from longca.bench.run import environment, health, words
from longca.kernels import registry
from longca.kernels.base import No
from longca.results.record import Environment
from longca.results.shown import Part, Shown


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """The machine, each kernel with the reason why it does not run here (or an empty text), and what disturbs measurements."""

    environment: Environment
    kernels: dict[str, str]
    findings: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing disturbs measurements."""
        return not self.findings

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per kernel."""
        return [{"kernel": label, "runs": not why, "why": why} for label, why in self.kernels.items()]

    def to_json(self) -> dict[str, Any]:
        return {"environment": self.environment, "kernels": self.kernels, "findings": self.findings}

    def parts(self) -> list[Part]:
        return list(words.diagnosis(self.environment, self.kernels, self.findings))


def doctor(device: str | None = None) -> Diagnosis:
    """Examines this machine: its device (cpu or cuda, by default a GPU where there is one), its kernels, and what disturbs measurements.

    >>> longca.doctor().findings
    """
    kind = devices.named(device)
    facts = environment.describe(kind, Suite())
    labels = [label for name in registry.names() for label in registry.labels(name)]
    answers = {label: registry.available(registry.get(label), kind) for label in labels}
    kernels = {label: answer.reason if isinstance(answer, No) else "" for label, answer in answers.items()}
    return Diagnosis(facts, kernels, health.findings())
