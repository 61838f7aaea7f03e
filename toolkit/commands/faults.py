"""``toolkit faults``: the planted faults."""

from __future__ import annotations

import argparse

from toolkit.faults import CATALOGUE


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("faults", help="list the defects that can be planted")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for fault in CATALOGUE.values():
        print(f"{fault.name}: {fault.what} (resembles: {fault.resembles}; expected verdict: {fault.expected})")
    return 0
