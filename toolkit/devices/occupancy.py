"""How many waves an AMD SIMD holds of a kernel, from what the kernel's code object says that it uses.

The limits are those by which LLVM's AMDGPU backend computes occupancy (AMDGPUBaseInfo.cpp: register file, allocation
granule, waves per SIMD). An estimate: it says what fits, not what a GPU does with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.devices.compile_options import AmdTarget

# RDNA3 and RDNA4 processors whose register file has half as much again.
LARGE_REGISTER_FILE = {"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"}

KIB = 1024


@dataclass(frozen=True)
class Limits:
    """What one scheduling unit has: a compute unit, from gfx10 on two of them as a work-group processor."""

    simds: int
    waves_per_simd: int
    vgprs: int  # of one lane
    vgpr_granule: int
    lds_bytes: int
    workgroups: int


def limits(target: AmdTarget) -> Limits:
    """The limits of ``target``."""
    if target.generation == 9:  # CDNA: vector and accumulation registers in one file of 512
        lds = 160 * KIB if target.processor == "gfx950" else 64 * KIB
        return Limits(simds=4, waves_per_simd=8, vgprs=512, vgpr_granule=8, lds_bytes=lds, workgroups=16)
    large = target.processor in LARGE_REGISTER_FILE
    return Limits(
        simds=4,
        waves_per_simd=16,
        vgprs=1536 if large else 1024,
        vgpr_granule=24 if large else 16,
        lds_bytes=128 * KIB,
        workgroups=32,
    )


def waves_per_simd(target: AmdTarget, *, vgprs: int, sgprs: int, lds_bytes: int, threads: int) -> int:
    """Waves of the kernel that one SIMD can hold at once; 0 when not even one work-group fits."""
    has = limits(target)
    granules = max(1, -(-vgprs // has.vgpr_granule))
    waves = min(has.waves_per_simd, has.vgprs // (granules * has.vgpr_granule))
    if target.generation == 9 and sgprs > 100:  # later generations give every wave all it can address
        waves = min(waves, 7)
    per_workgroup = -(-threads // target.wave)
    workgroups = min(has.workgroups, waves * has.simds // per_workgroup)
    if lds_bytes:
        workgroups = min(workgroups, has.lds_bytes // lds_bytes)
    return min(waves, -(-workgroups * per_workgroup // has.simds))
