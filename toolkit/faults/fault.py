"""A planted fault: a defect described as data, and where it takes hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from toolkit.checkpoints.config import ModelConfig

Verdict = Literal["defect", "not-comparable", "nondeterministic"]
Bound: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """A defect to plant on one side of a comparison.

    ``name``         how it is asked for
    ``what``         what goes wrong, in one sentence
    ``resembles``    the public report or kind of report that it is modelled on
    ``expected``     the verdict that it deserves
    ``layer``        the decoder layer where it first acts; None when it acts outside the layers or everywhere
    ``op``           the op in which it acts
    ``applies``      whether it can act on a model at all
    ``config``       a change of the model's configuration
    ``tensor``       a change of a weight on its way to the device, given its name
    ``arguments``    a change of an op's arguments (a copy of them by name), given the op's name and the layer
    ``prompt``       a change of a prompt's token ids
    """

    name: str
    what: str
    resembles: str
    expected: Verdict = "defect"
    layer: int | None = None
    op: str | None = None
    applies: Callable[[ModelConfig], bool] = lambda config: True
    config: Callable[[ModelConfig], ModelConfig] | None = None
    tensor: Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None = None
    arguments: Callable[[str, int | None, Bound], Bound] | None = None
    result: Callable[[str, int | None, Bound, Any], Any] | None = None
    prompt: Callable[[list[int]], list[int]] | None = None


@dataclass(frozen=True)
class ChangedTensors(Mapping[str, np.ndarray[Any, Any]]):
    """A checkpoint's tensors as a fault changes them on reading."""

    tensors: Mapping[str, np.ndarray[Any, Any]]
    change: Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self.change(name, self.tensors[name])

    def __iter__(self) -> Any:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)
