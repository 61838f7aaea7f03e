"""Models fetched by name: pinned, unpacked and never run, whole in the cache or not there, one sentence when it fails."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.folders import QWEN3
from tests.unit.checkpoints.gguf_files import write_gguf
from toolkit import checkpoints
from toolkit.checkpoints import named
from toolkit.errors import ToolkitError

NAME = "tiny-test-model"
LICENCE = b"Do as you like.\n"


def write_wheel(folder: Path, name: str, members: dict[str, bytes]) -> named.Wheel:
    """A wheel that pip takes, with ``members`` and the metadata that it asks for."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    content = path.read_bytes()
    return named.Wheel(f"{name}==1.0", hashlib.sha256(content).hexdigest(), len(content))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in two wheels that pip finds without a network, and an empty cache; yields the cache's folder of models."""
    content = write_gguf(tmp_path / "x.gguf", QWEN3).read_bytes()
    half = len(content) // 2
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    model = named.NamedModel(
        file="tiny.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        wheels=[
            write_wheel(wheels, "tiny_one", {"tiny_one/LICENSE": LICENCE, "tiny_one/part0": content[:half]}),
            write_wheel(wheels, "tiny_two", {"tiny_two/part1": content[half:]}),
        ],
        pieces=[(0, "tiny_one/part0"), (1, "tiny_two/part1")],
        licence="Tiny is free.",
        licence_piece=(0, "tiny_one/LICENSE"),
        licence_file="tiny.LICENSE",
    )
    monkeypatch.setattr(named, "MODELS", {NAME: model})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "cache" / "neartie-toolkit" / "models"


def change_model(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setattr(named, "MODELS", {NAME: replace(named.MODELS[NAME], **changes)})


def refused(cache: Path, *words: str) -> None:
    with pytest.raises(ToolkitError) as caught:
        named.fetch(NAME)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    if cache.exists():
        assert {path.name for path in cache.iterdir()} <= {f"{NAME}.lock"}


def test_fetched_once_and_loaded_by_name(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoints.load(NAME).config.layers == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Tiny is free.")
    assert "downloading tiny_two==1.0" in shown
    assert {path.name for path in cache.iterdir()} == {"tiny.LICENSE", "tiny.gguf", f"{NAME}.lock"}
    assert (cache / "tiny.LICENSE").read_bytes() == LICENCE
    modified = (cache / "tiny.gguf").stat().st_mtime_ns
    assert named.fetch(NAME) == cache / "tiny.gguf"
    shown = capsys.readouterr().err
    assert shown.startswith("Tiny is free.")
    assert "downloading" not in shown
    assert (cache / "tiny.gguf").stat().st_mtime_ns == modified


def test_a_path_of_that_name_comes_first(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_gguf(tmp_path / NAME, QWEN3)
    assert checkpoints.load(NAME).path == Path(NAME)
    assert not cache.exists()


def test_a_wheel_of_another_hash(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = named.MODELS[NAME].wheels
    change_model(monkeypatch, wheels=[one, replace(two, sha256="0" * 64)])
    refused(cache, NAME, "tiny_two==1.0", "hash differs")


def test_contents_of_another_hash(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_model(monkeypatch, sha256="0" * 64)
    refused(cache, NAME, "tiny.gguf", "report")
    change_model(monkeypatch, pieces=[(0, "tiny_one/absent")])
    refused(cache, "tiny_one/absent", "report")


def test_a_download_that_fails(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    refused(cache, NAME, "tiny_one==1.0", "could not be downloaded", "try again")


def test_an_interrupted_download_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            named.fetch(NAME)
    assert [path.name for path in cache.iterdir()] == [f"{NAME}.lock"]
    assert named.fetch(NAME).exists()


def test_what_a_killed_download_left_is_removed(cache: Path) -> None:
    left_over = cache / f"{NAME}.partial-abc"
    left_over.mkdir(parents=True)
    (left_over / "half").write_bytes(b"x")
    named.fetch(NAME)
    assert not left_over.exists()


def test_killed_at_any_moment(cache: Path, tmp_path: Path) -> None:
    """SIGKILL while it unpacks: no final name appears, and the next run gives the whole file."""
    script = (
        "import os, pickle, sys\n"
        "from toolkit.checkpoints import named\n"
        "named.MODELS = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "real = named.shutil.copyfileobj\n"
        "def copy(*arguments):\n"
        "    real(*arguments)\n"
        "    os.kill(os.getpid(), 9)\n"
        "named.shutil.copyfileobj = copy\n"
        f"named.fetch({NAME!r})\n"
    )
    models = pickle.dumps(dict(named.MODELS)).hex()
    done = subprocess.run([sys.executable, "-c", script, models], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    assert not (cache / "tiny.gguf").exists()
    named.fetch(NAME)
    assert {path.name for path in cache.iterdir()} == {"tiny.LICENSE", "tiny.gguf", f"{NAME}.lock"}


def test_no_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        usage = type("Usage", (), {"free": 5 << 20})
        patch.setattr("shutil.disk_usage", lambda path: usage)
        change_model(patch, size=20 << 20)
        refused(cache, NAME, "needs 20 MiB", "5 MiB are free", "XDG_CACHE_HOME")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copyfileobj", full)
    refused(cache, NAME, "No space left on device", "make room")


def test_a_cache_that_cannot_be_written(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    refused(cache, NAME, "cannot be kept", "Not a directory", "XDG_CACHE_HOME")


def test_a_damaged_entry_is_refused(cache: Path) -> None:
    target = named.fetch(NAME)
    content = bytearray(target.read_bytes())
    content[-1] ^= 1
    target.write_bytes(content)
    with pytest.raises(ToolkitError, match=r"tiny\.gguf.*hash differs; remove it"):
        named.fetch(NAME)


def test_a_python_without_pip(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(cache.parent / "python"))
    refused(cache, NAME, "python")


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value, expected in {"/c": Path("/c"), "": tmp_path / ".cache", "relative": tmp_path / ".cache"}.items():
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert named.cache_folder() == expected / "neartie-toolkit" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert named.cache_folder() == tmp_path / ".cache" / "neartie-toolkit" / "models"


def test_an_unknown_name_lists_the_known_ones(cache: Path) -> None:
    with pytest.raises(ToolkitError, match=NAME):
        checkpoints.load("no-such-model")


@pytest.mark.parametrize("model", named.MODELS.values(), ids=list(named.MODELS))
def test_the_pins_are_complete(model: named.NamedModel) -> None:
    assert all(len(digest) == 64 for digest in (model.sha256, *(wheel.sha256 for wheel in model.wheels)))
    used = {wheel for wheel, _ in [*model.pieces, model.licence_piece]}
    assert used == set(range(len(model.wheels)))
