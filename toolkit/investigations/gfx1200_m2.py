"""A published investigation replayed on its own numbers: Qwen3-0.6B on an RX 9060 XT (specs/gfx1200-m2)."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import study
from toolkit.dtypes import BFLOAT16
from toolkit.errors import ToolkitError
from toolkit.investigations.investigation import Investigation
from toolkit.investigations.tables import Badge, Table
from toolkit.oracles import OracleRecord, read

PUBLISHED = "published.json"
ULPS = 2.0
"""Each of two logits may be stored one ULP from where it was computed."""


def said(references: list[str], backends: list[str], widest: float) -> tuple[str, str]:
    """Outcome and rule from what references and backends say first; ``widest`` is the largest margin in ULPs."""
    if not references:
        return "undetermined", "no-reference"
    if len(references) == 1:
        return "undetermined", "one-reference"
    if len(set(references)) > 1:
        return ("reference-unstable", "references-disagree") if widest <= ULPS else ("undetermined", "margin-too-wide")
    if set(backends) == set(references):
        return "identical", "all-agree"
    return "undetermined", "health-not-established"


class Gfx1200M2(Investigation):
    """The replay; ``captures`` are oracle records of that prompt, comma-separated, which count as further references.

    Raises ToolkitError for a capture that does not have the prompt, or whose runs differ.
    """

    name = "gfx1200-m2"

    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(parameters)
        self.raw = (self.spec.folder / PUBLISHED).read_bytes()
        self.data: dict[str, Any] = json.loads(self.raw)
        paths = [Path(name.strip()) for name in str(parameters["captures"]).split(",") if name.strip()]
        self.captures = [(path.stem, self._text(path, read(path))) for path in paths]
        self.digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]

    def _text(self, path: Path, record: OracleRecord) -> str:
        prompt = next((p for p in record.prompts if p.text == self.data["prompt"]), None)
        if prompt is None or not prompt.runs or not prompt.continuation_text:
            raise ToolkitError(
                f"{path} has no greedy run of {self.data['prompt']!r} with its text; capture that prompt"
            )
        if any(run.tokens.tolist() != list(prompt.tokens) for run in prompt.runs):
            raise ToolkitError(f"{path}: its runs of {self.data['prompt']!r} differ; it is no reference")
        return prompt.continuation_text

    def asked(self) -> dict[str, Any]:
        return {}

    def subject(self) -> dict[str, Any]:
        return {"data": hashlib.sha256(self.raw + "".join(self.digests).encode()).hexdigest()}

    @classmethod
    def again(cls, digested: dict[str, Any], record: Path, scratch: Path) -> dict[str, Any]:
        try:
            given = json.loads((record / "run.json").read_text(encoding="utf-8"))["parameters"]["captures"]
        except (OSError, ValueError, KeyError, TypeError):
            given = ""
        return {"captures": str(given)}

    def margins(self) -> list[dict[str, Any]]:
        """Per backend the margin of " Paris" over " ", exact and with logits stored in bfloat16."""
        rows = []
        for name, logits in self.data["top5"].items():
            found = study.margin(logits[" Paris"], logits[" "])
            stored = {token: float(np.array(value).astype(BFLOAT16)) for token, value in logits.items()}
            rows.append(
                {
                    "backend": name,
                    "milli_nats": 1000 * found.nats,
                    "ulps": found.ulps,
                    "stored_ulps": study.margin(stored[" Paris"], stored[" "]).ulps,
                }
            )
        return rows

    def layers(self) -> dict[str, Any]:
        """The table of norms: signs, sizes, trend, and what it leaves open."""
        cpu, rocm = np.array(self.data["layer_norms"]).T
        relative = (rocm - cpu) / cpu
        count = len(cpu)
        slope = float(np.polyfit(np.arange(count), np.abs(relative), 1)[0])
        return {
            "layers": count,
            "positive": int((relative > 0).sum()),
            "negative": int((relative < 0).sum()),
            "mean_absolute": float(np.abs(relative).mean()),
            "rms": float(np.sqrt(np.mean(relative**2))),
            "slope_per_layer": slope,
            "random_walk_one_store": study.random_walk(count, "bfloat16"),
            "random_walk_two_stores": study.random_walk(2 * count, "bfloat16"),
            # ‖b - a‖ lies between |‖b‖ - ‖a‖| and ‖b‖ + ‖a‖: equal norms allow any rotation.
            "last_layer_rel_l2_at_least": float(abs(relative[-1])),
            "last_layer_rel_l2_at_most": float(2 + relative[-1]),
        }

    def states(self) -> list[dict[str, Any]]:
        """The conclusion after 0, 1, 2, … references: the three drafts, then the user's own captures."""
        outputs = self.data["outputs"]
        backends = [row["text"] for row in outputs if row["kind"] == "backend"]
        references = [(row["source"], row["text"]) for row in outputs if row["kind"] == "reference"] + self.captures
        widest = max(abs(row["ulps"]) for row in self.margins())
        # Captures may have more or fewer tokens: texts are compared as far as the shortest goes.
        length = min(len(text) for text in [*backends, *(text for _, text in references)])
        backends = [text[:length] for text in backends]
        found = []
        for count in range(len(references) + 1):
            outcome, rule = said([text[:length] for _, text in references[:count]], backends, widest)
            added = references[count - 1] if count else ("", "")
            found.append({"references": count, "added": added[0], "says": added[1], "outcome": outcome, "rule": rule})
        return found

    def gemma(self) -> dict[str, int]:
        """Prompts and tokens of the Gemma battery on which all four sources say the same."""
        battery = self.data["gemma"]["battery"]
        equal = sum(len(set(row["texts"].values())) == 1 for row in battery)
        tokens = int(self.data["gemma"]["tokens"])
        return {
            "prompts": len(battery),
            "equal": equal,
            "tokens": tokens * len(battery),
            "equal_tokens": tokens * equal,
        }

    def speed(self) -> list[dict[str, Any]]:
        """Tokens per second of both sides and their ratio, by model."""
        return [{**row, "ratio": row["oracle"] / row["ours"]} for row in self.data["speed"]]

    def results(self) -> dict[str, Any]:
        return {
            "margins": self.margins(),
            "layers": self.layers(),
            "states": self.states(),
            "gemma": self.gemma(),
            "speed": self.speed(),
        }

    def concluded(self) -> dict[str, Any]:
        last, margins = self.states()[-1], self.margins()
        widest = max(abs(row["ulps"]) for row in margins)
        return {
            "verdict": last["outcome"],
            "rule": last["rule"],
            "reason": f"{last['references']} references, margins of at most {math.ceil(widest * 100) / 100:.2f} bfloat16 "
            "ULPs; the table of norms bounds the distance of the states from below only",
            "numbers": {"references": last["references"], "largest_margin_ulps": widest},
        }

    def show(self, what: str) -> Table:
        """One part of the results as a table."""
        found = self.results()[what]
        return Table(found if isinstance(found, list) else [found])

    def show_verdict(self) -> Badge:
        """The verdict."""
        made = self.concluded()
        return Badge(made["verdict"], made["rule"], made["reason"])
