"""``toolkit doctor`` on machines with more and with less."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from toolkit.cli import main
from toolkit.devices import gpu_runtime, host, probe


@pytest.fixture(autouse=True)
def fresh() -> None:
    gpu_runtime.require_cupy.cache_clear()
    host.compiler.cache_clear()


def findings() -> dict[str, probe.Finding]:
    return {finding.what: finding for finding in probe.probe()}


def test_a_machine_with_nothing_is_told_what_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu_runtime, "KFD", tmp_path / "kfd")
    monkeypatch.setattr(probe, "NVIDIA", tmp_path / "nvidiactl")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = findings()
    host.compiler.cache_clear()
    assert found["device reference"].found == "ready"
    assert found["device cpu"].found == "not usable"
    assert "install g++" in found["device cpu"].problem
    assert found["CuPy"].found == "not installed"
    assert found["GPU device files"].found == "none"
    assert "there is no GPU here" in found["device gpu"].problem


def test_the_cupy_of_the_gpu_that_is_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu_runtime, "KFD", tmp_path / "kfd")
    monkeypatch.setattr(probe, "NVIDIA", tmp_path / "nvidiactl")
    (tmp_path / "nvidiactl").touch()
    assert "neartie-toolkit[cuda]" in findings()["device gpu"].problem
    (tmp_path / "kfd").touch()
    assert "neartie-toolkit[rocm]" in findings()["device gpu"].problem


def test_a_device_file_that_cannot_be_opened_names_its_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kfd = tmp_path / "kfd"
    kfd.touch()
    monkeypatch.setattr(gpu_runtime, "KFD", kfd)
    assert gpu_runtime.kfd_problem() is None
    monkeypatch.setattr(gpu_runtime.os, "access", lambda path, mode: False)
    problem = gpu_runtime.kfd_problem()
    assert problem is not None
    assert f"join its group ({kfd.group()})" in problem


def test_the_command_prints_every_finding_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "doctor.json"
    assert main(["doctor", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    written = json.loads(out.read_text())
    assert {"machine", "Python", "C++ compiler", "CuPy", "device cpu", "device gpu"} <= {f["what"] for f in written}
    for finding in written:
        assert finding["what"] in printed
        assert finding["found"] in printed
        assert finding["problem"] in printed
