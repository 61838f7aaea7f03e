"""``toolkit oracle``: what independent implementations say about a battery, captured, checked and shown."""

from __future__ import annotations

import argparse
from pathlib import Path

from toolkit.oracles.asking import IMPLEMENTATIONS


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("oracle", help="capture other implementations and check what was captured")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    capture = actions.add_parser("capture", help="ask an implementation in its own environment and write a record")
    capture.add_argument("--with", dest="implementation", required=True, choices=IMPLEMENTATIONS)
    capture.add_argument(
        "--python", required=True, type=Path, metavar="PATH", help="the interpreter of its environment"
    )
    capture.add_argument("--model", required=True, type=Path, metavar="M", help="a Hugging Face folder, or a GGUF file")
    capture.add_argument("--prompts", type=Path, metavar="FILE", help="one prompt per line, or JSON")
    capture.add_argument("--forced-on", type=Path, metavar="RECORD", help="also force the tokens of its first run")
    capture.add_argument("--tokens", type=int, default=16, metavar="N", help="greedy tokens; 0 to force only")
    capture.add_argument("--dtype", metavar="D", help="bfloat16 (the default), float16, float32, float64")
    capture.add_argument("--attention", metavar="A", help="such as eager or sdpa for transformers")
    capture.add_argument("--batch", type=int, default=1, metavar="B", help="prompts that run together (default: 1)")
    capture.add_argument("--repeats", type=int, default=1, metavar="K", help="runs of the whole battery (default: 1)")
    capture.add_argument("--top", type=int, default=20, metavar="T", help="candidates of every step (default: 20)")
    capture.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    capture.add_argument(
        "--out", required=True, type=Path, metavar="RECORD", help="NAME.json; the arrays come beside it"
    )
    capture.set_defaults(run=run_capture)

    convert = actions.add_parser("import", help="check a capture and write it as a record")
    convert.add_argument("capture", type=Path, metavar="CAPTURE", help="JSON, plain or gzip")
    convert.add_argument(
        "--forced-on", type=Path, metavar="RECORD", help="where the tokens stand that it was forced on"
    )
    convert.add_argument(
        "--out", required=True, type=Path, metavar="RECORD", help="NAME.json; the arrays come beside it"
    )
    convert.set_defaults(run=run_import)

    for name, run, what in (
        ("check", run_check, "whether a record or capture can be what an implementation said"),
        ("show", run_show, "what a record or capture holds"),
    ):
        action = actions.add_parser(name, help=what)
        action.add_argument("records", nargs="+", type=Path, metavar="RECORD")
        action.add_argument("--forced-on", type=Path, metavar="RECORD", help="for captures of forced tokens alone")
        action.set_defaults(run=run)

    scripts = actions.add_parser("scripts", help="print the folder of the capture scripts, to mount in a container")
    scripts.set_defaults(run=run_scripts)


def run_capture(options: argparse.Namespace) -> int:
    """Ask an implementation in its own environment and write what it said as a record.

    Raises ToolkitError when nothing is asked, or when the implementation does not take an option.
    """
    from toolkit.checkpoints.prompts import read_prompts
    from toolkit.errors import ToolkitError
    from toolkit.oracles import read, write
    from toolkit.oracles.asking import ask, questions

    if options.prompts is None and options.forced_on is None:
        raise ToolkitError("nothing is asked; give --prompts, or --forced-on for the prompts of a record")
    if options.out.suffix != ".json":
        raise ToolkitError(f"{options.out} must end with .json")
    texts = None if options.prompts is None else read_prompts(options.prompts)
    given = None if options.forced_on is None else read(options.forced_on)
    passed = [f"--model={options.model.absolute()}"]
    for name in ("tokens", "batch", "repeats", "top", "threads", "dtype", "attention"):
        value = getattr(options, name)
        if value is None:
            continue
        if name in ("dtype", "attention") and options.implementation == "llama-cpp":
            raise ToolkitError(f"llama-cpp takes no --{name}: its GGUF file says how the weights are stored")
        passed.append(f"--{name}={value}")
    record = ask(options.implementation, options.python, questions(texts, given), passed)
    print(f"{write(record, options.out)}: {record.name}, {len(record.prompts)} prompts")
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Check a capture and write it as a record."""
    from toolkit.oracles import read, write

    given = None if options.forced_on is None else read(options.forced_on)
    record = read(options.capture, forced_on=given)
    print(f"{write(record, options.out)}: {record.name}, {len(record.prompts)} prompts")
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Check records and captures; raises CheckFailed when one cannot be what an implementation said."""
    from toolkit.errors import CheckFailed
    from toolkit.oracles import mismatches, read
    from toolkit.oracles.record import place

    given = None if options.forced_on is None else read(options.forced_on)
    records = [read(path, forced_on=given) for path in options.records]
    for path, record in zip(options.records, records, strict=True):
        for found in mismatches(records[0], record):
            raise CheckFailed(f"{path}: {found.where} has other ids than in {options.records[0]}: {found.detail}")
        unexplained = record.unexplained()
        if unexplained:
            first = unexplained[0]
            raise CheckFailed(
                f"{path}: {place(first.prompt, record.prompts[first.prompt])}, step {first.step}: {first.chosen} was "
                f"chosen and {first.expected} is the most probable (lowest id of equals), so it was not greedy; "
                f"{len(unexplained)} steps are so"
            )
        steps = sum(len(prompt.tokens) for prompt in record.prompts)
        print(f"{path}: {record.name}, {len(record.prompts)} prompts, {record.runs} runs of {steps} steps: accepted")
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print what records and captures hold."""
    from toolkit.oracles import read
    from toolkit.study import repeats

    given = None if options.forced_on is None else read(options.forced_on)
    for path in options.records:
        record = read(path, forced_on=given)
        print(f"{path}: {record.name}")
        stated = {"model": record.model, "weights": record.weights, "device": record.device, **record.libraries}
        counts = {"vocabulary": record.vocabulary, "bos": record.bos, **record.settings}
        print(
            "  " + ", ".join(f"{key} {value}" for key, value in (*stated.items(), *counts.items()) if value is not None)
        )
        unstable = []
        if record.runs > 1:
            runs = [[p.runs[n].tokens.tolist() for p in record.prompts] for n in range(record.runs)]
            unstable = repeats(runs)
        print(f"  {record.runs} runs, {len(unstable)} prompts on which they differ, {record.top} candidates a step")
        for number, prompt in enumerate(record.prompts):
            steps = prompt.runs[0] if prompt.runs else None
            if steps is None and prompt.forced is not None:
                steps = prompt.forced.steps
            assert steps is not None
            closest = int(steps.gaps.argmin())
            print(
                f"  {number} {prompt.text!r} -> {prompt.continuation_text!r}; closest step {closest}, "
                f"{float(steps.gaps[closest]):.4g} nats"
            )
    return 0


def run_scripts(options: argparse.Namespace) -> int:
    """Print the folder of the capture scripts."""
    from toolkit.oracles.asking import SCRIPTS

    print(SCRIPTS)
    return 0
