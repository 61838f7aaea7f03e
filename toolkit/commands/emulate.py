"""``toolkit emulate gfx1200 -- python program.py``: run a CuPy program whose AMD GPU is emulated on this CPU."""

from __future__ import annotations

import argparse

from toolkit.emulator import __main__ as emulator


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("emulate", help="run a CuPy program on an emulated AMD GPU")
    emulator.add_arguments(parser)
    parser.set_defaults(run=emulator.run)
