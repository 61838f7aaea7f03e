"""``toolkit emulate gfx1200 -- python program.py``: run a CuPy program whose AMD GPU is emulated on this CPU."""

from __future__ import annotations

import argparse


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("emulate", help="run a CuPy program on an emulated AMD GPU", add_help=False)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # The emulator imports nothing of the rest, so its options are its own.
    from toolkit.emulator.__main__ import main

    return main(options.arguments)
