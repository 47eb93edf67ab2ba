"""The code versions of LongCA's own kernels and methods, seen in a copy of the package whose files are edited."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import longca
from longca import code_version
from longca.kernels import discovery, registry
from longca.parallel import registry as methods

PACKAGE = Path(longca.__file__).parent
ROOMS = ("kernels", "lengths", "masks", "parallel")
PRINT = """
import json, sys
from pathlib import Path
from longca import code_version
from longca.kernels import registry
from longca.parallel import registry as methods
def versions():
    labels = [label for name in registry.names() for label in registry.labels(name)]
    kernels = {label: registry.versions(registry.get(label))["code"] for label in labels}
    return kernels | {name: methods.code_version(name) for name in methods.names() + methods.peers()}
def after_edit(file):
    paths = [Path(code_version.__file__).parent / name for name in file.split()]
    texts = [path.read_text() for path in paths]
    for path, text in zip(paths, texts): path.write_text(text + "\\nedited = 1\\n")
    try: return versions()
    finally:
        for path, text in zip(paths, texts): path.write_text(text)
before = versions()
edited = {file: after_edit(file) for file in sys.argv[1:]}
print(json.dumps([before, {file: sorted(n for n in before if after[n] != before[n]) for file, after in edited.items()}]))
assert "torch" not in sys.modules
"""
ALL_METHODS = ("ulysses", "ring_p2p", "ring_allgather", "usp", "loongtrain", "magi")
BALANCERS = {name for name in methods.peers() if methods.get(name).balancer}  # which lie in one file
PEERS = set(methods.peers()) - BALANCERS
FRAMEWORK = (
    *(
        f"kernels/{name}.py"
        for name in ("base", "block_selection", "functional", "inputs", "overview", "plugin", "registry", "discovery", "plugin_checks")
    ),
    *(f"parallel/{name}.py" for name in ("method", "options", "registry", "grid", "comm/local", "comm/trace", "kernel_requirements")),
    *("masks/mask.py", "masks/encodings.py", "code_version.py", "devices.py", "plugins.py", "errors.py"),
)
APART = {  # files that have no kernel or method in common are edited at once
    "kernels/backends/flex/_blocks.py": {"flex", "flex_flash"},
    "kernels/backends/band_cute/_walk.py": {"band_cute"},
    "kernels/backends/torch_attention.py": {"torch:plain", "torch:chunked"},
    "kernels/backends/flashmask/_torch.py": {"flashmask:torch", "flashmask:paddle"},
    "parallel/routes.py": {"magi"},
    "parallel/methods/usp.py": {"usp", "loongtrain"},
    "parallel/peers.py": PEERS,
}
EDITS = {  # files: the kernels and methods whose versions change
    " ".join(APART): set[str]().union(*APART.values()),
    "kernels/backends/fa4/_intervals.py": {"fa4:native", "fa4:varlen", "fa4:bands", "fa4:blocks", "band_cute"},
    "parallel/primitives/ring_schedule.py": {"ring_p2p", "usp", "loongtrain", *BALANCERS},
    "parallel/head_split.py": {"ulysses", "usp", "loongtrain", *PEERS},
    "parallel/sharding.py": {*ALL_METHODS, *methods.peers()},
    "parallel/comm/distributed.py": {*ALL_METHODS, *methods.peers()},
    " ".join(FRAMEWORK): set(),
}
SHARED = {  # counted where a kernel imports them: one that does, and one that does not
    "kernels/lower.py": ("torch:chunked", ""),
    "kernels/shared.py": ("fa3", "torch:chunked"),
    "kernels/block_lists.py": ("vsa", "fa3"),
}
KERNEL = """
from longca.kernels.base import Kernel, Yes
class New(Kernel):
    name, devices, capability = "{name}", ("cpu",), (0, 0)
    {own}
    def supports(self, mask, case): return Yes()
    def prepare(self, mask, case):
        {body}
"""
METHOD = """
from longca.parallel.methods.ring_p2p import RingP2P
class New(RingP2P):
    name = "new_ring"
