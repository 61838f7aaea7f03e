"""Planted faults as data, and their injection: they show what each check can and cannot see."""

from toolkit.faults.catalogue import CATALOGUE, fault
from toolkit.faults.fault import Fault
from toolkit.faults.planting import plant

__all__ = ["CATALOGUE", "Fault", "fault", "plant"]
