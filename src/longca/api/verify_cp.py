"""`longca.verify_cp`: checks context-parallel methods on ranks, and measures transfers between them (`longca verify --level cp`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from longca.api.takes import takes
from longca.bench.many_devices.grids import ranks_of
from longca.bench.many_devices.kit import write
from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.verify import CpFinding, CpRequest, CpVerification, make_level, make_steps, verify
from longca.bench.run.retry import say_nothing
from longca.errors import Refused
from longca.lengths import cut_note
from longca.parallel import joining
from longca.text import say, write_over


@takes(CpRequest)
def verify_cp(request: CpRequest) -> CpVerification:
    """Checks context-parallel methods on ranks of this machine against fp64, measures transfers between the ranks, and returns both.

    The default is every method that runs here, on the twelve masks, with one rank per GPU, or two on a CPU. `out` is a folder; what was
    found is also packed into one file beside it.

    >>> longca.verify_cp("ulysses,magi", "causal", nproc=2).ok
    """
    if joining.launched() is not None:
        raise Refused("this process is a rank of a launched job; there use the command, `torchrun ... -m longca verify --level cp`.")
    level = make_level(request)
    level.refuse_crowd()

    over, told = (write_over, say) if request.progress else (say_nothing, say_nothing)
    done = check(request, level, lambda count, finding: over(f"[{count}] {finding}"), told)
    over("")
    if done.stopped:
        raise KeyboardInterrupt(done.broken)
    return done


def check(
    request: CpRequest,
    level: ManyDevices,
    show: Callable[[str, CpFinding], None],
    say: Callable[[str], None],
    out: str | Path | None = None,
) -> CpVerification:
    """Checks what a request asks for, and packs it into a file where it names a folder, or `out` does."""
    suite = level.suite
    steps = make_steps(request, suite, ranks_of(suite, request.on))
    for note in cut_note(suite.document_lengths, (step.seqlen for step in steps)) if suite.documents else []:
        say(f"note: {note}")
    done = verify(level, steps, lambda so_far: show(f"{len(so_far.findings)}/{so_far.cases}", so_far.findings[-1]), say)
    folder = request.out or out
    done.packed = write(done, level, Path(folder)) if folder else None
    return done
