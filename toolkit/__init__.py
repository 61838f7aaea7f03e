"""Is a different greedy token a kernel defect, or ordinary rounding at a near-tie?

The public names: ``load``, ``generate``, ``score``, ``taps``, ``compare``, ``verdict``, ``reproduce`` and ``verify``, and
``begin`` and ``finish`` for notebooks; every op is in ``toolkit.ops`` and can be called by itself on arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.api import Model, compare, generate, load, score, taps, verdict, version
    from toolkit.errors import CheckFailed, ToolkitError
    from toolkit.investigations.running import begin, finish, reproduce, verify

_FROM = {
    "CheckFailed": "toolkit.errors",
    "Model": "toolkit.api",
    "ToolkitError": "toolkit.errors",
    "begin": "toolkit.investigations.running",
    "compare": "toolkit.api",
    "finish": "toolkit.investigations.running",
    "generate": "toolkit.api",
    "load": "toolkit.api",
    "reproduce": "toolkit.investigations.running",
    "score": "toolkit.api",
    "taps": "toolkit.api",
    "verdict": "toolkit.api",
    "verify": "toolkit.investigations.running",
    "version": "toolkit.api",
}

__all__ = [
    "CheckFailed",
    "Model",
    "ToolkitError",
    "begin",
    "compare",
    "finish",
    "generate",
    "load",
    "reproduce",
    "score",
    "taps",
    "verdict",
    "verify",
    "version",
]


def __getattr__(name: str) -> Any:
    # Imported at first use: `toolkit.emulator` and `toolkit --help` need none of it.
    if name not in _FROM:
        raise AttributeError(f"module 'toolkit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_FROM[name]), name)
