"""Oracle records as files: ``NAME.json``, and beside it ``NAME.safetensors`` with the arrays.

``schema.json`` in this folder is the JSON Schema of the former; docs/oracles.md describes both. The arrays hold, for all
prompts one after another, ``top_ids`` (int32) and ``logprobs`` (float64) [runs, steps, top], ``logits`` alike where the
implementation gives them, and for forced continuations ``forced_top_ids``, ``forced_logprobs`` and ``forced_logits``
[steps, top] with ``forced_given`` [steps], the log-probability of each given token.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from toolkit.checkpoints import safetensors
from toolkit.checkpoints.files import read_bytes
from toolkit.errors import ToolkitError
from toolkit.files import write_whole
from toolkit.oracles.captures import content, from_capture, parse
from toolkit.oracles.fields import Fields
from toolkit.oracles.record import Forced, OraclePrompt, OracleRecord, Setting, Steps, check

FORMAT = "oracle-record"
SCHEMA = 1
MAX_ARRAYS = 1 << 30
KINDS: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "F64": np.dtype("<f8")}
SUFFIX = ".safetensors"

FIELDS = {"format", "schema", "implementation", "version", "dtype", "attention", "batch", "runs", "top", "device"}
FIELDS |= {"libraries", "settings", "model", "weights", "vocabulary", "bos", "arrays", "arrays_sha256", "prompts"}
PROMPT_FIELDS = {"prompt", "ids", "text", "runs", "forced"}
FORCED_FIELDS = {"continuation", "tokens"}
GREEDY_ARRAYS = {"top_ids": "I32", "logprobs": "F64", "logits": "F64"}
FORCED_ARRAYS = {"forced_top_ids": "I32", "forced_logprobs": "F64", "forced_logits": "F64", "forced_given": "F64"}


def read(path: str | Path, *, forced_on: OracleRecord | None = None) -> OracleRecord:
    """The oracle record, or the capture, in the file at ``path``, checked.

    ``forced_on``: see ``read_capture``. Raises ToolkitError, one sentence that names file, prompt and step, for anything
    that is wrong with it.
    """
    path = Path(path)
    if path.suffix == SUFFIX:
        raise ToolkitError(f"{path} holds the arrays of a record; name the .json file beside it")
    value = parse(content(path), str(path))
    if "format" not in value and "oracle" in value:
        return from_capture(value, str(path), forced_on=forced_on)
    return _record(value, path)


def write(record: OracleRecord, path: str | Path) -> Path:
    """Write ``record`` to ``path`` (NAME.json) and its arrays beside it; returns the path.

    Raises ToolkitError as ``check`` does, before anything is written, and when the folder cannot be written.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise ToolkitError(f"{path} must end with .json; the arrays get the same name with {SUFFIX}")
    check(record, str(path))
    arrays = save(_arrays(record))
    beside = path.with_suffix(SUFFIX)
    head = {
        "format": FORMAT,
        "schema": SCHEMA,
        "implementation": record.implementation,
        "version": record.version,
        "dtype": record.dtype,
        "attention": record.attention,
        "batch": record.batch,
        "runs": record.runs,
        "top": record.top,
        "device": record.device,
        "libraries": dict(sorted(record.libraries.items())),
        "settings": dict(sorted(record.settings.items())),
        "model": record.model,
        "weights": record.weights,
        "vocabulary": record.vocabulary,
        "bos": record.bos,
        "arrays": beside.name,
        "arrays_sha256": hashlib.sha256(arrays).hexdigest(),
    }
    rows = ",\n".join(json.dumps(_plain(p), ensure_ascii=False, allow_nan=False) for p in record.prompts)
    text = json.dumps(head, ensure_ascii=False, allow_nan=False)[:-1] + ', "prompts": [\n' + rows + "\n]}\n"
    write_whole(beside, arrays)
    try:
        write_whole(path, text)
    except ToolkitError:
        beside.unlink(missing_ok=True)
        raise
    return path


def _plain(prompt: OraclePrompt) -> dict[str, Any]:
    forced = prompt.forced
    return {
        "prompt": prompt.text,
        "ids": list(prompt.ids),
        "text": prompt.continuation_text,
        "runs": [run.tokens.tolist() for run in prompt.runs],
        "forced": None
        if forced is None
        else {"continuation": forced.continuation.tolist(), "tokens": forced.steps.tokens.tolist()},
    }


