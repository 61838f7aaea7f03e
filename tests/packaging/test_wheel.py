"""The wheel and the sdist, away from the checkout: what they hold, and that the toolkit works from them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LOCKS = ROOT / "requirements"


@dataclass(frozen=True)
class Environment:
    """A Python environment in which the wheel is installed, and a folder that is no checkout."""

    folder: Path
    elsewhere: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, command: Sequence[object], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run with nothing in the environment that could lead back to the checkout."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TOOLKIT_CACHE") if name in os.environ}
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.elsewhere,
            env={**kept, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
        )

    def toolkit(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run([self.folder / "bin" / "toolkit", *arguments], **variables)


def pip(*arguments: object) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *map(str, arguments)], check=True
    )


def build(tree: Path, out: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of a source tree, by the locked build backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel alone in a new environment; what it depends on is found where the tests found it."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", built[0])
    (site,) = folder.glob("lib/python*/site-packages")
    # A folder named in a .pth is searched, its own .pth files (the editable toolkit) are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Environment(folder, tmp_path_factory.mktemp("elsewhere"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def tracked(*folders: str) -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", *folders], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [Path(name) for name in listed.stdout.split("\0") if name]


def test_the_wheel_holds_the_package_and_its_data(built: tuple[Path, Path]) -> None:
    held = contents(built[0])
    release = "-".join(built[0].name.split("-")[:2])
    assert {name.split("/")[0] for name in held} == {"toolkit", f"{release}.dist-info"}
    for path in tracked("toolkit", "kernels", "notebooks", "specs"):
        inside = path if path.parts[0] == "toolkit" else Path("toolkit/_data", path)
        assert held[inside.as_posix()] == (ROOT / path).read_bytes(), path
    for kind in ("kernels/portable.h", "kernels/norm.hip", "notebooks/near_tie.ipynb", "specs/near-tie/spec.toml"):
        assert f"toolkit/_data/{kind}" in held


def test_the_sdist_makes_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (tree,) = (tmp_path / "source").iterdir()
    assert contents(build(tree, tmp_path / "again")[0]) == contents(built[0])


def test_the_installed_toolkit_is_the_wheel(installed: Environment) -> None:
    said = installed.run([installed.python, "-c", "import toolkit; print(toolkit.__file__)"])
    assert Path(said.stdout.strip()).is_relative_to(installed.folder), said.stderr


def test_ops_are_listed_without_the_checkout(installed: Environment) -> None:
    from toolkit.ops import REGISTRY

    listed = installed.toolkit("ops")
    assert listed.returncode == 0, listed.stderr
    assert {line.split()[0] for line in listed.stdout.splitlines()} >= set(REGISTRY)


def test_the_readme_has_three_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.splitlines()[0].strip("# "))
def test_readme_example_runs_from_the_wheel(example: str, installed: Environment) -> None:
    done = installed.run([installed.python, "-c", example])
    assert done.returncode == 0, done.stderr
    # What the comment beside a print() says is what is printed.
    promised = re.findall(r"^\s*print\(.*\)  # (.*)$", example, re.MULTILINE)
    assert promised
    assert done.stdout.splitlines() == promised


def test_the_readme_names_commands_that_exist(installed: Environment) -> None:
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    targets = set(re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE))
    commands = set(re.findall(r"^toolkit ([a-z-]+)", blocks, re.MULTILINE))
    assert {"reproduce", "test"} <= targets
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets <= set(known)
    assert commands
    for command in sorted(commands):
        assert installed.toolkit(command, "--help").returncode == 0, command


@pytest.mark.slow
def test_the_main_job_in_an_empty_environment_with_an_empty_path(built: tuple[Path, Path], tmp_path: Path) -> None:
    env = Environment(tmp_path / "env", tmp_path / "elsewhere")
    env.elsewhere.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(env.folder)], check=True)
    python = env.folder / "bin" / "python"
    pip("--python", python, "install", "--require-hashes", "-r", LOCKS / "core.lock")
    pip("--python", python, "install", "--no-deps", "--no-index", built[0])
    variables = {"PATH": "", "HOME": str(tmp_path / "home"), "TOOLKIT_CACHE": str(tmp_path / "cache")}

    refused = env.toolkit("reproduce", "near-tie", **variables)
    assert refused.returncode != 0
    assert "no C++ compiler for device cpu" in refused.stderr
    assert "Traceback" not in refused.stderr

    pip("--python", python, "install", "--require-hashes", "-r", LOCKS / "compiler.lock")
    done = env.toolkit("reproduce", "near-tie", **variables)
    assert done.returncode == 0, done.stderr
    (record,) = env.elsewhere.rglob("record.json")
    committed = ROOT / "specs" / "near-tie" / "records" / "qwen3-tiny" / "record.json"
    assert json.loads(record.read_text())["digest"] == json.loads(committed.read_text())["digest"]
