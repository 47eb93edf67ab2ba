"""A kernel that refuses every mask, and at `full` first removes what LONGCA_DELETE names: a file or a folder of the run."""

import os
import shutil
from pathlib import Path

import longca


class Deletes(longca.Kernel):
    name, devices, capability = "deletes", ("cpu",), (0, 0)

    def supports(self, mask, case):
        target = Path(os.environ["LONGCA_DELETE"])
        if mask.name == "full" and target.exists():
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        return longca.No("removes files instead")

    def prepare(self, mask, case):
        raise AssertionError("every mask is refused")
