"""The devices that evaluate the reference ops themselves: ``exact``, ``reference`` and the reference's variations."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.devices import arithmetic, ordered
from toolkit.devices.arithmetic import Arithmetic, SumOrder
from toolkit.devices.base import Device
from toolkit.dtypes import FLOAT64

if TYPE_CHECKING:
    from toolkit.ops.declare import Op


class NumpyDevice(Device):
    """Runs an op's reference function in a given arithmetic, on NumPy arrays."""

    def __init__(self, name: str, rules: Arithmetic) -> None:
        self.name = name
        self.arithmetic = rules
        super().__init__()

    def put(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.arithmetic.exact and not np.issubdtype(array.dtype, np.integer):
            return array.astype(FLOAT64)
        return array

    def put_weight(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # Read-only arrays have their float64 form kept between uses (arithmetic.product), the same one for all devices.
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        if self.arithmetic.exact and not np.issubdtype(array.dtype, np.integer):
            return arithmetic.exactly(array)
        return array

    def get(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        exact = self.arithmetic.exact and not np.issubdtype(dtype, np.integer)
        return np.zeros(shape, FLOAT64 if exact else dtype)

    def run(self, op: Op[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.statistics.selected(op.name, self.name)
        # NaN and infinity are data here: what an op does with them is compared like any other number.
        with arithmetic.using(self.arithmetic), np.errstate(all="ignore"):
            return op.reference(*args, **kwargs)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {"device": self.name, "numpy": np.__version__}
        if self.arithmetic.sum_order is not None:
            described["sums"] = "kernels/ordered.hip" if ordered.available() else "numpy"
        return described


def exact() -> NumpyDevice:
    """float64 throughout, no rounding points: the arbiter of which side is nearer the truth."""
    return NumpyDevice("exact", Arithmetic(exact=True))


def reference(sum_order: SumOrder | None = None) -> NumpyDevice:
    """The oracle: declared rounding points, float64 sums; with ``sum_order`` a variation that sums in float32."""
    name = "reference" if sum_order is None else f"reference[{sum_order}]"
    return NumpyDevice(name, Arithmetic(sum_order=sum_order))


@cache
def default_reference() -> NumpyDevice:
    """The device on which an op runs when none was chosen."""
    return reference()
