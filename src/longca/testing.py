"""For test suites of kernels: `assert_correct` runs the check of `longca verify` in the process of the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longca.api.kernels import asked
from longca.api.verify import Verification, VerifyRequest, plan_verify
from longca.bench.one_device.words import reasons
from longca.bench.plan.request import Number, Texts
from longca.kernels import registry

__all__ = ["assert_correct"]
GROUPS = ("all", "every")  # of masks, of which those stay out that the kernel refuses
SEQLEN = 512
_tried = set[tuple[type, str, str]]()  # kernels and shapes whose trials passed in this process


def assert_correct(
    kernel: Any,
    masks: Any = "all",
    seqlen: Texts | None = None,
    *,
    heads: Texts = "4:2",
    head_dim: Texts = 32,
    dtype: Texts | None = None,
    params: Mapping[str, Number] | None = None,
    documents: str | Path | Sequence[int] | None = None,
    source: str = "random",
    seed: int = 0,
    softcap: float | None = None,
    sinks: bool | None = None,
    scale: float | None = None,
    deterministic: bool = False,
    repeat: int = 1,
    device: str | None = None,
    trials: bool = True,
) -> Verification:
    """Raises AssertionError if a kernel is wrong on a mask or in a trial, with the messages of `longca verify`. Returns the findings
    otherwise.

    `kernel` is a function decorated with @longca.kernel, a class derived from longca.Kernel or an object of it, a name, or the path of a
    plugin file. `masks` are names, files, expressions, patterns such as longca.masks.causal, or Mask objects. They have 512 tokens, unless
    `seqlen` or a Mask object sets another length. If masks are named, the kernel must support them. With `masks="all"`, masks that the
    kernel does not support are skipped. Trials (docs/check.md) are run
    once for each kernel and shape of a process, and not at all with `trials=False`.

    >>> assert_correct(my_kernel, masks=["causal", "share_question"])
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    objects = asked(kernel).objects
    shape = str((heads, head_dim, dtype, device))
    tried = {(each if isinstance(each, type) else type(each), getattr(each, "variant", ""), shape) for each in objects}
    request = VerifyRequest(
        kernel, masks, seqlen, dtype, heads, head_dim, source=source, seed=seed,
        params=params, documents=documents, softcap=softcap, sinks=sinks, scale=scale, deterministic=deterministic, repeat=repeat,
        device=device, trials=trials and not (tried and tried <= _tried),
    )  # fmt: skip
    with TemporaryDirectory(prefix="longca-masks-") as folder, registry.lent(objects):
        plan = plan_verify(request, Path(folder), SEQLEN, in_process=True)
        found = plan.check()
    if found.stopped:
        raise KeyboardInterrupt
    named = not set(GROUPS) & set(plan.masks.masks or GROUPS)
    refused = [finding for finding in found.findings if not finding.checked and finding.trial is None]
    problems = [*found.failed, *(refused if named or found.unchecked else [])]
    if problems:
        raise AssertionError("\n".join([*reasons(problems), f"({plan.title})"]))
    if request.trials:
        _tried.update(tried)
    return found
