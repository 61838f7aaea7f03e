"""How many prompts of a battery two honest engines may part on: from the gaps of its steps and the measured noise.

A step of gap g flips between two engines whose margins of the pair are each perturbed by sigma when one of them, and not
the other, is moved across the tie: p = 2q(1 - q) with q = P(N(0, sigma) > g). A prompt parts when any of its steps
flips. The number of prompts that part is a sum of independent, unequal coin tosses (Poisson's binomial distribution).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.distances import Floats


def parting_chances(gaps: Sequence[Floats], sigmas: Sequence[Floats]) -> Floats:
    """P(two honest engines part) of each prompt [prompts], from its steps' gaps and sigmas in logits.

    Raises ToolkitError for a gap that is negative or a number that is not finite, and for a sigma of 0.
    """
    chances = []
    for gap, sigma in zip(gaps, sigmas, strict=True):
        if not (np.isfinite(gap).all() and np.isfinite(sigma).all() and (gap >= 0).all() and (sigma > 0).all()):
            raise ToolkitError("a gap or its perturbation is negative, zero or not finite; nothing follows from it")
        crossed = np.array([0.5 * math.erfc(float(x) / math.sqrt(2)) for x in gap / sigma])
        chances.append(1.0 - float(np.prod(1.0 - 2 * crossed * (1 - crossed))))
    return np.array(chances)


def tail(chances: Floats, count: int) -> float:
    """P(at least ``count`` of independent events with these ``chances`` happen), by convolution."""
    distribution = np.ones(1)
    for chance in chances:
        distribution = np.convolve(distribution, [1 - chance, chance])
    return float(min(1.0, distribution[count:].sum())) if count > 0 else 1.0
