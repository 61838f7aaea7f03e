"""Independent references: what other implementations said about a battery, as records that are checked when read."""

from toolkit.oracles.captures import from_capture, read_capture
from toolkit.oracles.files import read, write
from toolkit.oracles.record import Forced, OraclePrompt, OracleRecord, Steps, check, common, mismatches

__all__ = [
    "Forced",
    "OraclePrompt",
    "OracleRecord",
    "Steps",
    "check",
    "common",
    "from_capture",
    "mismatches",
    "read",
    "read_capture",
    "write",
]
