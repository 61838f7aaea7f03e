"""``toolkit reproduce``: run an investigation and leave its record."""

from __future__ import annotations

import argparse
from pathlib import Path

from toolkit.commands.options import add_model


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("reproduce", help="run an investigation's notebook and leave its record")
    parser.add_argument("spec", help="the investigation, e.g. near-tie")
    add_model(parser, required=False)
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", dest="parameters")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where everything goes (default: out/SPEC/MODEL)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from toolkit.checkpoints import named
    from toolkit.investigations import specs
    from toolkit.investigations.running import parse_parameters, reproduce
    from toolkit.investigations.tables import Badge

    given = ([f"model={options.model}"] if options.model else []) + options.parameters
    parameters = parse_parameters(options.spec, given)
    model = parameters.get("model", specs.read(options.spec).parameters.get("model", ""))
    out = options.out or Path(parameters.pop("out", Path("out") / options.spec / Path(model).name))
    if model in named.MODELS and not Path(model).exists():
        named.fetch(model)  # here, where the licence is seen before the model is used, not in the notebook alone
    made = reproduce(options.spec, parameters, out)
    said = made.digested["verdict"]
    print(Badge(said["verdict"], said["rule"], said["reason"]))
    print(f"record:  {out / 'record.json'}\nnotebook: {out / 'notebook.ipynb'}\ndigest:  {made.digest}")
    return 0
