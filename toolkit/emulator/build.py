"""Builds the engine and the stand-in libraries with the machine's own C++ compiler, once; the result is cached by hash."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from . import codegen, elf_versions, hiprtc
from .cache import cache_dir, folder
from .errors import EmulatorError

NATIVE = Path(__file__).parent / "native"
ENGINE_SOURCES = ("block", "control", "exchange", "matrix", "memory", "special", "wave")
ENGINE_HEADERS = ("block", "engine", "lane", "program", "wave")
HIP_SOURCES = ("hip_device", "hip_memory", "hip_module", "hip_stream", "program")
HIP_HEADERS = ("engine", "hip", "program", "program_file")

# Contraction and reassociation would change results; the vectoriser may assume that nobody reads exception flags.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-D_GNU_SOURCE", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
ENGINE_FLAGS = ("-march=native", "-ftree-vectorize")

# What a function of a device library answers: "not supported" in its own numbers; tracing has nothing to refuse.
REFUSAL = {"libhipblas": 7, "libhipsparse": 10, "libhiprand": 1000, "libhipfft": 14, "librccl": 5}
SILENT = ("libroctracer64", "libroctx64")


def compiler() -> tuple[str, ...]:
    """The command of a C++ compiler: $CXX, g++, clang++ or c++, else the one in the package ziglang.

    Raises:
        EmulatorError: there is none.
    """
    chosen = os.environ.get("CXX")
    for name in [chosen] if chosen else ["g++", "clang++", "c++"]:
        if shutil.which(name):
            return (name,)
    if not chosen and find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    raise EmulatorError(f"no C++ compiler ({chosen or 'g++, clang++'}); install one, or the package ziglang")


def engine(lanes: int) -> Path:
    """The engine for waves of ``lanes`` lanes (libwave.so)."""
    units = {f"alu{k}": text for k, text in enumerate(codegen.vector_source())}
    units |= {name: (NATIVE / f"{name}.cpp").read_text() for name in ENGINE_SOURCES}
    headers = [(NATIVE / f"{name}.h").read_text() for name in ENGINE_HEADERS]
    flags = (*FLAGS, *ENGINE_FLAGS, f"-DLANES={lanes}")
    key = _key(*units.values(), *headers, *flags, _machine())

    def fill(target: Path) -> None:
        objects = _compile(units, flags, target)
        _run([*compiler(), "-shared", "-pthread", *map(str, objects), "-o", str(target / "libwave.so")])
        _remove(objects)

    return folder(cache_dir("emulator") / f"engine{lanes}-{key}", fill) / "libwave.so"


def runtime() -> Path:
    """The folder with libamdhip64.so.7 and the device libraries that refuse."""
    units = {name: (NATIVE / f"{name}.cpp").read_text() for name in HIP_SOURCES}
    libraries = (NATIVE / "device_libraries.txt").read_text()
    headers = [(NATIVE / f"{name}.h").read_text() for name in HIP_HEADERS]
    genuine = next(hiprtc.ensure_folder().glob("libamdhip64*"), None)
    if genuine is None:
        raise EmulatorError(f"no libamdhip64 beside hipRTC in {hiprtc.ensure_folder()}: its symbol versions are needed")
    names = {n: v for n, v in elf_versions.exported(genuine).items() if n.startswith(("hip", "__hip"))}
    key = _key(
        *units.values(), *headers, *FLAGS, libraries, _compiler_version(), *sorted(names), Path(__file__).read_text()
    )

    def fill(target: Path) -> None:
        ours = set(re.findall(r"^HIP [\w ]+[ *]+(\w+)\(", "\n".join(units.values()), re.MULTILINE))
        stubs = 'extern "C" int refuse(const char*);\n' + "".join(
            f'extern "C" int {name}() {{ return refuse("{name}"); }}\n' for name in sorted(set(names) - ours)
        )
        objects = _compile({**units, "stubs": stubs}, FLAGS, target)
        script = target / "versions.map"
        script.write_text(_version_script({n: names.get(n, "hip_4.2") for n in set(names) | ours}))
        _link(objects, target / "libamdhip64.so.7", "libamdhip64.so.7", script)
        (target / "libamdhip64.so").symlink_to("libamdhip64.so.7")
        _remove(objects)
        for line in libraries.splitlines():
            if line and not line.startswith("#"):
                _stub_library(target, *line.split())

    return folder(cache_dir("emulator") / f"runtime-{key}", fill)


def _stub_library(target: Path, library: str, *functions: str) -> None:
    """A library whose functions say that they are not emulated."""
    base = library.partition(".")[0]
    lines = ["#include <cstdio>"]
    versions = {}
    for function in functions:
        name, _, version = function.partition("@")
        versions[name] = version
        if base in SILENT:
            body = "return 0;"
        elif name.endswith("String"):
            body = f'static const char text[] = "{base} is not emulated"; return (long)text;'
        else:
            text = f"emulated GPU: {name} of {base} is not emulated; only kernels compiled at run time are"
            body = f'fputs("{text}\\n", stderr); return {REFUSAL.get(base, 2)};'
        lines.append(f'extern "C" long {name}() {{ {body} }}')
    objects = _compile({base: "\n".join(lines) + "\n"}, FLAGS, target)
    script = None
    if any(versions.values()):
        script = target / f"{base}.map"
        script.write_text(_version_script(versions))
    _link(objects, target / library, library, script)
    _remove(objects)


def _version_script(versions: dict[str, str]) -> str:
    """A linker's version script that gives every name its version and hides all others."""
    nodes: dict[str, list[str]] = {}
    for name, version in sorted(versions.items()):
        nodes.setdefault(version, []).append(name)
    parts = [f"{node} {{ global: {'; '.join(names)}; }};" for node, names in sorted(nodes.items())]
    return "\n".join(parts).replace("; }", "; local: *; }", 1) + "\n"


def _compile(units: dict[str, str], flags: Iterable[str], target: Path) -> list[Path]:
    def one(name: str) -> Path:
        source, result = target / f"{name}.cpp", target / f"{name}.o"
        source.write_text(units[name])
        _run([*compiler(), *flags, f"-I{NATIVE}", "-c", str(source), "-o", str(result)])
        return result

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(one, units))


def _link(objects: list[Path], result: Path, name: str, script: Path | None) -> None:
    versions = [f"-Wl,--version-script={script}"] if script else []
    libraries = ["-pthread", "-ldl", f"-Wl,-soname,{name}", *versions]
    _run([*compiler(), "-shared", *map(str, objects), *libraries, "-o", str(result)])


def _remove(objects: list[Path]) -> None:
    for path in objects:
        path.unlink()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise EmulatorError(f"`{' '.join(command[:2])} ...` cannot build the emulator:\n{done.stderr.strip()}")


def _compiler_version() -> str:
    return subprocess.run([*compiler(), "--version"], capture_output=True, text=True).stdout


def _machine() -> str:
    """Compiler and processor: the engine is built for exactly these."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", info, re.MULTILINE)
    return _compiler_version() + (flags[1] if flags else "")


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
