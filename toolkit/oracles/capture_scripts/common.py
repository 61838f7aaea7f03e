"""What the capture scripts of this folder share. They run in the environment of the implementation that they ask, where
the toolkit need not be installed: Python 3.10 and NumPy are enough for this file.

A script writes one capture (docs/oracles.md): JSON that ``toolkit oracle import`` checks and makes into a record.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PREFIX = "capture: "


class Wrong(Exception):
    """A sentence for the person who asked."""


def say(message: str) -> None:
    """A line of progress on standard error."""
    print(PREFIX + message, file=sys.stderr, flush=True)


def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
    """Yield ``items`` and say now and then how many are done."""
    started = last = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= 10 or done == total:
            last = now
            say(f"{what} {done}/{total} ({now - started:.0f} s)")


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True, help="the model's folder, or its GGUF file for llama.cpp")
    parser.add_argument("--name", help="the model's name in the capture (default: that of the folder or file)")
    parser.add_argument(
        "--prompts", required=True, help="text, one prompt a line; or JSON: texts, {prompt, ids}, a capture"
    )
    parser.add_argument("--tokens", type=int, default=16, help="greedy tokens of every prompt; 0 for none")
    parser.add_argument(
        "--forced", action="store_true", help="also force the tokens that a capture given as --prompts has"
    )
    parser.add_argument("--top", type=int, default=20, help="candidates of every step")
    parser.add_argument("--repeats", type=int, default=1, help="how often the whole battery is run")
    parser.add_argument("--batch", type=int, default=1, help="prompts that run together")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--out", required=True, help="where the capture is written")
    return parser


def checked(options: argparse.Namespace) -> argparse.Namespace:
    """The options, if they ask for something; raises Wrong."""
    for name, least in (("tokens", 0), ("top", 2), ("repeats", 1), ("batch", 1), ("threads", 1)):
        if getattr(options, name) < least:
            raise Wrong(f"--{name} is {getattr(options, name)}; the least is {least}")
    if not options.tokens and not options.forced:
        raise Wrong("--tokens 0 without --forced asks for nothing")
    if not Path(options.model).exists():
        raise Wrong(f"{options.model} does not exist; give the model's folder or file")
    return options


def main(script: Callable[[], None]) -> None:
    """Run a script; whatever goes wrong becomes one line on standard error."""
    try:
        script()
    except Wrong as error:
        sys.exit(f"{PREFIX}error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{PREFIX}error: interrupted")
    except ImportError as error:
        sys.exit(f"{PREFIX}error: {error}: install it for {sys.executable}, or name another interpreter")
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        sys.exit(f"{PREFIX}error: {type(error).__name__}: {text[:400]}")


def read_items(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The prompts as {prompt, ids, continuation}, each of which but one of the first two may be None."""
    try:
        text = Path(options.prompts).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Wrong(f"{options.prompts} cannot be read: {error}") from None
    if options.prompts.endswith(".json"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise Wrong(f"{options.prompts} is not JSON: {error}") from None
        value = value.get("prompts") if isinstance(value, dict) else value
        given = [{"prompt": item} if isinstance(item, str) else item for item in value or []]
    else:
        given = [{"prompt": line} for line in text.splitlines() if line]
    if not given or not all(isinstance(g, dict) and (g.get("prompt") or g.get("ids")) for g in given):
        raise Wrong(f"{options.prompts} holds no list of prompts")
    items = [{"prompt": g.get("prompt"), "ids": g.get("ids"), "continuation": g.get("tokens")} for g in given]
    if options.forced and not all(item["ids"] and item["continuation"] for item in items):
        raise Wrong(f"{options.prompts} is no capture with ids and tokens of every prompt, which --forced needs")
    return items


def candidates(logits: np.ndarray, top: int) -> tuple[list[list[Any]], np.ndarray]:
    """The best of a row of logits as [id, logit, logprob], lowest id first among equals, and all log-probabilities."""
    row = np.asarray(logits, np.float64)
    if np.isnan(row).any():
        raise Wrong("the implementation gave a NaN as a logit; nothing can be captured from it")
    top = min(top, len(row))
    best = np.flatnonzero(row >= np.partition(row, -top)[-top])
    best = best[np.argsort(-row[best], kind="stable")[:top]]
    shifted = row - row.max()
    logprobs = shifted - np.log(np.exp(shifted).sum())
    return [[int(i), number(row[i]), number(logprobs[i])] for i in best], logprobs


def number(value: float) -> float | str:
    """JSON has no infinity."""
    return float(value) if np.isfinite(value) else str(float(value))


def forced(rows: Iterable[np.ndarray], continuation: list[int], top: int) -> dict[str, Any]:
    """The logits before each token of a given continuation, as a capture has them."""
    steps, logprobs, tokens = [], [], []
    for row, token in zip(rows, continuation, strict=True):
        best, all_logprobs = candidates(row, top)
        steps.append(best)
        tokens.append(best[0][0])
        logprobs.append(number(all_logprobs[token]))
    return {"continuation": continuation, "logprobs": logprobs, "tokens": tokens, "steps": steps}


def versions(*packages: str) -> dict[str, str]:
    """Which of these packages are installed, and Python."""
    found = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def weights_hash(model: Path) -> str | None:
    """SHA-256 of the files of weights in the order of their names."""
    files = [model] if model.is_file() else sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            for piece in iter(lambda: stream.read(1 << 22), b""):
                digest.update(piece)
    return digest.hexdigest()


def assemble(
    options: argparse.Namespace,
    items: list[dict[str, Any]],
    runs: list[list[dict[str, Any]]],
    forced_parts: list[dict[str, Any]],
    decode: Callable[[list[int]], str],
) -> list[dict[str, Any]]:
    """The prompts of a capture from what every run gave, ``{tokens, steps}`` for each prompt."""
    prompts = []
    for number_, item in enumerate(items):
        prompt: dict[str, Any] = {"prompt": item["prompt"], "ids": item["ids"]}
        if runs:
            first = runs[0][number_]
            prompt.update(tokens=first["tokens"], text=decode(first["tokens"]), steps=first["steps"])
            if runs[1:]:
                prompt["repeats"] = [run[number_] for run in runs[1:]]
        if forced_parts:
            prompt["forced"] = forced_parts[number_]
        prompts.append(prompt)
    return prompts


def write(options: argparse.Namespace, head: dict[str, Any], prompts: list[dict[str, Any]]) -> None:
    """The capture, written whole or not at all."""
    model = Path(options.model)
    fields = {
        **head,
        "batch": options.batch,
        "model": options.name or model.resolve().name,
        "weights": weights_hash(model),
        "threads": options.threads,
    }
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({**fields, "prompts": prompts}, file, ensure_ascii=False, allow_nan=False)
        os.chmod(temporary, 0o644)
        os.replace(temporary, out)
    except BaseException:
        Path(temporary).unlink()
        raise
    say(f"{len(prompts)} prompts written to {out}")
