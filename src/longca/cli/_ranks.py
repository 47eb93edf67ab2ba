"""`longca run` as one rank of a launched job: the first rank measures, the others serve it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from longca.cli import INTERRUPTED
from longca.errors import LongcaError

if TYPE_CHECKING:
    from longca.bench.run.level import Level
    from longca.parallel.joining import Launch


def take_part(launch: Launch, level: Level, measure: Callable[[], int]) -> NoReturn:
    """Runs as one rank, and ends this process when the job is over. All ranks meet first, so that none waits for one that refused the
    request. Where ranks share a GPU, the program starts once more with what NCCL needs for that."""
    import signal
    import sys
    import traceback

    from longca.bench.many_devices.grids import sharing_of
    from longca.parallel import joining
    from longca.processes.joined import follow, lead
    from longca.processes.shared_gpu import as_launched

    sharing, backend = sharing_of(level.suite, level.device), "nccl" if level.device == "cuda" else "gloo"
    try:
        with as_launched(sharing, launch):
            job = joining.join(launch, backend, level.suite.limits.start_s, sharing.ranks if sharing else 1)
            if launch.rank:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all ranks, and the first one decides
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
