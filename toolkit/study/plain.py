"""Results as plain values: what a record or a table can hold without knowing any class of this package."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

# A field with this metadata is for further computation only: rows of numbers that no record keeps.
INTERNAL = {"internal": True}


class Plain:
    """A dataclass with ``to_json()``."""

    def to_json(self) -> dict[str, Any]:
        """The fields as dictionaries, lists, strings, numbers, booleans and None. NaN and infinity stay floats."""
        assert dataclasses.is_dataclass(self)
        return {
            field.name: plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if not field.metadata.get("internal")
        }


def plain(value: Any) -> Any:
    """``value`` with dataclasses, NumPy scalars and arrays, tuples and mappings replaced by plain values.

    Raises TypeError for anything else.
    """
    if isinstance(value, Plain):
        return value.to_json()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} has no plain form")
