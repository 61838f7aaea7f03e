"""``toolkit kernels``: what fails the gate, and what it shows. (test_compile_amd.py puts every kernel through it.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolkit.cli import main
from toolkit.devices import targets
from toolkit.devices.compile_options import amd_target

pytestmark = pytest.mark.rocm


def test_a_warning_and_an_error_fail_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'extern "C" __global__ void f(int* x) {{ {} }}'
    target = amd_target("gfx1100")

    def compiled(body: str) -> targets.Compilation:
        monkeypatch.setattr(targets.kernels, "source", lambda name, wave: source.format(body))
        return targets.compile_file("f.hip", target)

    assert compiled("x[0] = 1;").problems == []
    assert "warnings" in compiled("x[0] = 1 << 40;").problems[0]
    assert "does not compile f.hip for gfx1100" in compiled("y = 1;").problems[0]
    many = "float a[300]; for (int i = 0; i < 300; ++i) a[i] = x[i]; __syncthreads(); " + (
        "for (int i = 0; i < 300; ++i) x[299 - i] = a[x[i] % 300];"
    )
    assert "spills" in compiled(many).problems[0]


def test_the_command_shows_what_a_kernel_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "targets.json"
    assert main(["kernels", "--target", "gfx1100", "--file", "norm.hip", "--jobs", "1", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    written = json.loads(out.read_text())
    rows = [dict(zip(written["columns"], row, strict=True)) for row in written["rows"]]
    assert {"rms_norm_bf16", "add_rms_norm_f32"} <= {row["kernel"] for row in rows}
    assert all(row["target"] == "gfx1100" and row["file"] == "norm.hip" and row["vgprs"] > 0 for row in rows)
    for row in rows:
        assert row["kernel"] in printed
    assert "1 of 1 compilations succeeded" in printed


def test_a_file_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--target", "gfx1100", "--file", "no.hip"]) == 2
    assert "no file no.hip in kernels/; there are" in capsys.readouterr().err
