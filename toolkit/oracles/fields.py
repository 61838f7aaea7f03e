"""Fields of a JSON object from a stranger's file: of the type that is expected, or one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.errors import ToolkitError


@dataclass(frozen=True)
class Fields:
    """An object, and how a message names it. Every method raises ToolkitError for a field of another type."""

    value: dict[str, Any]
    where: str

    def given(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self._needed(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a string")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self._wrong(key, "a string without half a surrogate pair")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None where the field is missing or null. It may be empty."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def count(self, key: str) -> int:
        """A whole number from 0."""
        value = self._needed(key)
        if not _is_count(value):
            raise self._wrong(key, "a whole number from 0")
        return int(value)

    def optional_count(self, key: str) -> int | None:
        """A whole number from 0, or None where the field is missing or null."""
        return self.count(key) if self.given(key) else None

    def sequence(self, key: str) -> list[Any]:
        """A list of anything."""
        value = self._needed(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return value

    def counts(self, key: str) -> list[int]:
        """A list of whole numbers from 0, such as token ids."""
        value = self.sequence(key)
        for index, item in enumerate(value):
            if not _is_count(item):
                raise ToolkitError(
                    f"{self.where}: {key}[{index}] is {item!r:.40}, not a whole number from 0; correct it"
                )
        return value

    def numbers(self, key: str) -> list[float]:
        """A list of numbers; "-inf", "inf" and "nan" are accepted as text."""
        value = self.sequence(key)
        for index, item in enumerate(value):
            if item in ("-inf", "inf", "nan"):
                continue
            # A whole number of JSON may be too large for a float.
            if isinstance(item, bool) or not isinstance(item, int | float) or (type(item) is int and abs(item) > 1e300):
                raise ToolkitError(f"{self.where}: {key}[{index}] is {item!r:.40}, not a number; correct it")
        return [float(item) for item in value]

    def object(self, key: str) -> dict[str, Any]:
        """An object."""
        value = self._needed(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return value

    def objects(self, key: str) -> list[dict[str, Any]]:
        """A list of objects, at least one."""
        value = self.sequence(key)
        if not value or not all(isinstance(item, dict) for item in value):
            raise self._wrong(key, "a list of at least one object")
        return value

    def _needed(self, key: str) -> Any:
        if key not in self.value:
            raise ToolkitError(f"{self.where} has no {key!r}; see docs/oracles.md for what it holds")
        return self.value[key]

    def _wrong(self, key: str, expected: str) -> ToolkitError:
        return ToolkitError(f"{self.where}: {key!r} is {self.value.get(key)!r:.60}, not {expected}; correct it")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62
