"""The right values of what is checked: all tensors of a kernel, or the rows and keys of one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from longca.bench.check.comparison import Tensors, compare, compare_rows
from longca.bench.check.reference import Reference
from longca.bench.check.verdict import Verdict
from longca.kernels.base import Case


@dataclass(frozen=True)
class Expected:
    """`reference` is of out and the gradients; a rank computes the lse of other rows and heads than it owns."""

    reference: Reference
    lse: Reference
    case: Case  # the shapes of the tensors
    lse_shape: tuple[int, ...] | None = None  # where it is not that of the case
    needs_lse: bool = False  # the lse was there when it was checked

    @staticmethod
    def of_kernel(reference: Reference, case: Case, needs_lse: bool = False) -> Expected:
        return Expected(reference, reference, case, needs_lse=needs_lse)

    @property
    def of_all_rows(self) -> bool:
        return len(self.reference.sampled.rows) == self.case.seqlen_q

    def to(self, device: str | torch.device) -> Expected:
        return replace(self, reference=self.reference.to(device), lse=self.lse.to(device))

    @property
    def tokens(self) -> torch.Tensor | None:
        """The numbers of a rank's tokens in the sequence; None: they are all of it."""
        return None if self.reference.tokens is None else torch.from_numpy(self.reference.tokens)

    def compare_timed(self, tensors: Tensors, verdict: Verdict) -> None:
        """Compares the outputs of a timed call, whose dout is 0 in no row."""
        if "out" in tensors:
            self.compare(tensors, "plain", verdict)
        else:
            self.compare_dq(tensors["dq"], verdict)

    def compare(self, tensors: Tensors, data_set: str, verdict: Verdict) -> None:
        for name, tensor in tensors.items():
            compare({name: tensor}, self.lse if name == "lse" else self.reference, data_set, self.case, verdict)

    def compare_dq(self, dq_LHD: torch.Tensor, verdict: Verdict) -> None:
        """Compares dq of a dout that is 0 in no row, in the rows that have a gradient in the plain data set: dq of a row depends on its
        own dout alone."""
        sampled = self.reference.sampled
        places = np.flatnonzero(np.isin(sampled.rows, sampled.few))
        if len(places):
            compare_rows("dq", dq_LHD, sampled.rows[places], places, self.reference, "plain", self.case, verdict)
