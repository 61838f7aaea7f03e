"""The gate: a battery run on a device, held against goldens of independent engines, by the classical rule and by ours."""

from toolkit.gate.batteries import BATTERIES, Battery, battery
from toolkit.gate.checking import Accounting, Result, accounting, check_gate
from toolkit.gate.goldens import Goldens, new_anchor, read_anchor, read_goldens

__all__ = [
    "BATTERIES",
    "Accounting",
    "Battery",
    "Goldens",
    "Result",
    "accounting",
    "battery",
    "check_gate",
    "new_anchor",
    "read_anchor",
    "read_goldens",
]
