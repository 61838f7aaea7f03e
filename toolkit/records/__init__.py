"""Canonical records: digest, reading and writing, differences."""

from toolkit.records.canonical import digest, rounded
from toolkit.records.record import Difference, Record, differences, read, record, write

__all__ = ["Difference", "Record", "differences", "digest", "read", "record", "rounded", "write"]
