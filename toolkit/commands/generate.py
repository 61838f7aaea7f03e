"""``toolkit generate``: greedy continuations on one device, as a capture that other tools can be compared with."""

from __future__ import annotations

import argparse
from pathlib import Path

from toolkit.commands.options import DTYPES, add_device, add_dtype, add_model


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("generate", help="continue prompts greedily and write every step's candidates")
    add_model(parser)
    add_device(parser)
    parser.add_argument("--prompts", required=True, type=Path, metavar="FILE", help="one prompt per line, or JSON")
    parser.add_argument("--max-new-tokens", required=True, type=int, metavar="N")
    add_dtype(parser)
    parser.add_argument(
        "--weights-dtype", choices=DTYPES, help="what a GGUF file's weights are rounded to (default: bfloat16)"
    )
    parser.add_argument("--batch", type=int, default=16, metavar="B", help="prompts run together (default: 16)")
    parser.add_argument("--chunk", type=int, metavar="T", help="prefill in pieces of T tokens")
    parser.add_argument("--ignore-stop", action="store_true", help="go on after a stop token")
    parser.add_argument("--json", required=True, type=Path, metavar="OUT", help="where the capture is written")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from toolkit import generate, load, version
    from toolkit.checkpoints.prompts import read_prompts
    from toolkit.engine.captures import capture, dumps
    from toolkit.files import write_whole

    prompts = read_prompts(options.prompts)
    model = load(
        options.model,
        device=options.device,
        dtype=options.dtype,
        weights_dtype=options.weights_dtype,
        chunk=options.chunk,
    )
    if model.checkpoint.weights_dtype is not None:
        print(f"weights dequantised to {model.checkpoint.weights_dtype}, hash {model.checkpoint.weights_hash}")
    made = generate(model, prompts, options.max_new_tokens, batch=options.batch, stop=not options.ignore_stop)
    captured = capture(
        model.checkpoint,
        prompts,
        made,
        model=Path(options.model).name,
        dtype=options.dtype,
        mode=f"greedy-batch{options.batch}",
        version=version(),
    )
    write_whole(options.json, dumps(captured))
    for prompt, row in zip(prompts, captured["prompts"], strict=True):
        print(f"{prompt!r} -> {row['text']!r}")
    return 0
