"""What a record says of an error: the line of the plugin it came from, and memory in a sentence."""

import gc
import json
import math
import weakref
from pathlib import Path

import msgspec
import pytest
import torch

from longca.bench.check.own_memory import memory_for
from longca.bench.run.outcomes import PLACE, CellFailed, drop_frames, status_of, to_message
from longca.errors import BadInput, NoMemory, Refused, Unavailable
from longca.plugins import import_file
from longca.processes.lost import of_exit
from longca.results.record import Outcome, Status, TensorError

ON_A_CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 3221225472 bytes."
)
ON_A_GPU = (
    "CUDA out of memory. Tried to allocate 24.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 13.37 GiB is free. Including "
    "non-PyTorch memory, this process has 126.42 GiB memory in use. Of the allocated memory 125.90 GiB is allocated by PyTorch, and 1 MiB "
    "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=..."
)


def raised(tmp_path: Path, message: str) -> BaseException:
    (tmp_path / "theirs.py").write_text("def fail(message):\n    raise ValueError(message)\n")
    with pytest.raises(ValueError) as found:  # noqa: PT011  # whatever it says
        import_file(tmp_path / "theirs.py", "function").fail(message)
    return found.value


def test_an_error_names_the_line_of_the_plugin_even_when_its_frames_are_gone(tmp_path: Path) -> None:
    error = raised(tmp_path, "no\nluck")
    assert status_of(error) == ("error", "ValueError: no luck (theirs.py line 2)")
    for _ in range(2):
        drop_frames(error)
    assert error.__traceback__ is None
    assert status_of(error) == ("error", "ValueError: no luck (theirs.py line 2)")


def test_the_message_of_a_compiler_keeps_its_end_and_triton_without_a_gpu_gets_a_hint() -> None:
    lines = "\n".join(f"tmp.cpp:{number}: note: candidate template ignored" for number in range(50))
    for text in (f"at 12:5:\n{lines}\nincompatible shapes 64 and 32", f"[1/2] nvcc\n{lines}\nk.cu:7: error: expected a ';'\n{lines}"):
        reason = status_of(RuntimeError(text))[1]
        assert len(reason) <= 400
        assert reason.startswith("RuntimeError: ")
        assert "incompatible shapes 64 and 32" in reason or "error: expected a ';'" in reason
    hinted = status_of(RuntimeError("0 active drivers ([]). There should only be one."))[1]
    assert hinted.endswith("TRITON_INTERPRET=1 runs its kernels on a CPU")


def test_the_tensors_of_a_failed_attempt_go_with_its_frames() -> None:
    def fail() -> weakref.ref[torch.Tensor]:
        tensor = torch.zeros(3)
        seen.append(weakref.ref(tensor))
        raise MemoryError

    seen = list[weakref.ref[torch.Tensor]]()
    with pytest.raises(NoMemory) as found, memory_for("the check"):
        fail()
    error = found.value
    del found
    drop_frames(error)
    gc.collect()
    assert seen[0]() is None


def test_a_reason_can_be_shown_and_written_anywhere(tmp_path: Path) -> None:
    """Whatever a kernel says: half of a surrogate pair, a NUL, an escape that clears the screen, a compiler's colours."""
    _, reason = status_of(raised(tmp_path, "a\ud800b\0c\x1b[2Jd \x1b[1;31mred\x1b[0m 5 µs"))
    assert reason == "ValueError: a�b�c�[2Jd red 5 µs (theirs.py line 2)"
    reason = of_exit(1, "time", "bye\x07\n").reason
    assert reason == "its process ended with exit code 1 during measuring; its last words: bye�"
    error = ValueError("no")
    setattr(error, PLACE, " (a\udcffb.py line 2)")
    assert status_of(error) == ("error", "ValueError: no (a�b.py line 2)")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Refused("fa4 takes bf16, not fp32."), Status.UNSUPPORTED, "fa4 takes bf16, not fp32"),
        (Unavailable("fa4 is not installed."), Status.UNAVAILABLE, "fa4 is not installed"),
        (BadInput("the mask has no parameter 'w'."), Status.ERROR, "the mask has no parameter 'w'"),
        (KeyError("w"), Status.ERROR, "KeyError: 'w'"),
        (CellFailed(Status.SKIPPED, "O(S²) memory"), Status.SKIPPED, "O(S²) memory"),
        (MemoryError(), Status.OOM, "out of memory"),
        (RuntimeError(ON_A_CPU), Status.OOM, "out of memory: it asked for 3 GiB at once"),
        (RuntimeError(ON_A_GPU), Status.OOM, "out of memory: it asked for 24.00 GiB at once, and 13.37 GiB were free"),
        (RuntimeError("cudaErrorMemoryAllocation"), Status.OOM, "cudaErrorMemoryAllocation"),
    ],
)
def test_every_error_has_its_status_and_a_reason_without_a_full_stop(error: Exception, status: Status, reason: str) -> None:
    assert status_of(error) == (status, reason)


def test_a_message_holds_finite_numbers_of_six_digits() -> None:
    outcome = Outcome(
        status=Status.WRONG, check={"out": TensorError(math.inf, 0.1), "lse": TensorError(1.23456789, math.nan)}, build_ms=1e-9
    )
    message = to_message(outcome)
    assert message["check"] == {"out": {"error": None, "allowed": 0.1}, "lse": {"error": 1.23457, "allowed": None}}
    assert message["build_ms"] == 1e-9
    assert msgspec.convert(json.loads(json.dumps(message)), Outcome).check == {
        "out": TensorError(None, 0.1),
        "lse": TensorError(1.23457, None),
    }
