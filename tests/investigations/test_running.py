"""Notebooks that finish, that fail, and that only look finished; records made, verified and tampered with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

import toolkit
from toolkit import records
from toolkit.cli import main
from toolkit.errors import CheckFailed, ToolkitError
from toolkit.investigations import execution, running, specs

NOTEBOOK = specs.root("notebooks") / "near_tie.ipynb"
SMALL = {"tokens": 3, "repeats": 2}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "two.txt"
    path.write_text("7 + 5 =\nMy favourite colour is\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, prompts: Path) -> Path:
    folder = tmp_path_factory.mktemp("made")
    toolkit.reproduce("near-tie", {**SMALL, "prompts": str(prompts)}, folder)
    return folder


def broken(tmp_path: Path, source: str, at: int = 5) -> Path:
    """The notebook with one code cell replaced."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    [cell for cell in notebook.cells if cell.cell_type == "code"][at]["source"] = source
    path = tmp_path / "broken.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_finished_run_leaves_everything(made: Path) -> None:
    assert {p.name for p in made.iterdir()} >= {"record.json", "run.json", "notebook.ipynb", "drift.png", "margins.png"}
    found = records.read(made)
    assert found.verdict in ("identical", "near-tie")
    assert found.digested["parameters"]["tokens"] == 3
    assert str(made) not in (made / "record.json").read_text()
    assert str(NOTEBOOK) not in (made / "notebook.ipynb").read_text()
    assert execution.why_unfinished(made / "notebook.ipynb") == ""
    assert str(NOTEBOOK.parent) not in (made / "notebook.ipynb").read_text()


def test_verify_says_same(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(made)]) == 0
    assert "same results" in capsys.readouterr().out


def test_verify_says_where_a_result_differs(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((made / "record.json").read_text())
    content["digested"]["results"]["battery"][0]["tokens"]["backend"][0] += 1
    content["digest"] = records.digest(content["digested"])
    (tmp_path / "record.json").write_text(json.dumps(content))
    assert main(["verify", str(tmp_path)]) == 1
    assert "results.battery[0].tokens.backend[0]" in capsys.readouterr().out


def test_verify_cannot_run_without_the_model(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((made / "record.json").read_text())
    content["digested"]["parameters"]["model"] = "no-such-model"
    content["digest"] = records.digest(content["digested"])
    (tmp_path / "record.json").write_text(json.dumps(content))
    assert main(["verify", str(tmp_path)]) == 2
    assert "no-such-model" in capsys.readouterr().err


def test_a_tampered_record_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "record.json", tmp_path)
    content = json.loads((tmp_path / "record.json").read_text())
    content["digested"]["verdict"]["verdict"] = "identical?"
    (tmp_path / "record.json").write_text(json.dumps(content))
    with pytest.raises(ToolkitError, match="digest"):
        records.read(tmp_path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("1 / 0", "division by zero"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "did not finish"),
    ],
    ids=["failed cell", "dead kernel"],
)
def test_an_unfinished_notebook_is_not_a_record(source: str, words: str, tmp_path: Path, prompts: Path) -> None:
    out = tmp_path / "out"
    parameters = specs.read("near-tie").checked({**SMALL, "prompts": str(prompts), "out": str(out)})
    with pytest.raises(CheckFailed, match=words) as raised:
        execution.execute(broken(tmp_path, source), out / "notebook.ipynb", parameters)
    assert str(out / "notebook.ipynb") in str(raised.value)
    assert json.loads((out / "record.json").read_text())["complete"] is False
    with pytest.raises(ToolkitError, match="incomplete"):
        records.read(out)


def test_completed_cells_alone_prove_nothing(made: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(made / "notebook.ipynb", as_version=4)
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    last["outputs"] = []
    nbformat.write(notebook, tmp_path / "unmarked.ipynb")
    assert "completion" in execution.why_unfinished(tmp_path / "unmarked.ipynb")
    last["execution_count"] = None
    nbformat.write(notebook, tmp_path / "unrun.ipynb")
    assert "was not run" in execution.why_unfinished(tmp_path / "unrun.ipynb")


def untagged(tmp_path: Path) -> Path:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)
    nbformat.write(notebook, tmp_path / "untagged.ipynb")
    return tmp_path / "untagged.ipynb"


def test_an_untagged_parameters_cell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="tagged"):
        execution.execute(untagged(tmp_path), tmp_path / "out.ipynb", {})


@pytest.mark.parametrize(
    ("tagged", "parameters", "words"),
    [(True, {"temperature": 1}, "unknown parameter temperature"), (False, {"tokens": 3}, "not tagged")],
)
def test_plain_papermill_refuses_by_itself(
    tagged: bool, parameters: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = NOTEBOOK if tagged else untagged(tmp_path)
    with pytest.raises(papermill.PapermillExecutionError, match=words):
        papermill.execute_notebook(
            str(notebook), str(tmp_path / "out.ipynb"), parameters=parameters, progress_bar=False
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["near-tie", "-p", "temperature=1"], "no parameter 'temperature'"),
        (["near-tie", "-p", "tokens=many"], "is a int"),
        (["near-tie", "-p", "tokens"], "NAME=VALUE"),
        (["no-such-spec"], "no spec"),
        (["near-tie", "--model", "no-such-model", "--out", "OUT"], "no-such-model"),
        (["near-tie", "-p", "device_b=abacus", "--out", "OUT"], "abacus"),
        (["near-tie", "-p", "faults=nothing", "--out", "OUT"], "unknown fault"),
    ],
)
def test_bad_arguments_get_one_message(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *[a.replace("OUT", str(tmp_path / "out")) for a in arguments]]) in (1, 2)
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_parameters_take_the_type_of_their_default() -> None:
    assert running.parse_parameters("near-tie", ["tokens=4", "model=x"]) == {"tokens": 4, "model": "x"}


def test_an_executed_notebook_does_not_say_where_the_cache_is(tmp_path: Path) -> None:
    cells = [
        'import toolkit.checkpoints.named as named\n\nprint("kept in", named.cache_folder() / "x")',
        f'print("{execution.MARK}")',
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, tmp_path / "source.ipynb")
    execution.execute(tmp_path / "source.ipynb", tmp_path / "executed.ipynb", {})
    executed = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    assert "kept in …/neartie-toolkit/models/x\n" in [out.text for cell in executed.cells for out in cell.outputs]
