"""Wrong kernels that write where or when they must not, or return what is no plain tensor."""

import ctypes
import threading
import time

import torch
from honest import Honest, wrong

from longca.bench.check.guarded import BYTE

FOUND = bytes([BYTE]) * 8


@wrong
class BackwardDestroysOut(Honest):
    """Writes to out in its backward."""

    def backward(self, dout, q, k, v, out, lse):
        gradients = super().backward(dout, q, k, v, out, lse)
        out.zero_()
        return gradients


@wrong(devices=("cuda",))
class DefaultStream(Honest):
    """Runs on the default stream, whatever the current one is."""

    def forward(self, q, k, v):
        with torch.cuda.stream(torch.cuda.default_stream()):
            return super().forward(q, k, v)


@wrong(devices=("cuda",))
class LateOnAStream(Honest):
    """Returns before a side stream has written out."""

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        late, stream = torch.empty_like(out), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late.copy_(out)
        return late, lse


@wrong
class LateOnAThread(Honest):
    """Returns before a thread has written all of out."""

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        late = out.clone()
        late[-10:] = 0

        def write():
            time.sleep(0.005)
            with torch.no_grad():
                late.copy_(out)

        threading.Thread(target=write).start()
        return late, lse


class Equal(torch.Tensor):
    pass


@wrong
class ReturnsASubclass(Honest):
    """Returns a tensor that says that it equals everything."""

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        return out.as_subclass(Equal), lse


@wrong
class ReusesGradients(Honest):
    """Writes dk to the same memory in every call."""

    buffer = None

    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        self.buffer = torch.empty_like(dk) if self.buffer is None else self.buffer
        return dq, self.buffer.copy_(dk), dv


@wrong
class ReusesOut(Honest):
    """Writes out to the same memory in every call."""

    buffer = None

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        self.buffer = torch.empty_like(out) if self.buffer is None else self.buffer
        return self.buffer.copy_(out), lse


@wrong
class WritesPastOut(Honest):
    """Writes eight bytes behind out."""

    def forward(self, q, k, v):
        right, lse = super().forward(q, k, v)
        out = torch.empty_like(right).copy_(right)
        end = out.data_ptr() + out.nbytes
        if out.storage_offset() and ctypes.string_at(end, 8) == FOUND:  # elsewhere it would break the process of the test
            ctypes.memset(end, 0, 8)
        return out, lse
