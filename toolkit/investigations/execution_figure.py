"""The picture of the amd-execution investigation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DTYPES = ("bfloat16", "float16", "float32")
EQUAL, OTHER = "=", "≈"


def execution_figure(tables: dict[str, list[dict[str, Any]]]) -> Figure:
    """Ops down, targets and dtypes across: colour = worst error as a share of what is allowed, sign = bits of cpu or not.

    ``tables`` are the rows of ``op_cases`` by target. A cell without a case stays grey.
    """
    from matplotlib.figure import Figure

    ops = sorted({row["op"] for rows in tables.values() for row in rows})
    columns = [(target, dtype) for target in tables for dtype in DTYPES]
    worst = np.full((len(ops), len(columns)), np.nan)
    signs: dict[tuple[int, int], str] = {}
    for target, rows in tables.items():
        for row in rows:
            place = ops.index(row["op"]), columns.index((target, row["dtype"]))
            worst[place] = row["worst"]
            signs[place] = EQUAL if row["bits_of_cpu"] == row["cases"] else OTHER
    figure = Figure(figsize=(2.6 + 0.9 * len(columns), 1.6 + 0.2 * len(ops)), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("0.9")
    image = axes.imshow(worst, cmap="viridis_r", vmin=0, vmax=1, aspect="auto")
    for (y, x), sign in signs.items():
        dark = worst[y, x] > 0.6
        axes.text(x, y, sign, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), [f"{dtype}\n{target}" for target, dtype in columns], fontsize=7)
    axes.set_yticks(range(len(ops)), ops, fontsize=7)
    axes.set_title(f"executed in emulation, not on a GPU ({EQUAL} bits of cpu, {OTHER} others)", fontsize=9)
    figure.colorbar(image, label="worst error / allowed", shrink=0.6)
    return figure
