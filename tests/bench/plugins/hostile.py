"""Kernels that do everything a kernel must not do, and one that is right."""

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

import torch

import longca


def right(q, k, v, mask, scale):
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    hidden = ~torch.from_numpy(mask.dense())
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()).mul(scale).masked_fill(hidden, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.double()).to(q.dtype)


@longca.kernel()
def good(q, k, v, mask, scale):
    return right(q, k, v, mask, scale)


@longca.kernel()
def segfaults(q, k, v, mask, scale):
    ctypes.string_at(0)


calls = 0


@longca.kernel()
def wrong_then_hangs(q, k, v, mask, scale):
    global calls
    calls += 1
    if calls > 1:
        time.sleep(600)
    return torch.ones_like(q)


@longca.kernel()
def complains(q, k, v, mask, scale):
    os.write(2, b"CUDA out of memory, but I have a second plan\n")
    return right(q, k, v, mask, scale)


@longca.kernel()
def exits(q, k, v, mask, scale):
    os._exit(7)


@longca.kernel()
def killed(q, k, v, mask, scale):
    os.kill(os.getpid(), signal.SIGKILL)


@longca.kernel()
def hangs(q, k, v, mask, scale):
    """In native code that holds the interpreter's lock, so that nothing in Python can interrupt it."""
    Path(os.environ["LONGCA_TEST"], "hanging").touch()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGKILL})
    ctypes.PyDLL(None).sleep(600)


@longca.kernel()
def greedy(q, k, v, mask, scale):
    hoard = []
    while True:
        hoard.append(torch.ones(1 << 26))


@longca.kernel()
def greedy_at_once(q, k, v, mask, scale):
    return torch.empty(1 << 50)


@longca.kernel()
def prints(q, k, v, mask, scale):
    """A gigabyte, through Python's own stream and past it; and is right."""
    if not hasattr(prints, "done"):
        prints.done = True
        line = b"x" * ((1 << 20) - 1) + b"\n"
        for _ in range(1 << 10):
            os.write(1, line)
        print("and to stderr", file=os.fdopen(os.dup(2), "w"))
    return right(q, k, v, mask, scale)


@longca.kernel()
def corrupts(q, k, v, mask, scale):
    out = right(q, k, v, mask, scale)
    with torch.no_grad():
        k[0] = 0
    return out


@longca.kernel()
def gives_nan(q, k, v, mask, scale):
    return right(q, k, v, mask, scale) * float("nan")


@longca.kernel()
def gives_garbage(q, k, v, mask, scale):
    return torch.zeros_like(q) + 1 + 0 * right(q, k, v, mask, scale)


@longca.kernel()
def wrong_shape(q, k, v, mask, scale):
    return right(q, k, v, mask, scale)[:-1]


@longca.kernel()
def raises(q, k, v, mask, scale):
    raise ValueError("no, thank you")


@longca.kernel()
def leaves_a_child(q, k, v, mask, scale):
    """A child that holds the worker's pipes open, then the worker dies."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(9)


@longca.kernel()
def leaves_a_daemon(q, k, v, mask, scale):
    """A child that leaves the worker's group, before the worker dies."""
    daemon = os.fork()
    if daemon == 0:
        os.setsid()
        time.sleep(600)
    while os.getsid(daemon) != daemon:
        time.sleep(0.01)
    os._exit(9)


@longca.kernel()
def closes_its_pipes(q, k, v, mask, scale):
    os.closerange(3, 1024)
    time.sleep(600)


@longca.kernel()
def babbles(q, k, v, mask, scale):
    """Writes to every pipe it can find."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b"{]\n")
    time.sleep(600)
