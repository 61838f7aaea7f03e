"""Declaring an op: its definition in NumPy, its kernels, its tolerance and its cases, in one place.

``@op`` turns a reference function into an ``Op``. Calling it runs it on the current device (``with device:``); without
one on device gpu when its arrays live there, else on the reference device. Everything that a test, a launch or a record
needs hangs on the ``Op``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np

from toolkit.devices.arithmetic import Array
from toolkit.devices.base import current_device
from toolkit.devices.launching import Launch
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.tolerance import Tolerance

P = ParamSpec("P")
R = TypeVar("R")

Bound: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of an output that a kernel fills."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Provider:
    """One way to compute an op with kernels. ``when`` says whether it applies to the bound arguments; one that is made
    for a ``matrix_unit`` is passed over by devices without."""

    name: str
    when: Callable[..., bool]
    launches: Callable[..., Launch | Sequence[Launch]]
    matrix_unit: bool = False


@dataclass(frozen=True)
class Case:
    """One call of an op: positional and keyword arguments, all inputs as NumPy arrays."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.args if isinstance(a, np.ndarray))
        options = ", ".join(f"{k}={v}" for k, v in self.kwargs.items() if not isinstance(v, np.ndarray))
        return f"{shapes}{'; ' if options else ''}{options}"


@dataclass
class Op(Generic[P, R]):
    """A declared op. See ``op`` for what each part is."""

    name: str
    reference: Callable[P, R]
    kernel: str
    tolerance: Tolerance
    mutates: tuple[str, ...] = ()
    dtypes: tuple[np.dtype[Any], ...] = (BFLOAT16, FLOAT16, FLOAT32)
    providers: list[Provider] = field(default_factory=list)
    _outputs: Callable[..., Spec | tuple[Spec, ...] | None] | None = None
    _cases: Callable[..., Iterable[Case]] | None = None

    def __post_init__(self) -> None:
        self.signature = inspect.signature(self.reference)
        update_wrapper(self, self.reference)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = current_device((*args, *kwargs.values())).run(self, args, kwargs)
        return result

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """Every parameter of the op by name, defaults filled in. Raises TypeError as a plain call would."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def outputs(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the shapes and dtypes of the outputs, from the op's arguments by name."""
        self._outputs = function
        return function

    def provider(
        self, name: str, when: Callable[..., bool] = lambda **_: True, *, matrix_unit: bool = False
    ) -> Callable[..., Any]:
        """Decorator: a kernel provider. The function takes ``out`` (array, tuple or None) and the op's arguments by
        name and returns the launch or launches. Providers are tried in the order of declaration."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self.providers.append(Provider(name, when, function, matrix_unit))
            return function

        return declare

    def cases(self, function: Callable[..., Iterable[Case]]) -> Callable[..., Iterable[Case]]:
        """Decorator: a generator of cases, given a ``draw`` (see ``toolkit.ops.cases.Draw``) of one dtype."""
        self._cases = function
        return function

    def output_specs(self, bound: Bound) -> tuple[Spec, ...]:
        """The outputs to allocate for a call; empty for an op that only mutates its arguments."""
        if self._outputs is None:
            return ()
        specs = self._outputs(**bound)
        if specs is None:
            return ()
        return specs if isinstance(specs, tuple) else (specs,)

    def draw_cases(self, draw: Any) -> Iterator[Case]:
        """The op's cases for one dtype and seed."""
        if self._cases is None:
            raise LookupError(f"op {self.name} declares no cases")
        yield from self._cases(draw)


REGISTRY: dict[str, Op[..., Any]] = {}


def op(
    *,
    kernel: str,
    tolerance: Tolerance,
    mutates: tuple[str, ...] = (),
    dtypes: tuple[np.dtype[Any], ...] = (BFLOAT16, FLOAT16, FLOAT32),
) -> Callable[[Callable[P, R]], Op[P, R]]:
    """Declare an op. The decorated function is its reference: plain NumPy over ``toolkit.devices.arithmetic``.

    ``kernel``     the source file in kernels/ that holds its entries
    ``tolerance``  how far a kernel's result may be from the reference, with the reason
    ``mutates``    the parameters written in place (a cache)
    ``dtypes``     the storage dtypes for which cases are drawn
    """

    def declare(function: Callable[P, R]) -> Op[P, R]:
        name = function.__name__
        if name in REGISTRY:
            raise ValueError(f"op {name} is declared twice")
        declared = Op(name, function, kernel, tolerance, mutates, dtypes)
        REGISTRY[name] = declared
        return declared

    return declare


def suffix(*arrays: Array) -> str:
    """The dtype part of an entry's name, e.g. ``bf16`` or ``bf16_f32``: one part per array.

    Raises ToolkitError for a dtype that no kernel takes.
    """
    names = [np.dtype(array.dtype).name for array in arrays]
    for name in names:
        if name not in _SHORT:
            raise ToolkitError(f"no kernel takes {name}; cast it to one of {', '.join(_SHORT)}, or use device exact")
    return "_".join(_SHORT[name] for name in names)


_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "int32": "i32", "int64": "i64"}
