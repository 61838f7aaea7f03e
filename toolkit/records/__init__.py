"""Canonical records: digest, reading and writing, differences."""

from toolkit.records.canonical import digest, rounded
from toolkit.records.record import SCHEMA, Difference, Record, differences, read, record, write

__all__ = ["SCHEMA", "Difference", "Record", "differences", "digest", "read", "record", "rounded", "write"]
