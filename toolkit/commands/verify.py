"""``toolkit verify``: run a record's investigation again. 0: same results, 1: they differ, 2: cannot run here."""

from __future__ import annotations

import argparse
from pathlib import Path

# More differences than anybody reads.
SHOWN = 20


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("verify", help="run a record's investigation again and compare the results")
    parser.add_argument("record", type=Path, help="record.json, or the folder that holds it")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from toolkit.errors import CheckFailed, ToolkitError
    from toolkit.investigations.running import verify

    try:
        found = verify(options.record)
    except CheckFailed as error:
        # A run that did not finish has not shown that the results differ.
        raise ToolkitError(f"cannot be verified here: {error}") from None
    print("same results" if found.same else "the results differ")
    for difference in found.results[:SHOWN]:
        print(f"  {difference}")
    if len(found.results) > SHOWN:
        print(f"  and {len(found.results) - SHOWN} more")
    for difference in found.provenance[:SHOWN]:
        print(f"  other provenance: {difference}")
    return 0 if found.same else 1
