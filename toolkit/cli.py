"""The command line ``toolkit``: one module of ``toolkit.commands`` per subcommand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from pkgutil import iter_modules

from toolkit import commands
from toolkit.errors import ToolkitError


def parser() -> argparse.ArgumentParser:
    """The argument parser with every subcommand."""
    top = argparse.ArgumentParser(
        prog="toolkit",
        description="Is a different greedy token a kernel defect, or ordinary rounding at a near-tie?",
        epilog="Exit codes: 0 yes or done, 1 the answer is no (results differ, a gate is not met), 2 bad input or "
        "something is missing; the last line on standard error then says what, where and what to do.",
    )
    top.add_argument("--version", action="version", version=f"neartie-toolkit {metadata.version('neartie-toolkit')}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in iter_modules(commands.__path__):
        register = getattr(import_module(f"toolkit.commands.{module.name}"), "register", None)
        if register is not None:
            register(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; a ToolkitError becomes one message on standard error."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except ToolkitError as error:
        print(f"toolkit {options.command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"toolkit {options.command}: interrupted; nothing half-written is left", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output has closed it. Point stdout away, so that the interpreter's last flush is silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
