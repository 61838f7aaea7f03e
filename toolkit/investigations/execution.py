"""Executing a notebook with papermill, and telling a finished one from one that only looks finished.

Papermill reports every cell of a notebook whose kernel was killed as completed. What counts here is what the notebook
itself left behind: every code cell has an execution count, in order, and the last one printed the mark of completion.
"""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import Any

import nbformat

from toolkit.checkpoints import named
from toolkit.errors import CheckFailed, ToolkitError
from toolkit.files import write_whole

MARK = "investigation complete"
PARAMETERS_TAG = "parameters"


def refuse_untagged(notebook: Path) -> None:
    """Raises ToolkitError unless exactly one cell, the first code cell, is tagged ``parameters``.

    Without the tag papermill injects the given values before the defaults, which then override them silently.
    """
    cells = [cell for cell in _read(notebook).cells if cell.cell_type == "code"]
    tagged = [i for i, cell in enumerate(cells) if PARAMETERS_TAG in cell.metadata.get("tags", [])]
    if tagged != [0]:
        raise ToolkitError(
            f"{notebook}: the first code cell, and no other, must be tagged {PARAMETERS_TAG!r}, or the values given "
            "would be overridden by its defaults; restore the tag"
        )


def execute(notebook: Path, output: Path, parameters: dict[str, Any]) -> None:
    """Run ``notebook`` into ``output``. Raises CheckFailed, naming the partial notebook, when it did not finish."""
    import papermill

    refuse_untagged(notebook)
    output.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    failure: Exception | None = None
    try:
        papermill.execute_notebook(
            str(notebook),
            str(output),
            parameters=parameters,
            progress_bar=True,
            log_output=False,
            kernel_name="python3",
        )
    except Exception as error:
        failure = error
    if output.is_file():
        _forget_places(output)
    unfinished = why_unfinished(output)
    if failure is not None or unfinished:
        said = _last_line(failure) if failure is not None else unfinished
        raise CheckFailed(f"the notebook did not finish: {said}; what it did is in {output}, and no record was made")


def _forget_places(executed: Path) -> None:
    """Take out where the files were, of papermill's metadata and of what was printed about the cache of fetched models:
    a record names no path of a machine."""
    notebook = _read(executed)
    for key in ("input_path", "output_path", "environment_variables"):
        notebook.metadata.get("papermill", {}).pop(key, None)
    folder = named.cache_folder()
    for cell in notebook.cells:
        for out in cell.get("outputs", []):
            if "text" in out:
                out["text"] = out["text"].replace(str(folder), f"…/{folder.parent.name}/{folder.name}")
    write_whole(executed, nbformat.writes(notebook) + "\n")  # type: ignore[no-untyped-call]


def why_unfinished(executed: Path) -> str:
    """Why an executed notebook is not complete; empty when it is."""
    if not executed.is_file():
        return "it was never started"
    cells = [cell for cell in _read(executed).cells if cell.cell_type == "code" and cell.source.strip()]
    counts = [cell.execution_count for cell in cells]
    if None in counts:
        return f"code cell {counts.index(None) + 1} of {len(counts)} was not run"
    if counts != sorted(set(counts)):
        return "its cells were run out of order"
    for number, cell in enumerate(cells, 1):
        if any(out.output_type == "error" for out in cell.outputs):
            return f"code cell {number} of {len(counts)} failed"
    text = "".join(out.get("text", "") for out in cells[-1].outputs if out.output_type == "stream") if cells else ""
    return "" if MARK in text else "its last cell did not report completion"


def _read(path: Path) -> Any:
    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ToolkitError(f"{path} is not a readable notebook: {_last_line(error)}") from None


def _last_line(error: BaseException) -> str:
    # papermill's message repeats the whole traceback; its last line is the exception's own.
    lines = [line.strip() for line in _plain(str(error)).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _plain(text: str) -> str:
    """``text`` without terminal colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def refuse_foreign_names(namespace: dict[str, Any], known: set[str]) -> None:
    """For a notebook's first call: refuse parameters that it does not have and an untagged parameters cell.

    Under plain papermill nobody else looks: an unknown name would be set and never read, and without the tag the
    values given are injected before the defaults. Raises ToolkitError.
    """
    cells = [source for source in namespace.get("In", []) if source]
    injected = [i for i, source in enumerate(cells) if source.startswith("# Parameters")]
    if injected and injected[0] == 0:
        raise ToolkitError(
            f"the parameters cell is not tagged {PARAMETERS_TAG!r}, so the values given were overridden by its defaults; "
            "restore the tag"
        )
    given = {
        target.id
        for i in injected
        for statement in ast.parse(cells[i]).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    unknown = sorted(given - known)
    if unknown:
        raise ToolkitError(f"unknown parameter {', '.join(unknown)}; this notebook has {', '.join(sorted(known))}")
