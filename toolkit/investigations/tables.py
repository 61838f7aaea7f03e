"""Tables and verdicts as a notebook shows them: HTML there, aligned text on a terminal."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

# Verdicts by how they should strike the eye; the word itself always stands beside the colour.
_COLOURS = {
    "identical": "#1b7837",
    "executed-in-emulation": "#2166ac",
    "near-tie": "#2166ac",
    "defect": "#b2182b",
    "not-comparable": "#762a83",
    "nondeterministic": "#b35806",
    "reference-unstable": "#b35806",
    "undetermined": "#666666",
}


class Table:
    """Rows of plain values under their keys."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], caption: str = "") -> None:
        self.rows = rows
        self.caption = caption
        self.columns = list(rows[0]) if rows else []

    def __str__(self) -> str:
        cells = [[_text(row[c]) for c in self.columns] for row in self.rows]
        widths = [max([len(c), *(len(row[i]) for row in cells)]) for i, c in enumerate(self.columns)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in [self.columns, *cells]
        ]
        return "\n".join([self.caption, *lines] if self.caption else lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(row[c]))}</td>" for c in self.columns) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Badge:
    """A verdict: its word, the rule that gave it and the reason."""

    def __init__(self, verdict: str, rule: str, reason: str) -> None:
        self.verdict, self.rule, self.reason = verdict, rule, reason

    def __str__(self) -> str:
        return f"verdict: {self.verdict}\nrule:    {self.rule}\nreason:  {self.reason}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        style = f"background:{_COLOURS.get(self.verdict, '#666666')};color:white;padding:.2em .6em;border-radius:.3em"
        return (
            f'<p><strong style="{style}">{html.escape(self.verdict)}</strong> '
            f"<code>{html.escape(self.rule)}</code></p><p>{html.escape(self.reason)}</p>"
        )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return " ".join(_text(item) for item in value)
    return "" if value is None else str(value)
