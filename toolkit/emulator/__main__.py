"""``python -m toolkit.emulator gfx1200 -- python program.py``: run a program whose GPU is emulated."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .environment import TARGETS, variables
from .errors import EmulatorError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run."""
    parser.add_argument("target", help=f"emulated GPU: {', '.join(TARGETS)}")
    parser.add_argument("--order", default="forward", help="order of a block's waves: forward, reversed or random:SEED")
    parser.add_argument("--threads", type=int, default=0, help="host threads that run blocks (0 = one for each core)")
    parser.add_argument(
        "--lds",
        choices=("races", "strict", "off"),
        default="races",
        help="report data races in LDS; strict: also reads of words that nothing has written",
    )
    parser.add_argument("program", nargs="+", help="after --: the program and its arguments")


def run(chosen: argparse.Namespace) -> int:
    """Set the surroundings up and become the given program; returns only on failure."""
    try:
        os.environ.update(variables(chosen.target))
        os.environ["NEARTIE_EMULATOR_ORDER"] = chosen.order
        os.environ["NEARTIE_EMULATOR_THREADS"] = str(chosen.threads)
        os.environ["NEARTIE_EMULATOR_LDS"] = chosen.lds
        os.execvp(chosen.program[0], chosen.program)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"cannot run {chosen.program[0]}: {error.strerror}", file=sys.stderr)
        return 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the emulator by itself."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.emulator", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
