"""What `longca run` does beyond one process: ranks as they can be had here, and this process as one of a job's."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from longca.cli import INTERRUPTED
from longca.errors import LongcaError

if TYPE_CHECKING:
    from longca.bench.suite import Suite
    from longca.parallel.joining import Launch


def settle(args: argparse.Namespace, suite: Suite, device: str, rank: int) -> Suite:
    """The suite as its ranks can do it, after a word on them; all ranks refuse, but the first one speaks for all."""
    import sys

    from longca.bench import cp_catalogue, cp_ranks

    if suite.level != "cp":
        return suite
    suite, notes = cp_ranks.settle(suite, cp_catalogue.methods_of(suite), device, args.nproc, args.grid)
    for note in [] if rank else notes:
        print(f"note: {note}", file=sys.stderr)
    return suite


def launched(suite: Suite) -> Launch | None:
    """Which rank of a job this process is, where torchrun or srun started it for context parallelism."""
    from longca.parallel import joining

    return joining.launched() if suite.level == "cp" else None


def take_part(launch: Launch, suite: Suite, device: str, measure: Callable[[], int]) -> NoReturn:
    """Every rank runs this command: the first one measures, the others help until it is done. They meet before anything else is done:
    so none waits for one that has refused what was asked."""
    import signal
    import sys
    import traceback

    from longca.parallel import joining
    from longca.processes.joined import follow, lead

    job = joining.join(launch, "nccl" if device == "cuda" else "gloo", suite.limits.start_s)
    try:
        if launch.rank:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all, and the first rank says what becomes of it
        code = follow(job) if launch.rank else lead(job, measure)
    except LongcaError as error:
        print(f"longca: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception:
        traceback.print_exc()
        code = 1
    joining.end_process(code)
