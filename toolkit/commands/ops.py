"""``toolkit ops``: every op with its providers on each device."""

from __future__ import annotations

import argparse

from toolkit.ops import REGISTRY


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("ops", help="list every op with its kernel, providers and tolerance")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    width = max(len(name) for name in REGISTRY)
    print(f"{'op':{width}}  {'kernel file':16}  {'reference':9}  kernel providers (cpu, gpu)")
    for name, op in sorted(REGISTRY.items()):
        providers = ", ".join(provider.name for provider in op.providers) or "none"
        print(f"{name:{width}}  {op.kernel:16}  {'NumPy':9}  {providers}")
    return 0
