"""Typed access to the keys of a JSON object: each key that is asked for becomes known, the rest can be refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.errors import ToolkitError

# No decoder has a size near this; it keeps a corrupted number from becoming a loop or an allocation.
MAX_SIZE = 1 << 24


class Keys:
    """The keys of ``data``, found in ``where``; a wrong value raises ToolkitError that names key and place."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self.known: set[str] = set()

    def take(self, key: str, default: Any = None) -> Any:
        """The value as it stands; ``default`` when the key is absent."""
        self.known.add(key)
        return self.data.get(key, default)

    def refuse(self, key: str, value: Any, expected: str) -> ToolkitError:
        """The error that says what ``key`` holds and what was expected."""
        return ToolkitError(f'{self.where}: "{key}" is {value!r:.80}, but must be {expected}; correct it')

    def integer(self, key: str, default: int | None, *, low: int = 1, high: int = MAX_SIZE) -> int:
        """An integer in [low, high]."""
        value = self.take(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(key, value, f"an integer from {low} to {high}")
        return value

    def optional_integer(self, key: str, default: int | None, *, low: int = 1, high: int = MAX_SIZE) -> int | None:
        """An integer in [low, high], or None where the key is null."""
        return None if self.take(key, default) is None else self.integer(key, default, low=low, high=high)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above zero."""
        value = self.take(key, default)
        if type(value) not in (int, float) or not 0 < value < 1e30:
            raise self.refuse(key, value, "a number above zero")
        return float(value)

    def optional_positive(self, key: str) -> float | None:
        """A number above zero, or None where the key is null or absent."""
        return None if self.take(key) is None else self.positive(key)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.take(key, default)
        if type(value) is not bool:
            raise self.refuse(key, value, "true or false")
        return value

    def text(self, key: str) -> str | None:
        """A string, or None where the key is null or absent."""
        value = self.take(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(key, value, "a string")
        return value

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """An object, or None where the key is null or absent."""
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            raise self.refuse(key, value, "an object")
        return value

    def token(self, key: str, default: int | None = None, *, vocab_size: int) -> int | None:
        """A token id below ``vocab_size``, or None where the key is null."""
        return self.optional_integer(key, default, low=0, high=vocab_size - 1)

    def tokens(self, key: str, default: int | None = None, *, vocab_size: int) -> tuple[int, ...]:
        """Token ids below ``vocab_size``: none (null), one (an integer) or several (a list), in the file's order."""
        value = self.take(key, default)
        if value is None:
            return ()
        ids = value if isinstance(value, list) else [value]
        if not all(type(token) is int and 0 <= token < vocab_size for token in ids):
            raise self.refuse(key, value, f"a token id below the vocabulary's size ({vocab_size}) or a list of them")
        return tuple(dict.fromkeys(ids))

    def require_neutral(self, key: str, neutral: Any) -> None:
        """The key may be absent, null or ``neutral``; another value would ask for something that is not computed."""
        value = self.take(key)
        if value is not None and (value != neutral or isinstance(value, bool) != isinstance(neutral, bool)):
            raise ToolkitError(
                f'{self.where}: "{key}" is {value!r:.80}, which this toolkit does not compute; '
                f"only {neutral!r} is supported"
            )

    def refuse_unknown(self, what: str) -> None:
        """Raises ToolkitError when a key that holds something was never asked for."""
        unknown = [key for key, value in self.data.items() if value is not None and key not in self.known]
        if unknown:
            raise ToolkitError(
                f"{self.where}: the key {unknown[0]!r:.80} is not known for {what} and may change the mathematics; "
                "remove it if it does not"
            )
