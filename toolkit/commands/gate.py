"""``toolkit gate``: a battery on a device against goldens of independent engines. 0: passed, 1: not, 2: bad input."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.commands.options import add_device, add_dtype, add_model

if TYPE_CHECKING:
    from toolkit.gate import Accounting, Battery
    from toolkit.oracles import OracleRecord


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("gate", help="check a battery against goldens, by the classical rule and by ours")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    anchor = actions.add_parser("anchor", help="run the battery and keep our tokens, with a reason")
    anchor.add_argument("--battery", required=True, metavar="B", help="sixteen, gemma, or a file of prompts")
    anchor.add_argument("--tokens", type=int, metavar="N", help="greedy tokens of every prompt of a file")
    anchor.add_argument("--because", required=True, metavar="REASON", help="why these tokens are to be expected")
    anchor.set_defaults(run=run_anchor)
    check = actions.add_parser("check", help="run the battery again and hold it against the goldens")
    check.add_argument(
        "--require", action="append", default=[], metavar="OP[=PROVIDER]", help="must have run, and declined nothing"
    )
    check.set_defaults(run=run_check)
    for action in (anchor, check):
        add_model(action)
        add_device(action)
        add_dtype(action)
        action.add_argument("--faults", default="", metavar="NAMES", help="defects to plant (toolkit faults)")
        action.add_argument(
            "--goldens", required=True, type=Path, metavar="FOLDER", help="specs/gate/README.md lists its files"
        )


def _ask(options: argparse.Namespace, asked: Battery) -> tuple[OracleRecord, Accounting]:
    """Our engine on the battery, every prompt by itself, and which kernels ran."""
    from toolkit import load, version
    from toolkit.engine.captures import capture
    from toolkit.gate import Accounting
    from toolkit.investigations.sides import parse_faults
    from toolkit.ops import REGISTRY
    from toolkit.oracles import from_capture
    from toolkit.progress import track
    from toolkit.study.classical import TOP

    planted = parse_faults(options.faults)
    model = load(options.model, device=options.device, dtype=options.dtype, faults=planted)
    ids = [model.checkpoint.tokenizer.encode(prompt) for prompt in asked.prompts]
    for fault in planted:
        if fault.prompt is not None:
            ids = [fault.prompt(row) for row in ids]
    made = [
        model.engine.generate([row], asked.tokens, stop=False, top=TOP)[0]
        for row in track(ids, f"battery on {options.device}, prompts")
    ]
    captured = capture(
        model.checkpoint,
        asked.prompts,
        made,
        model=Path(options.model).name,
        dtype=options.dtype,
        mode="greedy-batch1",
        version=version(),
    )
    found = model.device.statistics
    # The NumPy devices run the definitions of the ops: that selects no kernel.
    kernels = {(op, provider.name) for op, declared in REGISTRY.items() for provider in declared.providers}
    return (
        from_capture({**captured, "device": options.device}, "our own run"),
        Accounting({k: n for k, n in found.selections.items() if k in kernels}, found.declines, found.refusals),
    )


def run_anchor(options: argparse.Namespace) -> int:
    """Run the battery and keep our tokens as the anchor."""
    from toolkit.gate import battery, new_anchor

    ours, _ = _ask(options, battery(options.battery, options.tokens))
    print(new_anchor(options.goldens, ours, options.because))
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Run the anchored battery again and hold it against the goldens."""
    from toolkit.errors import ToolkitError
    from toolkit.gate import Battery, check_gate, read_goldens
    from toolkit.study.classical import BAND

    goldens = read_goldens(options.goldens)
    prompts = [p.text for p in goldens.anchor.prompts]
    if any(text is None for text in prompts):
        raise ToolkitError(f"{options.goldens} has an anchor without the texts of its prompts; make it again")
    tokens = len(goldens.anchor.prompts[0].tokens)
    ours, kernels = _ask(options, Battery(tuple(str(text) for text in prompts), tokens))
    found = check_gate(ours, goldens, kernels, options.require)
    c = found.classical
    print(f"battery:   {c.prompts} prompts x {tokens} tokens, forced on {goldens.reference.name}")
    print(
        f"classical: {'passes' if c.passed else 'fails'}: {c.strict}/{c.prompts} strict, largest gap {c.largest_gap} "
        f"milli-nats (band {BAND}), {c.divergent} divergent cells, {c.exact_ties} of them at gap 0"
    )
    for p in found.partings:
        print(
            f"  prompt {p.prompt}, step {p.step}: {p.gap:+.3g} nats, {p.ulps:+.2g} bfloat16 ULPs, {p.ratio:.2g} "
            f"perturbations (classical: {p.classical_mnats} milli-nats)"
        )
    print(
        f"ours:      {'passes' if found.passed else 'refuses'}: margins off by {found.ratio:.2g} of the worst honest "
        f"engine's, {len(found.partings)} first divergences where {found.expected:.2g} are expected"
    )
    for failure in found.failures:
        print(f"  {failure}")
    return 0 if found.passed else 1
