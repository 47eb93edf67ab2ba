"""`longca doctor`: what is here, and what disturbs measurements."""

import json

import pytest

import longca
from longca import devices
from longca.bench.run import health
from longca.cli import main


def test_doctor_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "cpu", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kernels"]["torch:plain"] == ""
    assert "runs on cuda only" in facts["kernels"]["fa3"]
    assert facts["kernels"] == longca.doctor("cpu").kernels


@pytest.mark.skipif(bool(devices.gpus()), reason="this machine has a GPU")
def test_a_gpu_that_is_asked_for_and_not_there_is_exit_code_1() -> None:
    assert main(["doctor", "--device", "cuda"]) == 1
    assert main(["doctor"]) == 0


def test_doctor_finds_what_disturbs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(query: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
        if query == "compute-apps":
            return [dict(zip(fields, (pid, "python", name), strict=True)) for pid, name in (("77", "GPU-a"), ("88", "GPU-b"))]
        quiet = ("0x0", "700.00", "700.00", "0", "Enabled", "GPU-b")
        rows = (("0x24", "500.00", "700.00", "97", "Disabled", "GPU-a"), quiet)
        return [dict(zip(fields, row[-len(fields) :], strict=True)) for row in rows]

    monkeypatch.setattr(health.devices, "ask", answer)
    monkeypatch.setattr(health, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert [sentence for sentence in health.gpu_findings() if "nvidia-ml-py" in sentence]
    monkeypatch.setattr(health, "find_spec", lambda name: name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len(health.gpu_findings()) == 1  # process 88: what others do on a GPU that is hidden here disturbs nobody
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    text = " ".join(health.gpu_findings())
    for words in ("process 77", "its power cap", "thermal slowdown", "500 W of 700 W", "97 %", "persistence"):
        assert words in text
    assert "process 88" not in text
