"""Options that several subcommands share."""

from __future__ import annotations

import argparse

from toolkit.devices import NAMES

DTYPES = ("bfloat16", "float16", "float32")


def add_model(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """--model: what ``toolkit.load`` takes."""
    parser.add_argument(
        "--model",
        required=required,
        metavar="M",
        help="a Hugging Face folder, a GGUF file, or the name of a bundled or known model",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """--device: what ``toolkit.devices.device`` takes."""
    parser.add_argument("--device", default="reference", metavar="D", help=f"{', '.join(NAMES)} (default: reference)")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """--dtype: the engine's dtype."""
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="weights, activations and cache")
