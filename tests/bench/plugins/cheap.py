"""A kernel that refuses every mask, so that a run of it costs only what the runner costs. Before, at `full`, it removes what LONGCA_DELETE
names: a file or a folder of the run."""

import os
import shutil
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
        target = Path(os.environ.get("LONGCA_DELETE", "/nothing"))
        if mask.name == "full" and target.exists():
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        return longca.No("is only here to be asked")

    def prepare(self, mask, case):
        raise AssertionError("nobody gets here: every mask is refused")
