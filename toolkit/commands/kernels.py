"""``toolkit kernels``: every kernel through AMD's own run-time compiler, for every target, without a GPU."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.devices.compile_options import AMD_TARGETS

if TYPE_CHECKING:
    from toolkit.devices.targets import Compilation


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "kernels",
        help="compile every kernel for AMD targets and show what each takes",
        description="Compile every kernel with hipRTC and the options that CuPy passes, and show what each kernel takes "
        "of each target. Exits with 1 when one does not compile, compiles with warnings, or spills registers on gfx1100 "
        "or gfx1200. Needs no GPU; without $NEARTIE_HIPRTC the compiler is downloaded once (88 MB).",
    )
    parser.add_argument(
        "--target",
        default=",".join(AMD_TARGETS),
        metavar="LIST",
        help="comma-separated, such as gfx1100,gfx90a:sramecc+:xnack- (default: all 12)",
    )
    parser.add_argument(
        "--file", action="append", metavar="F", help="a file of kernels/ (may be repeated; default: all)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="compilations side by side (default: one per core)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the table as JSON too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from toolkit import progress
    from toolkit.devices import kernels
    from toolkit.devices.compile_options import amd_target
    from toolkit.devices.targets import compile_all, compiler_version
    from toolkit.errors import CheckFailed, ToolkitError
    from toolkit.files import write_whole

    targets = [amd_target(name) for name in options.target.split(",")]
    unknown = sorted(set(options.file or ()) - set(kernels.names()))
    if unknown:
        raise ToolkitError(f"no file {unknown[0]} in kernels/; there are {', '.join(kernels.names())}")
    if options.jobs is not None and options.jobs < 1:
        raise ToolkitError(f"--jobs is {options.jobs}; at least one compilation must run")
    files = options.file or kernels.names()
    compiled = list(
        progress.track(compile_all(targets, files, options.jobs), "compiling kernels", len(files) * len(targets))
    )

    rows = [(c.target, c.file, use) for c in compiled for use in c.kernels]
    width = max((len(use.kernel) for _, _, use in rows), default=6)
    print(f"{'kernel':{width}}  {'target':9} threads  VGPRs  SGPRs  LDS bytes  scratch  spills  waves/SIMD")
    for target, _, use in sorted(rows, key=lambda row: (row[1], row[2].kernel)):
        spills = use.vgpr_spills + use.sgpr_spills
        print(
            f"{use.kernel:{width}}  {target:9} {use.threads:7}  {use.vgprs:5}  {use.sgprs:5}  {use.lds_bytes:9}  "
            f"{use.scratch_bytes:7}  {spills:6}  {use.waves_per_simd:10}"
        )
    problems = [problem for c in compiled for problem in c.problems]
    print(
        f"hipRTC {compiler_version()}: {len(compiled) - sum(bool(c.error) for c in compiled)} of {len(compiled)} "
        f"compilations succeeded ({len(files)} files, {len(targets)} targets, {len(rows)} kernels)"
    )
    if options.json:
        write_whole(options.json, table(compiled, compiler_version()))
    if problems:
        raise CheckFailed("\n".join(problems))
    return 0


def table(compiled: Sequence[Compilation], compiler: str) -> str:
    """What was compiled, as JSON with one kernel of one target a line."""
    from toolkit.devices import kernels
    from toolkit.devices.compile_options import hiprtc_options
    from toolkit.devices.targets import KernelUse

    columns = [field.name for field in fields(KernelUse)]
    rows = [json.dumps([c.target, c.file, *astuple(use)]) for c in compiled for use in c.kernels]
    head = {
        "compiler": f"hipRTC {compiler}",
        "options": list(hiprtc_options()),
        "kernels": kernels.sources_hash(),
        "columns": ["target", "file", *columns],
    }
    return json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"
