"""A kernel without torch's weight: it can do nothing, so that a run of it costs only what the runner costs."""

import os
import time
from pathlib import Path

import longca


class Cheap(longca.Kernel):
    name, devices, capability = "cheap", ("cpu",), (0, 0)

    def supports(self, mask, case):
        time.sleep(float(os.environ.get("CHEAP_S", "0")))
        if log := os.environ.get("CHEAP_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()} {mask.name} {mask.seqlen_q}\n")
        return longca.No("is only here to be asked")

    def prepare(self, mask, case):
        raise AssertionError("nobody gets here: every mask is refused")
