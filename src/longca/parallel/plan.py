"""Plan: what the ranks of a group do for one batch. It cuts the batch, computes attention, and puts results together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from longca.errors import BadInput, Refused
from longca.kernels import registry as kernels
from longca.kernels.base import Case
from longca.kernels.functional import autocast_tensors, checked_sinks, make_case, refuse_tensors
from longca.masks import AnyMask
from longca.masks.handle import Handled
from longca.parallel import batch, registry
from longca.parallel.batch import IGNORED, Batch
from longca.parallel.differentiable import gathered, summed_over_ranks, through
from longca.parallel.grid import Grid
from longca.parallel.method import make_plan
from longca.parallel.ranges import Shards, count, tokens

if TYPE_CHECKING:
    from longca.parallel.group import Group
    from longca.parallel.primitives.program import Program


@dataclass(eq=False)
class Plan(Handled):
    """Made by `Group.plan`; all settings are here once. It can be pickled, without its group and its prepared kernels."""

    rank: int
    masks: dict[str, AnyMask]
    method: str
    grid: str
    options: dict[str, int]
    kernel: str
    heads: tuple[int, int]
    head_dim: tuple[int, int]  # of q and k, and of v
    deterministic: bool
    shards: Shards  # the tokens of each rank
    digest: str  # of everything above, but for the rank
    has_sharded: bool = False  # attention of a plan that sharded nothing would get another plan's tokens
    labelled: int | None = None  # labels of all ranks in the batch that was sharded last
    given: str = ""  # tells apart the batches that ranks sharded last: those of a group are given the same one
    held_bytes: int = 0  # by masks, shards and prepared kernels, on the rank that holds the most; the same number on all ranks
    group: Group | None = None
    seqlen: int = field(init=False)  # the tokens of all ranks
    tokens: int = field(init=False)  # the tokens of this rank
    _programs: dict[tuple[str, Case, bool], Program] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Counts once: torch.compile reads numbers, and does not count ranges."""
        self.seqlen, self.tokens = next(iter(self.masks.values())).seqlen_q, count(self.shards[self.rank])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"group": None, "_programs": {}}

    def release(self) -> None:
        """Lets go of the group and of prepared kernels."""
        self.group = None
        self._programs.clear()

    @property
    def ranks(self) -> int:
        return len(self.shards)

    @cached_property
    def rows(self) -> torch.Tensor:
        """The numbers of this rank's tokens in the whole sequence, in the order in which this rank has them."""
        return torch.from_numpy(tokens(self.shards[self.rank]))

    @property
    def summary(self) -> str:
        """The choices in words."""
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        return f"{self.method}, grid {self.grid}{options}, kernel {self.kernel}"

    # -- cutting and joining ------------------------------------------------------------------------------------------------------

    def shard(self, given: Any, *, axis: int | None = None, ignore_index: int = IGNORED) -> Any:
        """Returns this rank's tokens of a tensor, or of all tensors of a dict.

        The token axis is the first or second one, whichever has all tokens; `axis` says it where both have. In a dict, `labels` are shifted
        by one token over the whole sequence, with `ignore_index` at the ends of documents, and become `shift_labels`: a model that would
        shift `labels` again finds none.
        """
        self.has_sharded = True
        if isinstance(given, torch.Tensor):
            return batch.cut(given, self.rows, self.seqlen, axis, "the tensor", self.digest)
        if not isinstance(given, Mapping):
            raise BadInput(f"a plan shards a tensor or a dict of tensors, not {type(given).__name__}.")
        if isinstance(given, Batch):
            raise BadInput("this batch is sharded already; shard a batch once, before the model.")
        documents = next((mask.documents for mask in self.masks.values() if mask.documents), None)
        self.given = batch.check_sum(given)
        whole = batch.with_shifted_labels(given, documents, self.seqlen, axis, ignore_index)
        own = Batch({name: batch.cut(x, self.rows, self.seqlen, axis, f"batch[{name!r}]", self.digest) for name, x in whole.items()})
        if batch.SHIFTED in whole:
            self.labelled = int((whole[batch.SHIFTED] != ignore_index).sum())
        return own

    def gather(self, x: torch.Tensor, *, axis: int | None = None) -> torch.Tensor:
        """Returns all tokens in order, on every rank, from this rank's. Differentiable: a token's gradient is the sum of all ranks' (a loss
        that every rank computes from the result counts once where gradients are averaged over ranks, as FSDP and DDP do)."""
        axis = batch.token_axis(x, self.tokens, axis, "the tensor", "this rank's")
        if torch.compiler.is_compiling():
            from longca.parallel.operator import compiled_gather

            return compiled_gather(self, x, axis)
        batch.refuse_other(x, self.digest)
        return gathered(x.movedim(axis, 0), self.shards, self.own_group().comm).movedim(0, axis)

    def mean(
        self,
        token_losses: torch.Tensor,
        labels: torch.Tensor | None = None,
        *,
        total: float | torch.Tensor | None = None,
        averaged: bool = True,
        ignore_index: int = IGNORED,
    ) -> torch.Tensor:
        """Returns the mean loss over the labelled tokens of all ranks, the same on every rank, from a loss per token of this rank.

        `labels` are the `shift_labels` of this rank: losses of tokens without a label do not count. Without `labels` these must be 0, as
        those of cross_entropy are, and the labels that this plan sharded last are counted. `total` is the number to divide by, such as the
        labels of several batches. `averaged`: gradients of weights are averaged over ranks afterwards, as FSDP and DDP do; False: they are
        summed.
        """
        checked = not torch.compiler.is_compiling()  # which does not know the plan of a tensor
        if checked and self.tokens not in token_losses.shape[:2]:
            given = list(token_losses.shape)
            raise BadInput(f"token_losses {given} has no axis of this rank's {self.tokens} tokens; give one loss per token.")
        if labels is None:
            total = self.labelled if total is None else total
        else:
            if checked:
                batch.refuse_other(labels, self.digest)
            if labels.shape != token_losses.shape:
                raise BadInput(f"there are losses {list(token_losses.shape)} and labels {list(labels.shape)}; give one loss per token.")
            token_losses = token_losses.masked_fill(labels == ignore_index, 0)
            total = self._summed((labels != ignore_index).sum().float(), 1) if total is None else total
        if total is None:
            raise BadInput("this plan has sharded no labels; give labels=, or shard them with the batch.")
        return batch.mean_of(token_losses, total, self.ranks if averaged else 1, self._summed)

    def _summed(self, number: torch.Tensor, gradient: int) -> torch.Tensor:
        if torch.compiler.is_compiling():
            from longca.parallel.operator import compiled_sum

            return compiled_sum(self, number, gradient)
        return summed_over_ranks(number, self.own_group().comm, gradient)

    # -- attention ----------------------------------------------------------------------------------------------------------------

    def attention(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        name: str | None = None,
        *,
        scale: float = 0.0,
        softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
        return_lse: bool = False,
    ) -> Any:
        """Returns the attention of this rank's queries [L, Hq, D] over the keys of all ranks, under the mask of this name.

        All ranks call it with their own tokens, and get their results [L, Hq, Dv]; with `return_lse` (out, lse [Hq, L]). It is
        differentiable once. With a batch in front, [B, L, Hq, D], all entries have this mask. `scale`, `softcap` and `sinks` [Hq] are
        those of `longca.attention`. All ranks pass the same sinks; the gradient of the sinks is this rank's part, as for every weight under
        context parallelism.
        """
        q, k, v = autocast_tensors(q, k, v)
        lse: torch.Tensor | None
        entries = q.shape[0] if isinstance(q, torch.Tensor) and q.dim() == 4 else 0
        if torch.compiler.is_compiling():
            from longca.parallel.operator import compiled_attention

            tensors = _folded(q, k, v), _repeated(sinks, entries)
            out, lse = compiled_attention(self, *tensors, name or "", entries, scale, softcap)
        else:
            out, lse = self._attention(q, k, v, name, entries, scale, softcap, sinks, return_lse)
        if entries:
            out, lse = out.unflatten(1, (entries, -1)).transpose(0, 1), None if lse is None else lse.unflatten(0, (entries, -1))
        return (out, lse) if return_lse else out

    def _attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, name: str | None, entries: int, scale: float, softcap: float,
        sinks: torch.Tensor | None, return_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        refuse_tensors(q, k, v, batched=True)
        for x in (q, k, v):
            batch.refuse_other(x, self.digest)
        sinks = _repeated(checked_sinks(sinks, q), entries)
        q, k, v = _folded(q, k, v)
        backward = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sinks))
        with torch.cuda.device_of(q):
            program = self.program(name, self.case_of(q, k, v, entries, scale, softcap, sinks is not None, backward))
            out, lse = through(program, kernels.choices(self.kernel)[0].layout, q, k, v, sinks, return_lse)
        if return_lse and lse is None:
            raise Refused(f"{self.kernel} gives no lse here; take another kernel, or leave out return_lse.")
        return out, lse

    def prepare(
        self, dtype: torch.dtype = torch.bfloat16, *, backward: bool = True, batch: int = 0, scale: float = 0.0, softcap: float = 0.0,
        sinks: bool = False, compiled: bool = False,
    ) -> Plan:  # fmt: skip
        """Prepares the kernels of all masks for tensors of this dtype, and returns the plan.

        All ranks call it, best one step ahead: neither does it wait for what the GPU computes, nor does the GPU wait for it. Without it the
        first attention of each kind does this. `batch` is the number of entries in front of tensors [B, L, H, D], 0 where there are none;
        `compiled`: torch.compile traces the attention.
        """
        entries = max(1, batch)
        shapes = [(self.heads[side] * entries, self.head_dim[part]) for side, part in ((0, 0), (1, 0), (1, 1))]
        q, k, v = (torch.empty(1, dtype=dtype, device=self.own_group().device).expand(self.tokens, *shape) for shape in shapes)
        case = self.case_of(q, k, v, batch, scale, softcap, sinks, backward)
        for name in self.masks:
            self._prepared(name, case, compiled)
        return self

    def case_of(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, entries: int, scale: float, softcap: float, sinks: bool, backward: bool
    ) -> Case:
        """Returns the case of this rank's tensors [L, H, D], or raises BadInput where they do not fit the plan. The heads of all batch
        entries stand side by side."""
        if {len(q), len(k), len(v)} != {self.tokens}:
            given = f"{len(q)}, {len(k)} and {len(v)}"
            raise BadInput(f"this rank has {self.tokens} tokens in this plan, and q, k, v have {given}; cut them with plan.shard.")
        heads = q.shape[1] // max(1, entries), k.shape[1] // max(1, entries)
        for what, planned, here in (("heads", self.heads, heads), ("head_dim", self.head_dim, (q.shape[2], v.shape[2]))):
            if planned != here:
                raise BadInput(f"the plan is for {what}={planned}, and the tensors have {here}; plan with what one rank's layer has.")
        case = make_case(q, k, v, scale, softcap, sinks, self.deterministic, backward)
        return replace(case, seqlen_q=self.seqlen, seqlen_k=self.seqlen)

    def program(self, name: str | None, case: Case, compiled: bool = False) -> Program:
        """Returns this rank's program under a mask. All ranks make it at their first call, and compare first what they call. A `compiled`
        call needs a kernel whose backward is a function."""
        name = self._named(name)
        self.own_group()
        if not self.has_sharded:
            raise BadInput(
                "this plan has sharded nothing, so these tokens are another plan's, or all; shard the batch with the plan whose "
                "attention you call."
            )
        return self._prepared(name, case, compiled)

    def _prepared(self, name: str, case: Case, compiled: bool) -> Program:
        key, group = (name, case, compiled), self.own_group()
        if key not in self._programs:
            group.agree(self._facts(name, case, compiled))
            method = registry.get(self.method)
            if method.peer and compiled and case.backward:
                raise Refused(f"torch.compile cannot use the backward of {self.method}, another project's method; compile around it.")
            method.own_backward = method.own_backward and not compiled  # type: ignore[misc]  # of this object alone
            settings = (self._mask_of(name, case), case, self.ranks, Grid.parse(self.grid), self.kernel)
            made = make_plan(method, *settings, options=self.options, shards=self.shards)
            self._programs[key] = group.beside_compute(self, lambda: made.program(group.comm))
        return self._programs[key]

    def _mask_of(self, name: str, case: Case) -> AnyMask:
        """Returns the mask of all heads of a case, those of every batch entry after each other."""
        mask, entries = self.masks[name], case.heads_kv // self.heads[1]
        return mask if mask.heads == 1 else mask.take_heads([*range(mask.heads)] * entries)

    def _facts(self, name: str, case: Case, compiled: bool) -> dict[str, str]:
        """What must be the same on all ranks that call an attention together; in `group.MESSAGE_BYTES`, however long names are."""
        return {
            "the mask": f"{name!r:.99} {self.masks[name].digest[:12]}",
            "the plan": f"{self.summary:.150} ({self.digest})",
            "the sum of the batch": self.given,
            "the pass": ("forward and backward" if case.backward else "forward alone") + (", compiled" if compiled else ""),
            "dtype": case.dtype,
            "the number of heads": f"{case.heads_q}:{case.heads_kv}",
            "scale, softcap, sinks": f"{case.scale}, {case.softcap}, {case.sinks}",
        }

    def _named(self, name: str | None) -> str:
        if name in self.masks:
            return name
        if name or len(self.masks) > 1:
            raise BadInput(f"the plan has no mask {name!r}; name one of {', '.join(map(repr, self.masks))}.")
        return next(iter(self.masks))

    def own_group(self) -> Group:
        if self.group is None or not self.group.is_open:
            raise BadInput("this plan belongs to no group, or its group is closed; give it to Group.use first.")
        return self.group


def _folded(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Returns tensors [L, H, D]. Batch entries become further heads, as they have one mask."""
    return [x.transpose(0, 1).flatten(1, 2) if x.dim() == 4 else x for x in tensors]


def _repeated(sinks: torch.Tensor | None, entries: int) -> torch.Tensor | None:
    return sinks if sinks is None or not entries else sinks.repeat(entries)
