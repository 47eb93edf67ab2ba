"""A user's own kernel, in one file: the examples of the documentation, and files that are wrong."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import longca
from longca import devices, masks
from longca.bench.check.trial_names import TrialName, trials_on
from longca.cli import main
from longca.errors import BadInput
from longca.kernels import registry
from longca.kernels.base import No, Yes
from longca.kernels.overview import overview

EXAMPLES = Path(__file__).parents[2] / "examples"

DECORATED = "import longca\n@longca.kernel(name='{}')\ndef f(q, k, v, mask, scale): return q\n"
CLASS = """
import longca
class Mine(longca.Kernel):
    devices = ("cpu",)
    def supports(self, mask, case): return ANSWER
    def prepare(self, mask, case): raise AssertionError("it was taken for a yes")
"""


def test_a_file_that_is_loaded_again_runs_as_it_is_now(tmp_path: Path) -> None:
    file, q = tmp_path / "edited.py", torch.ones(16, 1, 8)
    for text, number in (("q * 2", 2.0), ("q * 10", 10.0)):
        file.write_text(f"import longca\n@longca.kernel\ndef edited(q, k, v, mask, scale): return {text}\n")
        assert registry.load_plugin(file) == ["edited"]
        assert float(longca.attention(q, q, q, masks.causal(16), kernel="edited")[0, 0, 0]) == number


@pytest.mark.parametrize("name", ["my_kernel", "my_kernel_class"])
@pytest.mark.usefixtures("in_process")
def test_the_documented_example_is_right_on_all_masks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--seqlens", "131", "--heads", "4:2", "--head-dim", "16", "--device", "cpu"]
    assert main(["verify", "--plugin", str(EXAMPLES / f"{name}.py"), *shape, "--json"]) == 0
    findings = {row["trial"] or row["mask"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert list(findings) == [*masks.names(), *trials_on("cpu")]
    is_function = name == "my_kernel"  # whose backward is autograd's: no sinks, and no steps of a ring
    statuses = {TrialName.SOFTCAP: "skipped"}
    statuses |= {TrialName.SINKS: "skipped", "out and lse of all ring steps": "unsupported"} if is_function else {}
    for what, row in findings.items():
        assert (row["kernel"], row["status"]) == (name, statuses.get(what, "ok"))
        if row["status"] == "ok":
            assert set(row["errors"]) >= ({"out"} if what == "forward under no_grad" else {"out", "dq", "dk", "dv"})


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (r"raise RuntimeError('no luck\ntoday')", "fails when it is imported: RuntimeError: no luck today (plugin.py line 1)."),
        ("x = 1", "has no kernel"),
        (f"{DECORATED.format('sdpa')}", "choose another name"),
        (f"{DECORATED.format('a:b')}", "calls its kernel 'a:b'; a name is made of letters, digits, _, - and ., and is not 'all'."),
        (f"{CLASS}    variants = ('x', 'y,z')\n    name = 'v'\n", "calls its variant of v 'y,z'; a name is made of"),
        (DECORATED.format("twin") + DECORATED.format("twin").replace("def f", "def g"), "has two kernels of the name 'twin'"),
        (CLASS, "the class Mine of the plugin {path} has no name; write one into it, such as name = 'mine'."),
        (f"{CLASS}    name, layout = 'mine', 'BSHD'\n", "the kernel 'mine' has layout = 'BSHD'; it must be one of 'LHD', 'HLD'."),
        (f"{CLASS}    name = 'mine'\n    devices = 'cpu'\n", "has devices = 'cpu'; it must be a tuple of strings"),
        (f"{CLASS}    name = 'mine'\n    devices = ('gpu',)\n", "is for the device 'gpu'; known are cpu and cuda."),
        (f"{CLASS}    name, capability = 'mine', 9\n", "has capability = 9; it must be two whole numbers, such as (9, 0)."),
        (DECORATED.format("f', lower=3, layout='HLD"), "lower must be a function of (mask, case), not 3; leave it out"),
        (DECORATED.format("f', dtypes=('fp8',), layout='LHD"), "is for the dtype 'fp8'; known are bf16, fp16, fp32, fp64"),
        (DECORATED.format("f', head_dims=64, layout='LHD"), "has head_dims = 64; it must be a tuple of whole numbers, such as"),
        (DECORATED.format("f', archs=('hopper',), layout='LHD"), "for the GPU 'hopper'; write compute capability 9.0 as 'sm90'"),
        (DECORATED.format("f', own_files=('a.cu',), layout='LHD"), "a.cu in own_files, and there is no such file"),
        (DECORATED.format("f").replace(", mask, scale", ""), "'f' has the arguments (q, k, v), which do not fit (too many"),
        (DECORATED.format("f").replace("scale", "scale, sinks, x"), "write def f(q, k, v, mask, scale), with softcap=0.0 or sinks=None"),
        ("import plugin", "plugin.py imports a module 'plugin', and would find itself by that name; rename the file"),
        ("import sys; sys.exit(3)", "fails when it is imported: SystemExit"),
        ("import nowhere", "needs the module 'nowhere', which is not found (plugin.py line 1); put it into the plugin's folder, or"),
        (
            "import longca\nclass Mine(longca.Kernel):\n    name = 'mine'\n",
            "the kernel 'mine' of the plugin {path} has no prepare and no supports",
        ),
    ],
)
def test_a_bad_plugin_is_one_sentence(source: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(source)
    with pytest.raises(BadInput, match=re.escape(sentence.format(path=tmp_path / "plugin.py"))) as refused:
        registry.load_plugin(tmp_path / "plugin.py")
    assert "\n" not in str(refused.value)
    assert str(refused.value).count(str(tmp_path / "plugin.py")) <= 1


def test_the_command_names_the_file_of_a_bad_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plugin.py").write_text(f"{CLASS}    name, layout = 'mine', 'BSHD'\n")
    assert main(["verify", "--plugin", str(tmp_path / "plugin.py")]) == 2
    complaint = capsys.readouterr().err
    assert "it must be one of 'LHD', 'HLD'." in complaint
    assert (complaint.count("\n"), complaint.count(str(tmp_path))) == (1, 1)


SMALL = ["--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--head-dim", "16", "--device", "cpu"]
RIGHT = """
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = (q @ k.mT * scale).masked_fill(~torch.from_numpy(mask.dense()), float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(0, 1)
"""


@pytest.mark.parametrize(
    "source",
    [
        f"{CLASS}class First(Mine): name = 'first'\nclass Second(Mine): name = 'second'\n",  # a base needs no name
        "import longca\nKERNELS = [longca.kernel(name=name)(lambda q, k, v, mask, scale: q) for name in ('first', 'second')]\n",
    ],
)
def test_kernels_of_a_plugin_have_a_base_or_a_list(source: str, tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(source)
    assert registry.load_plugin(tmp_path / "plugin.py") == ["first", "second"]


@pytest.mark.usefixtures("in_process")
def test_supports_must_answer_yes_or_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plugin.py").write_text(CLASS.replace("ANSWER", "True") + "    name = 'odd'\n")
    sentence = "the supports() of odd returns True; it must return longca.Yes() or longca.No('why not')"
    assert main(["verify", "--plugin", str(tmp_path / "plugin.py"), *SMALL]) == 1
    assert f"error: odd on causal: {sentence}\n" in capsys.readouterr().out
    registry.load_plugin(tmp_path / "plugin.py")
    (entry,) = (entry for entry in overview() if entry["kernel"] == "odd")
    assert entry["masks"]["causal"] == {"answer": "no", "note": f"{sentence}."}
    assert entry["tested"].startswith("yours: `longca verify --plugin ")
    assert entry["tested"].endswith("plugin.py` checks it")


@pytest.mark.usefixtures("in_process")
def test_a_gradient_that_does_not_arrive_is_said_beside_the_forward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plugin.py").write_text(f"import torch, longca\n@longca.kernel\ndef cut(q, k, v, mask, scale):\n    k = k.detach(){RIGHT}")
    assert main(["verify", "--plugin", str(tmp_path / "plugin.py"), *SMALL, "--json"]) == 1
    finding = json.loads(capsys.readouterr().out.splitlines()[0])
    assert finding["reason"].startswith("no gradient reaches k: ")
    assert finding["reason"].endswith("; its forward alone is right")
    assert set(finding["errors"]) == {"out"}


FORWARD = """
import torch, longca
class Forward(longca.Kernel):
    name, devices, gives_lse = "forward", ("cpu",), False
    def supports(self, mask, case): return longca.Yes()
    def prepare(self, mask, case): return PREPARED
class Ready(longca.Attention):
    def __init__(self, mask, scale): self.mask, self.scale = mask, scale
    def forward(self, q, k, v): return attend(q, k, v, self.mask, self.scale), None
def attend(q, k, v, mask, scale):
"""


@pytest.mark.usefixtures("in_process")
def test_a_class_without_a_backward_has_its_forward_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = FORWARD.replace("PREPARED", "Ready(mask, 16**-0.5)") + RIGHT  # right on every mask, at the default scale alone
    (tmp_path / "plugin.py").write_text(source)
    assert main(["verify", "--plugin", str(tmp_path / "plugin.py"), *SMALL, "--json"]) == 1
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {finding["trial"] or finding["mask"]: (finding["status"], set(finding["errors"])) for finding in findings} == {
        "causal": ("ok", {"out"}),
        "forward under no_grad": ("ok", {"out"}),
        "another scale": ("wrong", {"out"}),
        "capped scores": ("skipped", set()),
        "attention sinks": ("skipped", set()),
        "rows without keys": ("ok", {"out"}),
        "out and lse of all ring steps": ("unsupported", set()),
        **dict.fromkeys(("strided inputs", "later calls in the same memory", "memory around tensors"), ("ok", {"out"})),
    }


@pytest.mark.usefixtures("in_process")
def test_what_prepare_returns_must_have_a_forward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plugin.py").write_text(FORWARD.replace("PREPARED", "None") + RIGHT)
    assert main(["verify", "--plugin", str(tmp_path / "plugin.py"), *SMALL]) == 1
    sentence = "the prepare() of forward returns None; it must return a longca.Attention, an object with a forward"
    assert f"error: forward on causal: {sentence}\n" in capsys.readouterr().out


def test_the_documentation_lists_every_setting_with_its_default() -> None:
    page = (EXAMPLES.parent / "docs" / "write-a-kernel.md").read_text().split("## The kernel interface")[1]
    text, of_case = page.split("A `longca.Case` describes")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| `")]
    of_decorator = {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    of_class = {name: row[2] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    for name, parameter in inspect.signature(longca.kernel).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and name not in ("name", "lower"):
            assert of_decorator.pop(name).strip("`").replace('"', "'") == repr(parameter.default), name
    for name in ("devices", "capability", "layout", "backward", "gives_lse", "variants", "own_files", "about"):
        assert of_class[name].strip("`").replace('"', "'") == repr(getattr(longca.Kernel, name)), name
    table = of_case.split("\n## ")[0]
    assert {field.name for field in fields(longca.Case)} - {"scale", "numbers"} <= set(re.findall(r"`(\w+)`", table))


def test_a_decorated_function_stays_callable() -> None:
    @longca.kernel
    def halved(q: object, k: object, v: object, mask: object, scale: float) -> object:
        return q, scale / 2

    assert halved("query", 1, 2, None, 4.0) == ("query", 2.0)  # type: ignore[comparison-overlap,call-arg,arg-type]
    assert halved("").label == "halved"


LIMITED = """
import torch, longca
@longca.kernel(dtypes=("bf16",), head_dims=(32,), differentiable=False)
def limited(q, k, v, mask, scale):
    assert (q.dtype, q.shape[2]) == (torch.bfloat16, 32)
    scores = torch.einsum("ihd,jhd->hij", q.float(), k.float().repeat_interleave(q.shape[1] // k.shape[1], 1)) * scale
    weights = scores.masked_fill(~torch.from_numpy(mask.dense()), float("-inf")).softmax(-1).nan_to_num()
    return torch.einsum("hij,jhd->ihd", weights, v.float().repeat_interleave(q.shape[1] // k.shape[1], 1)).to(q.dtype)
"""


@pytest.mark.usefixtures("in_process")
def test_verify_checks_what_a_kernel_declares_and_other_calls_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limited.py").write_text(LIMITED)
    command = ["verify", "--plugin", str(tmp_path / "limited.py"), "--masks", "causal", "--seqlens", "64", "--device", "cpu", "--json"]
    assert main(command) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(finding["dtype"], finding["head_dim"]) for finding in findings} == {("bf16", "32")}
    assert findings[0]["status"] == "ok"
    assert main([*command, "--dtype", "fp32"]) != 0  # what is asked for is not replaced
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["status"] == "unsupported"
    assert "takes bf16, not fp32" in first["reason"]


def test_attention_takes_a_file_with_one_kernel(tmp_path: Path) -> None:
    file = tmp_path / "limited.py"
    file.write_text(LIMITED)
    q = torch.randn(64, 2, 32, dtype=torch.bfloat16)
    right = longca.attention(q, q, q, masks.causal(64), kernel="torch:plain")
    for kernel in (str(file), file):
        torch.testing.assert_close(longca.attention(q, q, q, masks.causal(64), kernel=kernel), right, rtol=0.02, atol=0.02)
    with pytest.raises(longca.Refused, match=r"limited takes head size 32, not 16"):
        longca.attention(*[q[..., :16]] * 3, masks.causal(64), kernel=file)
    (tmp_path / "two.py").write_text(DECORATED.format("a") + DECORATED.format("b").replace("def f", "def g"))
    with pytest.raises(BadInput, match=r"two.py has 2 kernels: a, b; give the name of one"):
        longca.attention(q, q, q, masks.causal(64), kernel=tmp_path / "two.py")


def test_a_kernel_runs_on_the_gpus_that_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: [{"name": "a GPU"}])
    monkeypatch.setattr(devices, "capability", lambda: (8, 0))
    for archs, answer in ((("sm_80",), Yes()), (("sm90a", "sm100"), No("is compiled for sm90a, sm100, and this device is sm80"))):
        kernel = longca.kernel(archs=archs)(lambda q, k, v, mask, scale: q)
        assert registry.available(kernel(), "cuda") == answer