def _arrays(record: OracleRecord) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    if record.runs:
        runs = [[prompt.runs[number] for prompt in record.prompts] for number in range(record.runs)]
        arrays["top_ids"] = np.stack([_joined(run, "top_ids") for run in runs]).astype("<i4")
        arrays["logprobs"] = np.stack([_joined(run, "logprobs") for run in runs])
        if all(steps.logits is not None for run in runs for steps in run):
            arrays["logits"] = np.stack([_joined(run, "logits") for run in runs])
    forced = [prompt.forced for prompt in record.prompts if prompt.forced is not None]
    if forced:
        steps = [f.steps for f in forced]
        arrays["forced_top_ids"] = _joined(steps, "top_ids").astype("<i4")
        arrays["forced_logprobs"] = _joined(steps, "logprobs")
        if all(s.logits is not None for s in steps):
            arrays["forced_logits"] = _joined(steps, "logits")
        arrays["forced_given"] = np.concatenate([f.logprobs for f in forced])
    return arrays


def _joined(steps: Sequence[Steps], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(s, name) for s in steps])


# --------------------------------------------------------------------------------------------------------- reading


def _record(value: dict[str, Any], path: Path) -> OracleRecord:
    head = Fields(value, str(path))
    if value.get("format") != FORMAT:
        raise ToolkitError(
            f"{path} is neither an oracle record nor a capture: its format is {value.get('format')!r:.40}"
        )
    schema = head.count("schema")
    if schema != SCHEMA:
        raise ToolkitError(f"{path} has schema {schema}, this toolkit reads {SCHEMA}; use the version that made it")
    _same_fields(value, FIELDS, str(path))
    prompts = [Fields(p, f"{path}: prompt {number}") for number, p in enumerate(head.objects("prompts"))]
    for prompt in prompts:
        _same_fields(prompt.value, PROMPT_FIELDS, prompt.where)
    arrays = _read_arrays(head, path)
    runs, top = head.count("runs"), head.count("top")
    tokens = [_runs(prompt, runs) for prompt in prompts]
    forced = [_forced(prompt) for prompt in prompts]
    if len({f is None for f in forced}) > 1:
        raise ToolkitError(f"{path}: some prompts have a forced continuation and some have none; capture all alike")
    steps = sum(len(t[0]) if t else 0 for t in tokens)
    given = sum(len(f[0]) for f in forced if f)
    expected: dict[str, tuple[int, ...]] = {}
    if runs:
        expected |= dict.fromkeys(GREEDY_ARRAYS, (runs, steps, top))
    if forced[0] is not None:
        expected |= dict.fromkeys(FORCED_ARRAYS, (given, top)) | {"forced_given": (given,)}
    _same_arrays(arrays, expected, path)
    made = []
    at = forced_at = 0
    for prompt, of_runs, of_forced in zip(prompts, tokens, forced, strict=True):
        count = len(of_runs[0]) if of_runs else 0
        here = slice(at, at + count)
        forced_here = slice(forced_at, forced_at + (len(of_forced[0]) if of_forced else 0))
        at, forced_at = here.stop, forced_here.stop
        made.append(
            OraclePrompt(
                text=prompt.optional_text("prompt"),
                ids=tuple(prompt.counts("ids")),
                runs=tuple(
                    Steps(
                        np.array(run, np.int64),
                        arrays["top_ids"][number, here].astype(np.int64),
                        arrays["logprobs"][number, here],
                        arrays["logits"][number, here] if "logits" in arrays else None,
                    )
                    for number, run in enumerate(of_runs)
                ),
                forced=None if of_forced is None else _forced_steps(*of_forced, arrays, forced_here),
                continuation_text=prompt.optional_text("text"),
            )
        )
    return check(
        OracleRecord(
            implementation=head.text("implementation"),
            version=head.text("version"),
            dtype=head.text("dtype"),
            model=head.text("model"),
            prompts=tuple(made),
            attention=head.optional_text("attention"),
            batch=head.optional_count("batch"),
            device=head.optional_text("device"),
            libraries={
                key: Fields(head.object("libraries"), f"{path}: libraries").text(key) for key in value["libraries"]
            },
            settings=_settings(head),
            weights=head.optional_text("weights"),
            vocabulary=head.optional_count("vocabulary"),
            bos=head.optional_count("bos"),
        ),
        str(path),
    )


