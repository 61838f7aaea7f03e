"""Dumps: what an engine computed for a battery of prompts, in one .safetensors or .npz file with these names.

    p0.ids                int [tokens]                the tokens of prompt 0, with the continuation that was forced on it
    p0.embedding          float [tokens, features]    what the first layer is given
    p0.layer3.mixer       float [tokens, features]    what attention adds to the residual stream in layer 3
    p0.layer3.mlp         float [tokens, features]    what the MLP adds
    p0.layer3.residual    float [tokens, features]    the residual stream after layer 3
    p0.final_norm         float [tokens, features]    after the last norm
    p0.logits             float [steps, vocabulary]   for the last ``steps`` of the tokens, one row for what follows each

Prompts are numbered from 0 and so are layers; every prompt has its ids, its logits and the same stages. Of the stages any
choice will do that all dumps share. NumPy has no bfloat16: an .npz file holds such values as float32, which is exact.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from toolkit import dtypes
from toolkit.checkpoints import safetensors
from toolkit.checkpoints.files import open_regular
from toolkit.errors import ToolkitError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

STAGES = ("mixer", "mlp", "residual")
_NAME = re.compile(
    r"p(0|[1-9]\d{0,5})\.(?:(ids|embedding|final_norm|logits)|layer(0|[1-9]\d{0,3})\.(mixer|mlp|residual))"
)
_NAMES = "p0.ids, p0.embedding, p0.layer0.mixer, p0.layer0.mlp, p0.layer0.residual, p0.final_norm, p0.logits"
_DOC = "docs/judge.md shows how they are written"
_KINDS: Mapping[str, np.dtype[Any]] = {**dtypes.FLOATS, "int32": dtypes.INT32, "int64": dtypes.INT64}
_FORMAT = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "I64": "int64"}


@dataclass(frozen=True)
class Dump:
    """One engine's dump.

    ``name``    the file's name without its ending
    ``ids``     per prompt its tokens
    ``logits``  per prompt [steps, vocabulary]
    ``taps``    (prompt, layer, stage) to [rows, features], in the model's order; the embedding is layer -1, the final
                norm and the logits follow the last layer
    ``digest``  sha256 of the file
    """

    name: str
    ids: list[list[int]]
    logits: list[Array] = field(repr=False)
    taps: dict[tuple[int, int, str], Array] = field(repr=False)
    digest: str

    @property
    def places(self) -> list[tuple[int, str]]:
        """The (layer, stage) pairs, in the model's order."""
        return list(dict.fromkeys((layer, stage) for _, layer, stage in self.taps))

    def nonfinite(self) -> str:
        """Where the first NaN or infinity is; empty when there is none."""
        for (part, layer, stage), values in self.taps.items():
            rows = np.flatnonzero(~np.isfinite(_wide(values)).all(axis=1))
            if rows.size:
                return f"prompt {part}, {described(layer, stage)}, row {rows[0]}"
        return ""


def described(layer: int, stage: str) -> str:
    """A place in words."""
    return stage.replace("_", " ") if stage in ("embedding", "final_norm", "logits") else f"layer {layer}, {stage}"


def read_dump(path: str | Path) -> Dump:
    """The dump at ``path``, checked.

    Raises ToolkitError, one sentence, for a file that is neither format, names that are unknown or missing, dtypes and
    shapes that do not fit, and a dump that holds nothing.
    """
    path = Path(path)
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    suffix = path.suffix.lower()
    if suffix not in (".safetensors", ".npz"):
        raise ToolkitError(f"{path} is no dump: its name must end in .safetensors or .npz; {_DOC}")
    arrays = dict(_safetensors(path) if suffix == ".safetensors" else _npz(path))
    if not arrays:
        raise ToolkitError(f"{path} holds no array; {_DOC}")
    parsed: dict[int, dict[tuple[int, str], Array]] = {}
    for name, array in arrays.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ToolkitError(f"{path} has the array {name!r:.80}, which is none of {_NAMES} and so on; {_DOC}")
        part, whole, layer, stage = match.groups()
        place = (-1, whole) if whole else (int(layer), stage)
        parsed.setdefault(int(part), {})[place] = array
    missing = [number for number in range(max(parsed)) if number not in parsed]
    if missing:
        raise ToolkitError(f"{path} has {max(parsed) + 1} prompts without prompt {missing[0]}; number them from 0")
    return _dump(path, digest, [parsed[number] for number in range(len(parsed))])


