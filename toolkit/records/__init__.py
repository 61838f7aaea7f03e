"""Canonical records: digest, reading and writing, differences."""

from toolkit.records.canonical import digest, rounded, unrounded
from toolkit.records.store import SCHEMA, Difference, Record, differences, read, record, write, write_incomplete

__all__ = [
    "SCHEMA",
    "Difference",
    "Record",
    "differences",
    "digest",
    "read",
    "record",
    "rounded",
    "unrounded",
    "write",
    "write_incomplete",
]
