"""The locks against pyproject.toml, and the Makefile's steps with a stand-in for Python."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PIN = re.compile(r"^(\S+)==(\S+)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
PYTHONS = ("3.11.7", "3.12.1", "3.13.0")
MACHINES = ("x86_64", "aarch64")


def declared(lock: str) -> list[Requirement]:
    """The direct dependencies that a lock must pin."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    wanted: dict[str, list[str]] = {
        "build": PROJECT["build-system"]["requires"],
        "compiler": extras["compiler"],
        "core": project["dependencies"],
        "dev": project["dependencies"] + extras["dev"] + extras["lab"],
        "rocm": project["dependencies"] + extras["rocm"],
        "cuda": project["dependencies"] + extras["cuda"],
    }
    return [Requirement(line) for line in wanted[lock]]


def environment(python: str, machine: str) -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
    }


def pins(lock: Path, python: str, machine: str) -> dict[str, str]:
    """Name → version that a lock installs there; a name that is pinned twice there fails."""
    found: dict[str, str] = {}
    for name, version, marker, _ in PIN.findall(lock.read_text(encoding="utf-8")):
        if marker and not Marker(marker).evaluate(environment(python, machine)):
            continue
        assert name not in found, f"{lock.name} pins {name} twice for Python {python} on {machine}"
        found[canonicalize_name(name)] = version
    return found


def test_there_is_a_lock_for_every_extra() -> None:
    extras = set(PROJECT["project"]["optional-dependencies"]) - {"lab"}  # lab is part of dev's lock
    assert {path.stem for path in LOCKS} == extras | {"core", "build"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_is_hashes_and_pins_and_nothing_else(lock: Path) -> None:
    assert PIN.sub("", lock.read_text(encoding="utf-8")) == ""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_pins_what_is_declared(lock: Path, python: str, machine: str) -> None:
    found = pins(lock, python, machine)
    for requirement in declared(lock.stem):
        if requirement.marker and not requirement.marker.evaluate(environment(python, machine)):
            continue
        name = canonicalize_name(requirement.name)
        assert name in found, f"{lock.name} lacks {name}; run make lock"
        assert requirement.specifier.contains(found[name], prereleases=True), f"{name} {found[name]}; run make lock"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_locks_agree_with_each_other(python: str, machine: str) -> None:
    merged: dict[str, str] = {}
    for lock in LOCKS:
        for name, version in pins(lock, python, machine).items():
            assert merged.setdefault(name, version) == version, f"{name} differs in {lock.name}; run make lock"


# ------------------------------------------------------------------------------------------------------ the Makefile

# Says what it is asked to do, makes "environments" that do the same, and fails where the test puts a file.
STAND_IN = """#!/bin/sh
here=$(dirname "$0")
[ "$1" = -c ] && exit 0
[ "$1" = --version ] && { echo "Python 3.11.0"; exit 0; }
printf '[%s]' "$@" >> "$LOG"; echo >> "$LOG"
[ "$1 $2" = "-m venv" ] && { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit; }
case "$*" in *"-m pip"*) test ! -e "$LOG.no-network";; esac
"""


@pytest.fixture
def bare(tmp_path: Path) -> Any:
    """make in a copy of the tree's packaging files, with a stand-in for python3; returns (result, what it was asked)."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    python = tmp_path / "stand-in"
    python.write_text(STAND_IN)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    log = tmp_path / "log"

    def make(*arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        log.write_text("")
        done = subprocess.run(
            ["make", "--no-print-directory", f"PYTHON={python}", *arguments],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "LOG": str(log)},
            capture_output=True,
            text=True,
        )
        return done, log.read_text().splitlines()

    return make


def test_reproduce_installs_once_and_passes_its_variables(bare: Any) -> None:
    done, asked = bare("reproduce", "MODEL=my model", "DEVICE=gpu", "ARGS=-p tokens=4")
    assert done.returncode == 0, done.stderr
    venv, locks, project, job = asked
    assert venv == "[-m][venv][.venv]"
    assert "[-r][requirements/core.lock][-r][requirements/build.lock]" in locks
    assert project.endswith("[--no-build-isolation][--no-deps][--editable][.]")
    assert job == "[-m][toolkit][reproduce][near-tie][--model][my model][-p][device_b=gpu][-p][tokens=4]"
    assert bare("reproduce")[1] == ["[-m][toolkit][reproduce][near-tie]"]


def test_an_installation_that_failed_is_tried_again(bare: Any, tmp_path: Path) -> None:
    (tmp_path / "log.no-network").touch()
    done, _ = bare("reproduce")
    assert done.returncode != 0
    (tmp_path / "log.no-network").unlink()
    done, asked = bare("reproduce")
    assert done.returncode == 0
    assert "core.lock" in asked[0]
    assert "[reproduce]" in asked[-1]


def test_a_changed_lock_is_installed(bare: Any, tmp_path: Path) -> None:
    bare("install")
    assert bare("install")[1] == []
    lock = tmp_path / "requirements" / "dev.lock"
    later = (tmp_path / ".venv" / "dev.installed").stat().st_mtime + 10
    os.utime(lock, (later, later))
    (asked,) = bare("install")[1]
    assert "dev.lock" in asked


def test_an_environment_whose_python_is_gone_is_made_anew(bare: Any, tmp_path: Path) -> None:
    bare("reproduce")
    (tmp_path / ".venv" / "bin" / "python").unlink()
    assert len(bare("reproduce")[1]) == 4


def test_an_old_python_is_refused_with_what_to_do(bare: Any, tmp_path: Path) -> None:
    done, _ = bare("reproduce", "PYTHON=/bin/false")
    assert done.returncode == 2
    assert "Python 3.11 or newer is needed, and /bin/false is not: run make PYTHON=" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_python_without_venv_leaves_nothing_behind(bare: Any, tmp_path: Path) -> None:
    broken = tmp_path / "no-venv"
    broken.write_text(STAND_IN.replace("exit; }", "exit 1; }"))
    broken.chmod(0o755)
    done, _ = bare("reproduce", f"PYTHON={broken}")
    assert done.returncode == 2
    assert "python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_makefile_selects_tests_by_markers_that_exist() -> None:
    # pytest takes an unknown name after -m for a marker that no test has, and runs nothing.
    known = {line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    chosen = re.findall(r"^\t\$\(PYTEST\) -m (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(chosen) == 3
    assert {word for text in chosen for word in re.findall(r"\w+", text)} - {"not"} <= known
