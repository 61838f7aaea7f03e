"""The commands of docs/emulated-rocm-ci.md, taken from its text and run in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.emulator.environment import TARGETS

PAGE = (Path(__file__).parents[2] / "docs" / "emulated-rocm-ci.md").read_text(encoding="utf-8")
PROGRAM = re.search(r"<!-- test: saxpy\.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"<!-- test: run -->\n```sh\n(.*?)\n```", PAGE, re.DOTALL)


def folder(tmp_path: Path, rocm_python: str) -> dict[str, str]:
    """Put the page's program into ``tmp_path``; the environment has ``toolkit`` and ``python`` as the page's reader has."""
    assert PROGRAM is not None
    (tmp_path / "saxpy.py").write_text(PROGRAM[1])
    (tmp_path / "test_saxpy.py").write_text("def test_saxpy():\n    import saxpy\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("toolkit", f"{sys.executable} -m toolkit"), ("python", rocm_python)):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


@pytest.mark.rocm
@pytest.mark.usefixtures("compiler")
def test_the_commands_of_the_page_succeed(rocm_python: str, tmp_path: Path) -> None:
    environment = folder(tmp_path, rocm_python)
    assert len(COMMANDS) == 3
    said = []
    for command in COMMANDS:
        done = subprocess.run(["sh", "-ec", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    assert said[0] == "gfx1200 ok\n"
    assert "1 passed" in said[1]
    assert said[2] == "gfx942 ok\n"


@pytest.mark.rocm
@pytest.mark.usefixtures("compiler")
def test_the_exit_code_is_that_of_the_command(rocm_python: str, tmp_path: Path) -> None:
    environment = folder(tmp_path, rocm_python)
    (tmp_path / "saxpy.py").write_text((tmp_path / "saxpy.py").read_text().replace("+ 1).all()", "+ 2).all()"))
    done = subprocess.run(["sh", "-ec", COMMANDS[0]], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_the_targets_of_the_page_are_emulated() -> None:
    assert set(re.findall(r"gfx[0-9a-f]+", PAGE)) <= set(TARGETS)
