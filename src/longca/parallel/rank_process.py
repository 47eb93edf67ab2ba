"""One rank of a pool: joins the others, then runs jobs that come as JSON lines, and ends when its parent is gone.

A job is {"job": "module:function", "args": {...}}; function(comm, **args) returns something JSON can say.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from importlib import import_module
from typing import Any

from longca.errors import Refused, Unavailable


def _read_jobs(jobs: queue.Queue[str]) -> None:
    """The end of stdin is the end of the parent, whatever this rank is doing just then."""
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)


def kind_of(error: BaseException) -> str:
    import torch

    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return "oom"
    return "refused" if isinstance(error, Refused) else "unavailable" if isinstance(error, Unavailable) else "error"


def _run(comm: Any, line: str) -> dict[str, Any]:
    try:
        task = json.loads(line)
        module, _, function = task["job"].partition(":")
        return {"answer": getattr(import_module(module), function)(comm, **task["args"])}
    except BaseException as error:
        traceback.print_exc()
        return {"kind": kind_of(error), "message": str(error) or type(error).__name__}


def main(settings: dict[str, Any]) -> None:
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    import torch
    import torch.distributed as dist

    from longca.parallel.comm.distributed import TorchComm

    torch.set_num_threads(settings["threads"])
    device = torch.device("cpu")
    if settings["backend"] == "nccl":
        device = torch.device("cuda", settings["rank"])
        torch.cuda.set_device(device)
    dist.init_process_group(settings["backend"], f"file://{settings['meeting']}", rank=settings["rank"], world_size=settings["ranks"])
    comm = TorchComm(device=device)
    with os.fdopen(settings["answers"], "w") as answers:
        print(json.dumps({"answer": "ready"}), file=answers, flush=True)
        while True:
            print(json.dumps(_run(comm, jobs.get())), file=answers, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
