"""Which tier catches which defect: the table of specs/amd-execution/README.md against what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulator.mutants import MUTANTS
from toolkit.investigations import specs

ROOT = Path(__file__).parents[2]
PAGE = (specs.root("specs") / "amd-execution" / "README.md").read_text(encoding="utf-8")
TIERS = ("cpu-wave32", "cpu-wave64", "gfx1200", "gfx942")
SAID = {"–": "clean", "wrong values": "values"}
REPORTS = {"LDS": "of LDS, which nothing has written|data race in LDS", "past the end": "past the end of an allocation"}


def table() -> dict[str, dict[str, str]]:
    """The rows of the page by defect, their cells by tier."""
    names = {mutant.what for mutant in MUTANTS.values()}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"]
    return {row[0]: dict(zip(TIERS, row[1:], strict=True)) for row in rows if row[0] in names}


def examined(name: str, tier: str, rocm_python: str) -> str:
    program = ["-m", "tests.emulator.mutants", name]
    if tier in ("cpu-wave32", "cpu-wave64"):
        command = [sys.executable, *program, tier]
    else:
        command = [
            sys.executable,
            "-m",
            "toolkit.emulator",
            "--lds",
            "strict",
            tier,
            "--",
            rocm_python,
            *program,
            "gpu",
        ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_mutant_is_in_the_table_and_every_defect_is_caught_somewhere() -> None:
    found = table()
    assert set(found) == {mutant.what for mutant in MUTANTS.values()}
    assert {what for what, cells in found.items() if set(cells.values()) == {"–"}} == {MUTANTS["none"].what}


@pytest.mark.rocm
@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", MUTANTS)
def test_the_table_says_what_happens(name: str, rocm_python: str) -> None:
    for tier, cell in table()[MUTANTS[name].what].items():
        said = examined(name, tier, rocm_python)
        if cell in SAID:
            assert said == SAID[cell], f"{name} on {tier}"
        else:
            words = REPORTS[cell.removeprefix("reported: ")]
            assert re.search(f"^stopped: .*kernel \\w+, block .* instruction at 0x.*({words})", said), (
                f"{name} on {tier}: {said}"
            )
