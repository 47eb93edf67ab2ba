"""A cell: one measurement to be made. Everything upstream makes cells, everything downstream reads the records made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.results.problem import Operator, Pass, Problem, Split
from longca.results.record import LevelName

KEYS = 2  # the version of keys; raise it when the same fields mean another measurement
LATER_FIELDS = ("softcap", "sinks", "scale", "cudagraph")  # that problems did not have when this version began


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One problem and the kernel that is to compute it, over several ranks also the method."""

    problem: Problem
    kernel: str  # as asked for: fa4, or fa4:bands
    level: LevelName = LevelName.KERNEL
    device: str = "cpu"
    grad: bool = True  # whether the forward keeps what a backward needs: true as soon as a backward pass is planned beside it
    split: Split | None = None

    def with_problem(self, **changes: Any) -> Cell:
        """The same measurement of a problem that differs in these fields."""
        return replace(self, problem=replace(self.problem, **changes))

    def case(self, mask: AnyMask) -> Case:
        return self.problem.case(mask, self.device, self.grad)

    @property
    def title(self) -> str:
        """What runs: the method where there is one, else the kernel."""
        return self.split.method if self.split else self.kernel

    @property
    def job(self) -> Cell:
        """The part that the passes of one kernel on one problem share: they are prepared and checked once."""
        return self.with_problem(pass_=Pass.BOTH)


def fingerprint(*parts: Any) -> str:
    """A short stable hash of anything msgspec can encode."""
    return hashlib.blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=10).hexdigest()


def key(cell: Cell, digest: str, device_model: str, versions: Mapping[str, str]) -> str:
    """What makes two measurements the same. Host and commit are not part of it, so that journals of many machines can be joined.

    A field that problems got later is part of it only where it is not the default: cells of older journals keep their keys.
    """
    problem, split = cell.problem, cell.split
    fields: dict[str, Any] = {name: getattr(problem, name) for name in Problem.__struct_fields__ if name not in ("ranks", "sharing")}
    usual = {field.name: field.default for field in msgspec.structs.fields(Operator) if field.name in LATER_FIELDS}
    fields = {name: value for name, value in fields.items() if name not in usual or value != usual[name]}
    fields |= {"kernel": cell.kernel, "level": cell.level, "device": cell.device, "grad": cell.grad}
    sharing = {} if problem.sharing is None else {"sharing": msgspec.to_builtins(problem.sharing)}
    fields["split"] = None if split is None else msgspec.to_builtins(split) | {"ranks": problem.ranks} | sharing
    return fingerprint(KEYS, fields, digest, device_model, dict(versions))