"""


def copy_package(folder: Path) -> Path:
    for room in ROOMS:
        shutil.copytree(PACKAGE / room, folder / "longca" / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in PACKAGE.glob("*.py"):
        shutil.copy(file, folder / "longca")
    return folder / "longca"


def in_copy(package: Path, program: str, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(package.parent), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, list[str]]]:
    package = copy_package(tmp_path_factory.mktemp("copy"))
    before, changed = json.loads(in_copy(package, PRINT, *EDITS, *SHARED))
    return before, changed


@cache
def own_versions() -> dict[str, str]:
    labels = [label for name in discovery.own() for label in registry.labels(name)]
    kernels = {label: registry.versions(registry.get(label))["code"] for label in labels}
    return kernels | {name: methods.code_version(name) for name in methods._own()}


@pytest.mark.parametrize("file", EDITS, ids=lambda file: file.split()[-1])
def test_an_edit_changes_the_versions_of_those_that_it_is_part_of(file: str, answer: tuple[dict[str, str], dict[str, list[str]]]) -> None:
    others = set(methods.names()) - set(ALL_METHODS) if EDITS[file] else set()  # a new method may use any part, but not the framework
    assert set(answer[1][file]) - others == EDITS[file]


@pytest.mark.parametrize("file", SHARED)
def test_shared_lowering_is_part_of_the_kernels_that_use_it(file: str, answer: tuple[dict[str, str], dict[str, list[str]]]) -> None:
    user, other = SHARED[file]
    assert user in answer[1][file]
    assert not {other, *ALL_METHODS} & set(answer[1][file])


def test_versions_do_not_depend_on_where_files_lie_and_differ(answer: tuple[dict[str, str], dict[str, list[str]]]) -> None:
    assert answer[0] == own_versions()
    assert {len(version) for version in own_versions().values()} == {16}
    by_file = {label.partition(":")[0]: version for label, version in own_versions().items()}
    in_others_files = 2 + len(BALANCERS) - 1  # vsa and vsa_triton lie in one file, so do yunchang's two methods, and the balancers
    assert len(set(by_file.values())) == len(by_file) - in_others_files


def test_a_new_kernel_and_a_new_method_are_one_file_each(tmp_path: Path) -> None:
    own = "own_files = ('kernel.cu',)"
    package = copy_package(tmp_path)
    backends = package / "kernels" / "backends"
    (backends / "alone.py").write_text(KERNEL.format(name="alone", own="", body="raise NotImplementedError"))
    (backends / "library").mkdir()
    text = KERNEL.format(name="library", own=own, body="from longca.kernels.backends.library import _private")
    (backends / "library" / "kernel.py").write_text(text)
    (backends / "library" / "__init__.py").touch()
    (backends / "library" / "_private.py").write_text("import torch\n")
    (backends / "library" / "kernel.cu").write_text("// first\n")
    (package / "parallel" / "methods" / "new_ring.py").write_text(METHOD)
    folder = "kernels/backends/library"
    before, changed = json.loads(in_copy(package, PRINT, f"{folder}/_private.py", f"{folder}/kernel.cu", "kernels/backends/alone.py"))
    assert {name: version for name, version in before.items() if name not in ("alone", "library", "new_ring")} == own_versions()
    assert set(before) - set(own_versions()) == {"alone", "library", "new_ring"}
    assert changed == {
        f"{folder}/_private.py": ["library"],
        f"{folder}/kernel.cu": ["library"],
        "kernels/backends/alone.py": ["alone"],
    }
    show = "from longca.kernels.overview import overview; print([entry['tested'] for entry in overview() if entry['kernel'] == 'alone'])"
    assert "longca verify --kernels alone" in in_copy(package, show)


def test_a_plugin_that_derives_from_a_kernel_of_ours_covers_its_files(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from longca.kernels.backends.flex.kernel import FlexKernel\nclass Mine(FlexKernel):\n    name = 'mine'\n")
    registry.load_plugin(file)
    assert PACKAGE / "kernels" / "backends" / "flex" / "_blocks.py" in code_version._reached([file])
    assert registry.versions(registry.get("mine"))["code"] != code_version.of_texts([file])


def test_comments_docstrings_and_layout_change_no_version_and_code_does(tmp_path: Path) -> None:
    def version(text: str) -> str:
        (tmp_path / "kernel.py").write_text(text)
        return code_version.of_code(tmp_path / "kernel.py")

    plain = 'def attend(q, k):\n    return q @ k, "a text"\n'
    documented = '"""A module."""\n\n\ndef attend(\n    q,\n    k,\n):  # why\n    """Attends."""\n    return (q @ k), "a text"\n'
    assert version(documented) == version(plain)
    changes = (("q @ k", "k @ q"), ("a text", "another"), ("q, k", "q, k=1"), ("attend", "attends"), ("return", "yield"))
    assert len({version(plain), *(version(plain.replace(*change, 1)) for change in changes)}) == 1 + len(changes)
    assert version("def (") != version("def )")  # what Python cannot parse counts as text