def _dump(path: Path, digest: str, parts: list[dict[tuple[int, str], Array]]) -> Dump:
    order = _order(path, parts)
    last = max((layer for layer, _ in order), default=-1)
    ids: list[list[int]] = []
    logits: list[Array] = []
    taps: dict[tuple[int, int, str], Array] = {}
    for number, arrays in enumerate(parts):
        ids.append(_ids(f"{path}: p{number}.ids", arrays[-1, "ids"]))
        for layer, stage in order:
            values = arrays[layer, stage]
            name = f"p{number}." + (stage if layer < 0 else f"layer{layer}.{stage}")
            rows = len(values) if stage == "logits" and values.ndim == 2 else len(ids[-1])
            wanted = (rows, *parts[0][layer, stage].shape[1:])
            if values.dtype not in dtypes.FLOATS.values() or values.ndim != 2 or not values.size:
                kind = f"{values.dtype.name}{list(values.shape)}"
                raise ToolkitError(f"{path}: {name} is {kind}, not floats [rows, features]; {_DOC}")
            if values.shape != wanted:
                raise ToolkitError(
                    f"{path}: {name} has the shape {list(values.shape)} where {list(wanted)} is expected, as prompt "
                    f"{number} has {len(ids[-1])} tokens; dump every token of every prompt, without padding"
                )
            # The last two places follow the last layer.
            at = last + 1 if stage in ("final_norm", "logits") else layer
            taps[number, at, stage] = values
        logits.append(arrays[-1, "logits"])
        if len(logits[-1]) > len(ids[-1]) or logits[-1].shape[1] < 2:
            raise ToolkitError(
                f"{path}: p{number}.logits has the shape {list(logits[-1].shape)}, but there are {len(ids[-1])} tokens to "
                "follow and it takes two candidates to choose; keep one row for each of the last tokens"
            )
    return Dump(path.stem, ids, logits, taps, digest)


def _order(path: Path, parts: list[dict[tuple[int, str], Array]]) -> list[tuple[int, str]]:
    """The places that every prompt has, in the model's order, without ids; refuses prompts that differ."""
    first = parts[0]
    for number, arrays in enumerate(parts):
        for needed in ("ids", "logits"):
            if (-1, needed) not in arrays:
                raise ToolkitError(
                    f"{path} has no p{number}.{needed}; every prompt needs its ids and its logits; {_DOC}"
                )
        odd = sorted(set(arrays) ^ set(first))
        if odd:
            layer, stage = odd[0]
            have, lack = (number, 0) if odd[0] in arrays else (0, number)
            raise ToolkitError(
                f"{path}: prompt {have} has {described(layer, stage)} and prompt {lack} does not; dump the same stages "
                "of every prompt"
            )
    layers = sorted({layer for layer, _ in first if layer >= 0})
    if layers != list(range(len(layers))):
        gap = next(n for n, layer in enumerate(layers) if n != layer)
        raise ToolkitError(f"{path} has layer {layers[-1]} without layer {gap}; number the layers from 0, without gaps")
    wanted = [(-1, "embedding"), *((n, stage) for n in layers for stage in STAGES), (-1, "final_norm"), (-1, "logits")]
    return [place for place in wanted if place in first]


def _ids(where: str, values: Array) -> list[int]:
    if values.dtype.kind != "i" or values.ndim != 1 or not values.size:
        raise ToolkitError(
            f"{where} is {values.dtype.name}{list(values.shape)}, not a list of token ids; write them as int64 [tokens]"
        )
    if values.min() < 0:
        raise ToolkitError(f"{where} holds the negative id {values.min()}; leave padding out")
    return [int(i) for i in values]


def _safetensors(path: Path) -> Iterator[tuple[str, Array]]:
    file = safetensors.open_file(path)
    for name, entry in file.entries.items():
        kind = _FORMAT.get(entry.kind)
        if kind is None:
            raise ToolkitError(f"{path}: {name!r:.80} is {entry.kind}; write {', '.join(_KINDS)}")
        yield name, safetensors.MappedTensor(file.data[entry.begin : entry.end], _KINDS[kind], entry.shape).read()


def _npz(path: Path) -> Iterator[tuple[str, Array]]:
    try:
        # Without pickles: a stranger's file may hold numbers and nothing that runs.
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                values = file[name]
                if values.dtype not in _KINDS.values():
                    raise ToolkitError(f"{path}: {name!r:.80} is {values.dtype.name}; write {', '.join(_KINDS)}")
                yield name, values
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError, MemoryError, zlib.error) as error:
        raise ToolkitError(f"{path} is not a readable .npz file: {error}; write it again with numpy.savez") from None


def _wide(values: Array) -> Array:
    return values if values.dtype == dtypes.FLOAT64 else values.astype(np.float32)
