"""The amd-execution investigation: its rule, its record, and a run of a few ops on emulated machine code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from toolkit import records
from toolkit.cli import main
from toolkit.errors import CheckFailed, ToolkitError
from toolkit.investigations import amd_execution, specs
from toolkit.investigations.amd_execution import AmdExecution, executed_kernels, run_cases, verdict

RECORDS = specs.root("specs") / "amd-execution" / "records"


def row(**changed: Any) -> dict[str, Any]:
    passed = {"op": "add", "dtype": "float32", "cases": 2, "within": 2, "bits_of_cpu": 2, "matrix_unit": False}
    return {**passed, "kernels": {"add_f32": [2, 2, 2]}, **changed}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "executed-in-emulation"),
        ({"within": 1}, "defect"),
        ({"bits_of_cpu": 1}, "defect"),
        ({"bits_of_cpu": 1, "matrix_unit": True}, "executed-in-emulation"),
        ({"within": 1, "matrix_unit": True}, "defect"),
        ({"cases": 0, "within": 0, "bits_of_cpu": 0, "kernels": {}}, "incomplete"),
        ({"kernels": {}}, "incomplete"),
    ],
)
def test_the_rule(changed: dict[str, Any], said: str) -> None:
    found = verdict({"gfx1200": {"rows": [row(**changed)]}}, ops=1)
    assert found["verdict"] == said
    assert said in specs.read("amd-execution").outcomes
    if said == "defect":
        assert "add in float32 on gfx1200" in found["reason"]


def test_an_op_that_is_missing_on_one_target_leaves_the_verdict_incomplete() -> None:
    found = verdict({"gfx1100": {"rows": [row()]}, "gfx1200": {"rows": []}}, ops=1)
    assert found["verdict"] == "incomplete"
    assert "on gfx1200" in found["reason"]


@pytest.mark.parametrize(
    ("name", "targets"), [("gfx11-gfx12", ["gfx1100", "gfx1200"]), ("gfx90a-gfx942", ["gfx90a", "gfx942"])]
)
def test_the_committed_records(name: str, targets: list[str]) -> None:
    record = records.read(RECORDS / name)
    assert record.verdict == "executed-in-emulation"
    summary = record.digested["results"]["summary"]
    assert [entry["target"] for entry in summary] == targets
    for entry in summary:
        assert entry["within tolerance"] == entry["cases"] > 0
        assert entry["with the bits of cpu"] == entry["without a matrix unit"] > 0
    assert record.provenance["hiprtc"].startswith("7.14")
    assert sorted(record.provenance["code_objects"]) == targets
    assert all(record.provenance["code_objects"].values())


def test_no_document_says_that_it_ran_on_an_amd_gpu() -> None:
    for path in (RECORDS.parent / "README.md", *RECORDS.glob("*/record.json")):
        assert "runs on gfx" not in path.read_text(encoding="utf-8")
        assert "ran on gfx" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("parameter", "words"), [("targets=gfx803", "'gfx803' in targets is unknown"), ("ops=abacus", "'abacus' in ops")]
)
def test_unknown_names_get_one_message(
    parameter: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "amd-execution", "-p", parameter, "--out", str(tmp_path / "out")]) in (1, 2)
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_missing_cupy_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(amd_execution.PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(amd_execution.sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(amd_execution, "find_spec", lambda name: None)
    with pytest.raises(ToolkitError, match="run make env-rocm/installed"):
        amd_execution.rocm_python()


# ------------------------------------------------------------------------------------------------ on machine code


@pytest.fixture
def rocm(compiler: Any) -> None:
    """CuPy for ROCm. Where it is missing its tests are skipped, but never where changes are judged."""
    try:
        amd_execution.rocm_python()
    except ToolkitError:
        if os.environ.get("CI"):
            raise
        pytest.skip("no Python with cupy-rocm-7-0; make test sets NEARTIE_ROCM_PYTHON")


@pytest.mark.rocm
@pytest.mark.usefixtures("rocm")
def test_two_ops_are_executed_and_recorded(tmp_path: Path) -> None:
    study = AmdExecution(
        specs.read("amd-execution").checked({"targets": "gfx1200", "ops": "add,rms_norm", "out": str(tmp_path)})
    )
    study.run()
    assert study.concluded()["verdict"] == "executed-in-emulation"
    found = study.found["gfx1200"]
    executed, compiled = executed_kernels(found)
    assert {"add_f32", "rms_norm_bf16"} <= executed <= compiled
    assert set(study.made_with()["code_objects"]["gfx1200"]) == {"elementwise.hip", "norm.hip"}
    for entry in found["rows"]:
        assert max(counts[0] for counts in entry["kernels"].values()) == entry["cases"]


@pytest.mark.rocm
@pytest.mark.usefixtures("compiler")
def test_a_stopped_run_is_a_failed_check_in_the_emulators_words(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\necho noise >&2\necho 'emulated GPU: kernel f: data race' >&2\necho more >&2\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(
        CheckFailed, match=r"did not run to their end on emulated gfx1200: emulated GPU: kernel f: data race$"
    ):
        run_cases("gfx1200", str(program))


@pytest.mark.rocm
@pytest.mark.usefixtures("compiler")
def test_a_run_that_leaves_no_table_is_a_failed_check() -> None:
    with pytest.raises(CheckFailed, match="exit code 0"):
        run_cases("gfx1200", "/bin/true")
