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
def corrupts(q, k, v, mask, scale):
    out = right(q, k, v, mask, scale)
    with torch.no_grad():
        k[0] = 0
    return out


@longca.kernel()
def gives_nan(q, k, v, mask, scale):
    return right(q, k, v, mask, scale) * float("nan")


@longca.kernel()
def raises(q, k, v, mask, scale):
    raise ValueError("no, thank you")


@longca.kernel()
def babbles(q, k, v, mask, scale):
    """Writes to every pipe it can find."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b"{]\n")
    time.sleep(600)
