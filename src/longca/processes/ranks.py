"""What ranks have in common, whether a pool started them or torchrun did: how one runs a job, and how its failure is told."""

from __future__ import annotations

import json
import resource
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from longca.errors import LongcaError, Refused, Unavailable
from longca.parallel.comm.base import Comm
from longca.processes.child_main import Tell, load
from longca.processes.lost import last_words
from longca.text import out_of_memory

OTHER = "other"  # the kind of failure of a rank that ended its job because of another one
STOPPED = "stopped"  # the same where its communicators ended in the middle of it
MOST_NAMED = 4  # ranks in one message


class Answer(msgspec.Struct, tag="answer"):
    """What a job returned on one rank."""

    answer: Any


class Failure(msgspec.Struct, tag="failure"):
    """What a job raised on one rank. `kind`: error, oom, refused, unavailable, other or stopped."""

    kind: str
    message: str
    last_words: str


class RankFailed(LongcaError):
    """A job of all ranks failed. `kind`: died, timeout, error, oom, refused or unavailable; `last_words`: the last line it printed."""

    exit_code = 1

    def __init__(self, rank: int, kind: str, message: str, last_words: str) -> None:
        super().__init__(f"rank {rank} {message}" + (f"; its last words: {last_words}" if last_words else "."))
        self.rank, self.kind, self.message, self.last_words = rank, kind, message, last_words


class OtherRankFailed(LongcaError):
    """Raised on a rank that is right, where another one cannot go on: its failure is the one to tell."""

    def __init__(self) -> None:
        super().__init__("another rank cannot go on.")


def to_blame(failures: Sequence[RankFailed]) -> RankFailed:
    """The failure to tell: a rank that died is the cause of what the others saw, and one that stopped for another is never it."""
    order = {"died": 0, "oom": 0, OTHER: 2, STOPPED: 2}
    return min(failures, key=lambda failure: order.get(failure.kind, 1))


def failed(rank: int, failure: Failure) -> RankFailed:
    return RankFailed(rank, failure.kind, f"failed: {failure.message}", failure.last_words)


def unanswered(rank: int, silent: Sequence[int], seconds: float) -> str:
    """The message for a rank that does not answer in time, with the others that do not: it may only wait for one of them."""
    others, message = [str(other) for other in silent if other != rank], f"did not answer within {seconds:g} s"
    if not others:
        return message
    named = ", ".join(others[:MOST_NAMED]) + (", ..." if len(others) > MOST_NAMED else "")
    return f"{message} (nor did {'rank' if len(others) == 1 else 'ranks'} {named})"


def run_job(comm: Comm, job: dict[str, Any]) -> Answer | Failure:
    """Runs {"job": "module:function", "args": {...}}: function(comm, **args), which returns something that JSON can hold."""
    import torch

    try:
        if comm.device.type == "cuda":
            torch.cuda.set_device(comm.device)  # each thread has its own
        answer = load(job["job"])(comm, **job["args"])
        return Answer(json.loads(json.dumps(answer)))
    except BaseException as error:  # a job may leave by sys.exit, which is to be told too
        traceback.print_exc()
        kind, message = kind_of(error), str(error) or type(error).__name__
        message = out_of_memory(message) if kind == "oom" else message
        return Failure(kind, message, last_words(f"{type(error).__name__}: {error}") if kind == "error" else "")


def kind_of(error: BaseException) -> str:
    import torch

    if isinstance(error, OtherRankFailed):
        return OTHER
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return "oom"
    return "refused" if isinstance(error, Refused) else "unavailable" if isinstance(error, Unavailable) else "error"


def limit_data(comm: Comm, size: int) -> None:
    """A job that bounds what each rank can allocate; for ranks that torchrun started, and no guard."""
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


class Rank:
    """The service of one rank of a pool."""

    ready = None

    def __init__(self, hello: dict[str, Any], tell: Tell) -> None:
        import torch
        import torch.distributed as dist

        from longca.parallel.comm.distributed import TorchComm

        torch.set_num_threads(hello["threads"])
        device = torch.device("cpu")
        if hello["backend"] == "nccl":
            device = torch.device("cuda", hello["gpu"])
            torch.cuda.set_device(device)
        dist.init_process_group(hello["backend"], f"file://{hello['meeting']}", rank=hello["rank"], world_size=hello["ranks"])
        self._comm = TorchComm(device=device)

    def handle(self, job: dict[str, Any]) -> Iterator[Any]:
        yield msgspec.to_builtins(run_job(self._comm, job))
