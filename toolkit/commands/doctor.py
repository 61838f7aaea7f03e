"""``toolkit doctor``: what this machine has for each device, and what to do about what is missing."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="what this machine has for each device, and what to do about what is missing",
        description="Show compilers, CuPy, drivers and GPUs as the devices will find them. Changes nothing.",
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the findings as JSON too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from toolkit.devices.probe import probe
    from toolkit.files import write_whole

    findings = probe()
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{finding.what:{width}}  {finding.found}")
        if finding.problem:
            print(f"{'':{width}}  -> {finding.problem}")
    if options.json:
        write_whole(options.json, json.dumps([asdict(finding) for finding in findings], indent=1) + "\n")
    return 0
