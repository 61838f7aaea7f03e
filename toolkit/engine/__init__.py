"""Greedy decoding and teacher forcing over a paged cache, on any device."""

from toolkit.engine.engine import Candidate, Continuation, Engine, NonFiniteLogits
from toolkit.engine.taps import TapRecorder

__all__ = ["Candidate", "Continuation", "Engine", "NonFiniteLogits", "TapRecorder"]
