"""What run-time compilers are told, so that every GPU computes what device ``cpu`` computes.

Contraction of a*b+c is off everywhere (the sources write their fused multiply-adds), float32 denormals are flushed and
division and square root are exactly rounded; see kernels/portable.h. One tuple serves every module of a device: on HIP
CuPy compiles a dummy per distinct tuple in every process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolkit.errors import ToolkitError

# Every AMD target that the kernels are compiled for, in CI too.
AMD_TARGETS = (
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1200",
    "gfx1201",
)

COMMON_ON_HIP = ("--std=c++17", "-ffp-contract=off")

# CuPy adds these itself; whoever compiles without CuPy (the compile gate) adds them to compile the same code.
ADDED_BY_CUPY_ON_HIP = ("-fcuda-flush-denormals-to-zero",)

_TARGET = re.compile(r"(gfx[0-9]+[0-9a-f]{2})((?::[a-z]+[+-])*)")


@dataclass(frozen=True)
class AmdTarget:
    """An AMD processor and the settings of its features: "gfx90a", ("sramecc+", "xnack-")."""

    processor: str
    features: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As --offload-arch takes it and as a device's gcnArchName gives it."""
        return ":".join((self.processor, *self.features))

    @property
    def generation(self) -> int:
        """The digits before the last two: 9, 10, 11 or 12."""
        return int(self.processor[3:-2])

    @property
    def wave(self) -> int:
        """Threads of a wave: gfx9 has 64, later generations compute with 32."""
        return 64 if self.generation == 9 else 32

    @property
    def matrix_unit(self) -> bool:
        """Whether it multiplies bfloat16 matrices in hardware: CDNA2 (gfx90a) and later, RDNA3 and later."""
        return self.generation >= 11 or self.processor in {"gfx90a", "gfx942", "gfx950"}


def amd_target(text: str) -> AmdTarget:
    """``text`` as a target. Raises ToolkitError when it is not shaped like one."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise ToolkitError(f"{text!r} is no AMD target; one looks like gfx1100 or gfx90a:sramecc+:xnack-")
    return AmdTarget(match[1], tuple(match[2].split(":")[1:]))


def hip_options(target: AmdTarget) -> tuple[str, ...]:
    """What CuPy is given on HIP. The target is named because hipRTC would otherwise ask a driver, which may not be
    there, and because CuPy's cache key then holds it."""
    return (*COMMON_ON_HIP, f"--offload-arch={target.name}")


def hiprtc_options() -> tuple[str, ...]:
    """What hipRTC is given in CuPy's place, the target aside: no kernel includes from the folders that CuPy adds."""
    return (*COMMON_ON_HIP, *ADDED_BY_CUPY_ON_HIP)


def cuda_options() -> tuple[str, ...]:
    """What CuPy is given on CUDA; CuPy names the device's architecture itself."""
    return ("--std=c++17", "-fmad=false")
