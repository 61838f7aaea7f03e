"""What each section of the near-tie notebook shows, and the pictures it leaves beside the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.investigations import figures
from toolkit.investigations.investigation import Investigation
from toolkit.investigations.near_tie import NearTie
from toolkit.investigations.tables import Badge, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Stages that are shown; the record has all of them.
SHOWN_STAGES = ("embedding", "mixer", "mlp", "residual", "final_norm", "logits")
NOT_COMPARABLE = [{"not shown": "the inputs differ (section 1), so no number from here on would mean anything"}]


class NearTieNotebook(NearTie, Investigation):
    """A ``NearTie`` with a table or a figure for every section of its notebook."""

    name = "near-tie"

    def __init__(self, parameters: dict[str, Any]) -> None:
        Investigation.__init__(self, parameters)
        NearTie.__init__(self, parameters)

    def asked(self) -> dict[str, Any]:
        return {**super().asked(), "model": Path(self.parameters["model"]).name}

    def subject(self) -> dict[str, Any]:
        return {"weights_dtype": self.checkpoint.weights_dtype, "weights": self.checkpoint.weights_hash}

    def concluded(self) -> dict[str, Any]:
        return self.verdict.to_json()

    def made_with(self) -> dict[str, Any]:
        return {"devices": {name: side.engine.device.describe() for name, side in self.sides.items()}}

    @classmethod
    def again(cls, digested: dict[str, Any], record: Path, scratch: Path) -> dict[str, Any]:
        prompts = scratch / "prompts.json"
        prompts.write_text(json.dumps([row["prompt"] for row in digested["results"]["battery"]]), encoding="utf-8")
        return {**digested["parameters"], "model": _model(digested, record), "prompts": str(prompts)}

    def __repr__(self) -> str:
        sides = " against ".join(self.label(name) for name in ("backend", "reference"))
        return f"near-tie: {self.checkpoint.path.name}, {self.dtype}, {sides}, {len(self.prompts)} prompts"

    def show_inputs(self) -> Table:
        rows: list[dict[str, Any]] = [
            {"what": m.what, "where": m.where, "difference": m.detail} for m in self.mismatches
        ] or [
            {
                "prompts with equal ids": len(self.prompts),
                "prompt tokens": sum(len(row) for row in self.ids["reference"]),
                "embedding rows equal to the file, bit by bit": self.embedding_rows,
            }
        ]
        return Table(rows)

    def show_stability(self) -> Table:
        s = self.stability
        return Table(
            [
                {
                    "side": name,
                    "device": self.label(name),
                    "runs": s.runs,
                    "prompts that differ between runs": sum(u.kind == "repeat" for u in s.unstable[name]),
                    "prompts that differ after others": sum(u.kind == "state" for u in s.unstable[name]),
                }
                for name in self.sides
            ]
        )

    def show_battery(self) -> Table:
        decode = self.checkpoint.tokenizer.decode
        split = {d.prompt: d.step for d in self.divergences}
        made = self.stability.continuations
        return Table(
            [
                {
                    "prompt": prompt,
                    "reference": decode(made["reference"][i].ids),
                    "backend": "the same" if i not in split else decode(made["backend"][i].ids),
                    "first divergence": split.get(i),
                }
                for i, prompt in enumerate(self.prompts)
            ]
        )

    def show_variations(self) -> Table:
        if self.mismatches:
            return Table(NOT_COMPARABLE)
        last = self.checkpoint.config.layers
        rows: list[dict[str, Any]] = [
            {"engine": name, "rel_l2 of the logits from float64": drift.at(last, "logits").level}
            for name, drift in self.forced.drifts.items()
        ]
        return Table(rows)

    def show_drift(self) -> Table:
        if self.mismatches:
            return Table(NOT_COMPARABLE)
        return Table([row for row in self.drift_table() if row["stage"] in SHOWN_STAGES])

    def drift_figure(self) -> Figure | None:
        return self._keep("drift", figures.drift_figure)

    def show_margins(self) -> Table:
        if self.mismatches:
            return Table(NOT_COMPARABLE)
        density = self.density()
        return Table([{"margin below (logits)": x, "share of steps": share} for x, share in density["below"].items()])

    def margin_figure(self) -> Figure | None:
        return self._keep("margins", figures.margin_figure)

    def _keep(self, name: str, draw: Callable[[NearTie], Figure]) -> Figure | None:
        if self.mismatches:
            return None
        self.figures[name] = draw(self)
        return self.figures[name]

    def show_divergences(self) -> Table:
        decode = self.checkpoint.tokenizer.decode
        rows = []
        for judged in self.judged:
            d, pair = judged.divergence, judged.pair
            row: dict[str, Any] = {
                "prompt": self.prompts[d.prompt],
                "step": d.step,
                "reference": None if d.reference is None else repr(decode([d.reference])),
                "backend": None if d.backend is None else repr(decode([d.backend])),
            }
            for name in ("arbiter", "reference", "backend"):
                margin = None if pair is None else getattr(pair, name)
                row[f"{name}'s margin (nats)"] = None if margin is None else margin.nats
                row[f"{name}'s margin ({self.dtype} ULPs)"] = None if margin is None else margin.ulps
            row["perturbation of the pair"] = None if pair is None else pair.sigma
            row["gap / perturbation"] = None if pair is None else pair.gap_ratio
            row["whole / floor"] = judged.whole_ratio
            row["verdict"] = f"{judged.verdict} ({judged.rule})"
            rows.append(row)
        return Table(rows or [{"divergences": 0}])

    def show_providers(self) -> Table:
        rows = [{"side": name, **row} for name, table in self.providers().items() for row in table]
        return Table(rows)

    def show_verdict(self) -> Badge:
        return Badge(self.verdict.verdict, self.verdict.rule, self.verdict.reason)


def _model(digested: dict[str, Any], record: Path) -> str:
    """The model to run again: where the run of that record found it, if that is still there, else by its name."""
    try:
        given = json.loads((record / "run.json").read_text(encoding="utf-8"))["parameters"]["model"]
    except (OSError, ValueError, KeyError, TypeError):
        given = None
    return given if isinstance(given, str) and Path(given).exists() else str(digested["parameters"]["model"])
