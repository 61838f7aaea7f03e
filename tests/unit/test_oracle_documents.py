"""Every command of the toolkit in the pages on oracles and the gate is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from toolkit import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/oracles.md", "specs/gate/README.md", "specs/gfx1200-m2/README.md")
COMMANDS = [
    pytest.param(line.strip(), id=f"{page}-{number}")
    for page in PAGES
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").split("\n"))
    if re.match(r" {0,4}toolkit ", line)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_is_parsed(command: str) -> None:
    options = cli.parser().parse_args(shlex.split(command, comments=True)[1:])
    assert callable(options.run)


def test_every_page_has_commands_and_a_wrong_one_would_be_noticed() -> None:
    assert {str(param.id).rsplit("-", 1)[0] for param in COMMANDS} == set(PAGES)
    with pytest.raises(SystemExit):
        cli.parser().parse_args(["oracle", "capture", "--with", "nobody"])
