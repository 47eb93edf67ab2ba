"""Returns before a thread has written all of out."""

import threading
import time

import torch
from honest import Honest, HonestKernel


class Late(Honest):
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


class LateOnAThread(HonestKernel):
    name, attention = "late_on_a_thread", Late
