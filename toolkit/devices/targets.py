"""Every kernel compiled for every AMD target by the real hipRTC, on any machine, and what each kernel takes there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from toolkit.devices import kernels
from toolkit.devices.compile_options import AmdTarget, hiprtc_options
from toolkit.devices.occupancy import waves_per_simd
from toolkit.emulator import hiprtc
from toolkit.emulator.code_object import CodeObject
from toolkit.emulator.errors import CompileError, EmulatorError
from toolkit.errors import ToolkitError

# Where a spilled register is a failed check: the targets whose users the project is for.
NO_SPILLS = ("gfx1100", "gfx1200")


@dataclass(frozen=True)
class KernelUse:
    """What one kernel takes of one target. ``scratch_bytes`` of memory per thread are where spilled registers go."""

    kernel: str
    threads: int
    vgprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    waves_per_simd: int


@dataclass(frozen=True)
class Compilation:
    """One kernel file for one target: what its kernels take, or why it does not compile; warnings beside either."""

    file: str
    target: str
    kernels: tuple[KernelUse, ...] = ()
    warnings: str = ""
    error: str = ""

    @property
    def problems(self) -> list[str]:
        """What fails the gate, one sentence each."""
        where = f"{self.file} for {self.target}"
        found = [self.error] if self.error else []
        if self.warnings:
            found.append(f"{where} compiles with warnings: {self.warnings}")
        if self.target in NO_SPILLS:
            found += [
                f"{where}: {kernel.kernel} spills {kernel.vgpr_spills} vector and {kernel.sgpr_spills} scalar registers"
                for kernel in self.kernels
                if kernel.vgpr_spills or kernel.sgpr_spills or kernel.scratch_bytes
            ]
        return found


def compiler_version() -> str:
    """The release of the hipRTC that ``compile_all`` uses. Raises ToolkitError when there is none and no way to one."""
    try:
        return hiprtc.ensure().version
    except EmulatorError as error:
        raise ToolkitError(str(error)) from None


def compile_file(file: str, target: AmdTarget) -> Compilation:
    """Compile one kernel file with the options that CuPy would pass on such a GPU."""
    try:
        code, log = hiprtc.ensure().compile_with_log(
            kernels.source(file, wave=target.wave), target.name, hiprtc_options(), file
        )
    except CompileError as error:
        return Compilation(file, target.name, error=str(error))
    uses = tuple(
        KernelUse(
            kernel=kernel.name,
            threads=kernel.max_flat_workgroup_size,
            vgprs=kernel.vgprs,
            sgprs=kernel.sgprs,
            lds_bytes=kernel.lds,
            scratch_bytes=kernel.private,
            vgpr_spills=kernel.vgpr_spills,
            sgpr_spills=kernel.sgpr_spills,
            waves_per_simd=waves_per_simd(
                target,
                vgprs=kernel.vgprs,
                sgprs=kernel.sgprs,
                lds_bytes=kernel.lds,
                threads=kernel.max_flat_workgroup_size,
            ),
        )
        for kernel in sorted(CodeObject(code).kernels.values(), key=lambda kernel: kernel.name)
    )
    return Compilation(file, target.name, uses, warnings=log)


def compile_all(
    targets: Sequence[AmdTarget], files: Sequence[str] | None = None, jobs: int | None = None
) -> Iterator[Compilation]:
    """Every kernel file for every target, in order of files, side by side in ``jobs`` processes (default: one a core).

    The compiler is fetched before the first process starts. With one job everything runs in this process.
    """
    compiler_version()
    work = [(file, target) for file in files or kernels.names() for target in targets]
    jobs = min(jobs or os.cpu_count() or 1, len(work))
    if jobs == 1:
        yield from (compile_file(file, target) for file, target in work)
        return
    # hipRTC's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(compile_file, *zip(*work, strict=True))
