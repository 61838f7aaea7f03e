"""Rows of logits: probabilities, candidates, margins and ties. NaN and +infinity are refused, never ranked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit import dtypes
from toolkit.errors import ToolkitError
from toolkit.study.distances import Array, Floats, Ints


def log_softmax(logits: Array) -> Floats:
    """Log-probabilities (nats) along the last axis, float64, of logits of any real dtype; -infinity is probability 0.

    Raises ToolkitError for NaN, +infinity, an empty row and a row in which no token is possible.
    """
    x = _rankable(logits)
    shifted = x - x.max(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return result


def top_k(logits: Array, k: int) -> tuple[Ints, Floats]:
    """Ints and logits of the ``k`` largest of each row [..., k], best first; equals are ordered by lowest id.

    Raises ToolkitError as ``log_softmax`` does, and for a ``k`` that a row does not have.
    """
    x = _rankable(logits)
    if not 1 <= k <= x.shape[-1]:
        raise ToolkitError(f"top {k} of a row of {x.shape[-1]} logits does not exist")
    rows = x.reshape(-1, x.shape[-1])
    ids = np.empty((len(rows), k), np.int64)
    for number, row in enumerate(rows):
        smallest = np.partition(row, -k)[-k]
        candidates = np.flatnonzero(row >= smallest)
        ids[number] = candidates[np.argsort(-row[candidates], kind="stable")[:k]]
    values = np.take_along_axis(rows, ids, axis=1)
    shape = (*x.shape[:-1], k)
    return ids.reshape(shape), values.reshape(shape)


def top_margins(logits: Array) -> Floats:
    """Largest logit minus second largest of each row; infinite where only one token is possible.

    Raises ToolkitError as ``top_k`` does for two candidates.
    """
    _, values = top_k(logits, 2)
    return values[..., 0] - values[..., 1]


def pair_margins(logits: Array, pairs: Array) -> Floats:
    """Logit of the first token minus that of the second: logits [steps, vocabulary], pairs int [steps, 2] → [steps].

    Non-finite logits give NaN. Raises ToolkitError when the numbers of steps differ or a token is not in the row.
    """
    if logits.ndim != 2 or pairs.shape != (len(logits), 2):
        raise ToolkitError(f"logits {list(logits.shape)} and pairs {list(pairs.shape)} are not one pair for each step")
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < logits.shape[1]):
        raise ToolkitError(f"a pair names a token outside the {logits.shape[1]} logits of its step")
    both = np.take_along_axis(logits, pairs, axis=1).astype(np.float64)
    both[~np.isfinite(both)] = np.nan
    return both[:, 0] - both[:, 1]


def margin_density(margins: Array, below: Sequence[float]) -> list[float]:
    """P(margin < x) for each x of ``below``: how often a battery offers a near-tie at all.

    Without it a number of flips means nothing. Raises ToolkitError for no margins and for NaN among them.
    """
    values = np.asarray(margins, np.float64).reshape(-1)
    if not values.size:
        raise ToolkitError("the density of no margins is not defined; score at least one step")
    if np.isnan(values).any():
        raise ToolkitError("a margin is NaN; its step has no candidates")
    return [float(np.mean(values < x)) for x in below]


def exact_ties(logits: Array, dtype: str = "bfloat16") -> Ints:
    """How many tokens of each row share the largest logit once it is stored in ``dtype``; 1 where there is no tie.

    Raises ToolkitError as ``log_softmax`` does.
    """
    x = _rankable(logits)
    # Row by row: whole batteries of a large vocabulary are stored in other dtypes only piece by piece.
    stored = (row.astype(dtypes.dtype(dtype)).astype(np.float64) for row in x.reshape(-1, x.shape[-1]))
    return np.array([np.count_nonzero(row == row.max()) for row in stored], np.int64).reshape(x.shape[:-1])


def _rankable(logits: Array) -> Floats:
    if logits.ndim == 0 or logits.size == 0:
        raise ToolkitError(f"logits of shape {list(logits.shape)} hold no row of candidates")
    x = logits.astype(np.float64, copy=False)
    if np.isnan(x).any() or np.isposinf(x).any():
        row = int(np.argmax((np.isnan(x) | np.isposinf(x)).reshape(-1, x.shape[-1]).any(axis=1)))
        raise ToolkitError(f"row {row} of the logits holds a NaN or +infinity; no token can be ranked in it")
    if np.isneginf(x.max(axis=-1)).any():
        raise ToolkitError("a row of the logits is -infinity throughout; no token is possible in it")
    return x
