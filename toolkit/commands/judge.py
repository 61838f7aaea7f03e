"""``toolkit judge``: the method on files that another engine wrote."""

from __future__ import annotations

import argparse
from pathlib import Path


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "judge",
        help="judge another engine by dumps of what it computed",
        description="Hold dumps of an engine (.safetensors or .npz) against those of a reference on the same tokens. "
        "docs/judge.md shows how they are written. Runs no engine.",
        epilog="Exits with 0 when every candidate is identical or at near-ties only, and with 1 on any other verdict.",
    )
    parser.add_argument("candidates", nargs="+", type=Path, metavar="DUMP", help="of the engine in question")
    parser.add_argument("--reference", required=True, type=Path, metavar="DUMP", help="what it is compared with")
    parser.add_argument(
        "--exact", required=True, type=Path, metavar="DUMP", help="of the same weights in float32 or float64"
    )
    parser.add_argument(
        "--noise", required=True, nargs="+", type=Path, metavar="DUMP", help="of further honest engines, two or more"
    )
    parser.add_argument(
        "--again", nargs="+", default=[], type=Path, metavar="DUMP", help="of further runs of the (one) candidate"
    )
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="tokenizer.json, for texts in the record")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where records go (default: out/judge)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import time

    from toolkit import records
    from toolkit.errors import ToolkitError
    from toolkit.judging import judge_dumps, read_dump
    from toolkit.judging.provenance import decoder, provenance

    if options.again and len(options.candidates) > 1:
        raise ToolkitError("--again belongs to one candidate; judge the candidates one by one")
    names = [path.stem for path in options.candidates]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ToolkitError(f"two candidates are called {twice}, and so would their records; rename one of the files")
    decode = decoder(options.tokenizer) if options.tokenizer else None
    reference, exact = read_dump(options.reference), read_dump(options.exact)
    noise = [read_dump(path) for path in options.noise]
    again = [read_dump(path) for path in options.again]
    out = options.out or Path("out") / "judge"
    healthy = True
    for path in options.candidates:
        began = time.time()
        found = judge_dumps(read_dump(path), reference=reference, exact=exact, noise=noise, again=again, decode=decode)
        made = records.record(found.digested, provenance())
        records.write(made, out / path.stem, {"began": began, "seconds": round(time.time() - began, 3)})
        said = found.verdict
        healthy &= said.verdict in ("identical", "near-tie")
        print(f"{path.stem}\n  verdict: {said.verdict}\n  rule:    {said.rule}\n  reason:  {said.reason}")
        print("  not checked: " + "; ".join(found.not_checked))
        print(f"  record:  {out / path.stem / 'record.json'}")
    return 0 if healthy else 1