def _same_fields(value: dict[str, Any], expected: set[str], where: str) -> None:
    if set(value) != expected:
        odd = sorted(set(value) ^ expected)
        raise ToolkitError(f"{where} does not have the fields of schema {SCHEMA}: look at {', '.join(odd)!r:.120}")


def _runs(prompt: Fields, runs: int) -> list[list[int]]:
    given = prompt.sequence("runs")
    if len(given) != runs:
        raise ToolkitError(f"{prompt.where} has {len(given)} runs and the record states {runs}; capture all alike")
    tokens = [Fields({f"runs[{n}]": run}, prompt.where).counts(f"runs[{n}]") for n, run in enumerate(given)]
    lengths = [len(run) for run in tokens]
    if len(set(lengths)) > 1:
        raise ToolkitError(
            f"{prompt.where}: its {runs} runs have {', '.join(map(str, lengths))} tokens; every run must have as many"
        )
    return tokens


def _forced(prompt: Fields) -> tuple[list[int], list[int]] | None:
    if not prompt.given("forced"):
        return None
    part = Fields(prompt.object("forced"), f"{prompt.where}, forced")
    _same_fields(part.value, FORCED_FIELDS, part.where)
    continuation, tokens = part.counts("continuation"), part.counts("tokens")
    if len(continuation) != len(tokens):
        raise ToolkitError(
            f"{part.where}: {len(continuation)} tokens were given and {len(tokens)} would have been chosen; there must "
            "be one for each"
        )
    return continuation, tokens


def _forced_steps(continuation: list[int], tokens: list[int], arrays: dict[str, NDArray[Any]], here: slice) -> Forced:
    return Forced(
        np.array(continuation, np.int64),
        arrays["forced_given"][here],
        Steps(
            np.array(tokens, np.int64),
            arrays["forced_top_ids"][here].astype(np.int64),
            arrays["forced_logprobs"][here],
            arrays["forced_logits"][here] if "forced_logits" in arrays else None,
        ),
    )


def _settings(head: Fields) -> dict[str, Setting]:
    settings = head.object("settings")
    for key, value in settings.items():
        if value is not None and not isinstance(value, str | int | float | bool):
            raise ToolkitError(f"{head.where}: the setting {key!r:.40} is {value!r:.40}, neither text nor a number")
    return settings


def _read_arrays(head: Fields, path: Path) -> dict[str, NDArray[Any]]:
    name = head.text("arrays")
    if not re.fullmatch(r"[^/\\\0]+\.safetensors", name):
        raise ToolkitError(
            f"{path} names the arrays {name!r:.80}; they must be a {SUFFIX} file in the record's own folder, by its name"
        )
    beside = path.parent / name
    if beside.is_symlink():
        raise ToolkitError(f"{beside} is a link to another place; a record's arrays lie in its own folder")
    raw = read_bytes(beside, limit=MAX_ARRAYS)
    if hashlib.sha256(raw).hexdigest() != head.text("arrays_sha256"):
        raise ToolkitError(f"{beside} is not the file that {path.name} was written with; copy both again")
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise ToolkitError(f"{beside} is truncated or not a safetensors file; copy it again")
    data = memoryview(raw)[8 + length :]
    entries = safetensors.parse_header(raw[8 : 8 + length], len(data), where=str(beside))
    arrays = {}
    for tensor, entry in entries.items():
        kind = (GREEDY_ARRAYS | FORCED_ARRAYS).get(tensor)
        if kind != entry.kind:
            wanted = f"must be {kind}" if kind else "is not an array of a record"
            raise ToolkitError(f"{beside}: {tensor!r:.40} of {entry.kind} {wanted}")
        arrays[tensor] = np.frombuffer(data[entry.begin : entry.end], KINDS[entry.kind]).reshape(entry.shape)
    return arrays


def _same_arrays(arrays: dict[str, NDArray[Any]], expected: dict[str, tuple[int, ...]], path: Path) -> None:
    for name in sorted(set(arrays) | set(expected)):
        optional = name.endswith("logits")
        if name not in expected or (name not in arrays and not optional):
            raise ToolkitError(f"{path}: the array {name} is {'missing' if name in expected else 'of nothing in it'}")
        if name in arrays and arrays[name].shape != expected[name]:
            raise ToolkitError(
                f"{path}: the array {name} is {list(arrays[name].shape)} where its tokens need {list(expected[name])}"
            )
