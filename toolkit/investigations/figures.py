"""The pictures of the near-tie investigation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.study.verdict import Side as SideName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from toolkit.investigations.near_tie import NearTie


def drift_figure(study: NearTie) -> Figure:
    """The residual stream, layer by layer: both sides' distance from float64 on the noise floor, and from each other on
    the bfloat16 random-walk prediction."""
    figure, (left, right) = _figure(2)
    rows = [row for row in study.drift_table() if row["stage"] in ("embedding", "residual", "logits")]
    layers = [row["layer"] for row in rows]
    labels = ["embedding" if r["stage"] == "embedding" else "logits" if r["stage"] == "logits" else "" for r in rows]
    left.fill_between(layers, 0, [row["floor"] for row in rows], color="0.85", label="noise floor (variations)")
    styles: dict[SideName, str] = {"reference": "o-", "backend": "s--"}
    for name, style in styles.items():
        left.plot(
            layers, [row[f"{name}_to_float64"] for row in rows], style, ms=4, label=f"{name}: {study.label(name)}"
        )
    left.set(title="distance from float64", xlabel="layer", ylabel="rel_l2 of the residual stream")
    right.plot(layers, [row["rel_l2"] for row in rows], "D-", ms=4, color="C2", label="backend from reference")
    right.plot(*zip(*study.random_walk(), strict=True), ":", color="k", label="random walk, 1 + 2 stores a layer")
    right.set(title="distance from each other", xlabel="layer")
    for axes in (left, right):
        axes.set_xticks(layers, [label or str(layer) for layer, label in zip(layers, labels, strict=True)], rotation=45)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)
    return figure


def margin_figure(study: NearTie) -> Figure:
    """The margins of the battery's steps, and each divergence's gap against the perturbation of its pair."""
    figure, (left, right) = _figure(2)
    margins = study.margins()
    edges = np.geomspace(max(1e-3, margins[margins > 0].min()), margins.max(), 30)
    left.hist(np.maximum(margins, edges[0]), edges, color="0.6")
    left.axvline(float(np.median(study.forced.noise.sigma)), color="C3", label="median perturbation of a pair")
    left.set(
        xscale="log", title="how near to a tie the steps are", xlabel="top-1 minus top-2 logit, float64", ylabel="steps"
    )
    left.legend(fontsize=8)
    ratios = [(d.divergence, d.pair) for d in study.judged if d.pair is not None]
    names = [f"prompt {d.prompt}, step {d.step}" for d, _ in ratios]
    right.barh(names or ["no divergence"], [p.gap_ratio for _, p in ratios] or [0.0], height=0.5, color="C0")
    right.set_ylim(-1, max(len(names), 1))
    right.axvline(study.near_tie_limit, color="C3", label=f"near-tie up to {study.near_tie_limit:g}")
    right.set(title="divergences", xlabel="gap / perturbation of the pair")
    right.legend(fontsize=8)
    return figure


def _figure(columns: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * columns, 3.6), layout="constrained")
    return figure, figure.subplots(1, columns)
