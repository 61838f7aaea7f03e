"""Captures as oracle records: what ``toolkit generate --json`` and the capture scripts write, plain JSON or gzip.

One object: ``oracle`` (who), ``version``, ``dtype``, ``model`` and ``prompts``, and as far as known ``torch`` or
``libraries``, ``attn``, ``mode``, ``seqs`` or ``batch``, ``device``, ``weights``, ``vocabulary``, ``bos``; anything else is
kept as a setting. Each prompt has ``prompt`` (its text), ``ids``, the greedy ``tokens`` with ``steps`` (for each token the
best candidates as ``[id, logit or null, logprob]``), and may have ``repeats``, a list of further runs as ``{tokens,
steps}``, and ``forced``: ``{continuation, logprobs, tokens, steps}``. A capture whose ``mode`` is "teacher" is of forced
continuations alone: its ``tokens`` are what would have been chosen, and the tokens that were given stand in another
capture.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.checkpoints import strict_json
from toolkit.checkpoints.files import read_bytes
from toolkit.errors import ToolkitError
from toolkit.oracles.fields import Fields
from toolkit.oracles.record import Forced, OraclePrompt, OracleRecord, Setting, Steps, check, place, shortened

MAX_BYTES = 64 << 20
"""Longest capture, as JSON text: what 5,000 prompts of 16 steps with 20 candidates take."""

NAMED = {"oracle", "version", "dtype", "model", "prompts", "torch", "libraries", "attn", "mode", "seqs", "batch"}
NAMED |= {"device", "weights", "vocabulary", "bos"}
GZIP = b"\x1f\x8b"


def read_capture(path: str | Path, *, forced_on: OracleRecord | None = None) -> OracleRecord:
    """The capture in the file at ``path``, checked.

    ``forced_on`` holds the continuations that a capture in mode "teacher" was given: the first run of the same prompts.
    Raises ToolkitError, one sentence, for what is no capture and as ``check`` does.
    """
    path = Path(path)
    return from_capture(parse(content(path), str(path)), str(path), forced_on=forced_on)


def content(path: Path) -> bytes:
    """The JSON text in a file, unpacked if it is gzip. Raises ToolkitError when it is too long or not whole."""
    raw = read_bytes(path, limit=MAX_BYTES)
    if not raw.startswith(GZIP):
        return raw
    unpack = zlib.decompressobj(wbits=31)
    try:
        text = unpack.decompress(raw, MAX_BYTES + 1)
    except zlib.error as error:
        raise ToolkitError(f"{path} is damaged gzip: {error}; copy it again") from error
    if len(text) > MAX_BYTES:
        raise ToolkitError(f"{path} unpacks to more than {MAX_BYTES} bytes; capture fewer prompts at a time")
    if not unpack.eof or unpack.unused_data:
        raise ToolkitError(f"{path} is truncated gzip, or has something after its end; copy it again")
    return text


def parse(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``text``. A NaN in it is left to the check that names its prompt and step."""
    return strict_json.parse_object(text, where=where, constants=True)


def from_capture(captured: dict[str, Any], where: str, *, forced_on: OracleRecord | None = None) -> OracleRecord:
    """``captured``, as its JSON was parsed, as a record. Raises ToolkitError as ``read_capture``, naming ``where``."""
    head = Fields(captured, where)
    prompts = head.objects("prompts")
    teacher = str(captured.get("mode", "")) == "teacher"
    if teacher and forced_on is None:
        raise ToolkitError(
            f"{where} is of forced continuations that stand in another capture; name that one too (--forced-on)"
        )
    given = forced_on.by_ids() if forced_on is not None else {}
    libraries = {str(k): str(v) for k, v in head.object("libraries").items()} if "libraries" in captured else {}
    if "torch" in captured:
        libraries["torch"] = head.text("torch")
    settings: dict[str, Setting] = {
        key: value
        for key, value in captured.items()
        if key not in NAMED and (value is None or isinstance(value, str | int | float | bool))
    }
    dtype = head.text("dtype")
    if dtype.endswith(".gguf"):
        settings["file"] = dtype
        dtype = _gguf_dtype(dtype)
    return check(
        OracleRecord(
            implementation=head.text("oracle"),
            version=head.text("version"),
            dtype=dtype,
            model=head.text("model"),
            prompts=tuple(_prompt(Fields(p, f"{where}: prompt {n}"), n, teacher, given) for n, p in enumerate(prompts)),
            attention=head.optional_text("attn"),
            batch=_batch(head),
            device=head.optional_text("device"),
            libraries=libraries,
            settings=settings,
            weights=head.optional_text("weights"),
            vocabulary=head.optional_count("vocabulary"),
            bos=head.optional_count("bos"),
        ),
        where,
    )


def _gguf_dtype(file: str) -> str:
    """ "gemma3-270m-BF16.gguf" → "gguf-bf16": the type is the last part of the name that looks like one."""
    types = re.findall(r"(?:^|[-._])(bf16|f16|f32|i?q\d\w*)(?=[-._])", file.lower())
    return f"gguf-{types[-1]}" if types else "gguf"


def _batch(head: Fields) -> int | None:
    for key in ("batch", "seqs"):
        if head.given(key):
            return head.count(key)
    mode = head.optional_text("mode") or ""
    found = re.fullmatch(r"greedy-batch(\d{1,9})", mode)
    if found:
        return int(found.group(1))
    # Written by scripts that run one prompt after another.
    return 1 if mode == "greedy" else None


def _prompt(fields: Fields, number: int, teacher: bool, given: dict[tuple[int, ...], OraclePrompt]) -> OraclePrompt:
    text = fields.optional_text("prompt")
    ids = tuple(fields.counts("ids"))
    bare = OraclePrompt(text, ids, ())
    at = f"{fields.where.rsplit(': ', 1)[0]}: {place(number, bare)}"
    fields = Fields(fields.value, at)
    runs: tuple[Steps, ...] = ()
    forced = None
    if teacher:
        if ids not in given:
            raise ToolkitError(f"{at} has no continuation of the same prompt ids in the capture that it was forced on")
        forced = _forced(at, list(given[ids].tokens), _steps(fields, "forced"), None)
    elif fields.given("tokens"):
        runs = (_steps(fields, "run 0"),)
    if fields.value.get("repeats"):
        for run, value in enumerate(fields.objects("repeats"), 1):
            part = Fields(value, f"{at}, run {run}")
            _same_ids(part, ids)
            runs += (_steps(part, ""),)
    if fields.given("forced"):
        part = Fields(fields.object("forced"), f"{at}, forced")
        _same_ids(part, ids)
        forced = _forced(at, part.counts("continuation"), _steps(part, ""), part.numbers("logprobs"))
    return OraclePrompt(text, ids, runs, forced, fields.optional_text("text"))


def _same_ids(part: Fields, ids: tuple[int, ...]) -> None:
    """What a further run says that it was given, if it says so, must be what the first was."""
    if part.given("ids") and tuple(part.counts("ids")) != ids:
        raise ToolkitError(
            f"{part.where} was given the prompt ids {shortened(part.counts('ids'))} and the first run {shortened(ids)}; "
            "all runs must be of one prompt"
        )


def _forced(at: str, continuation: list[int], steps: Steps, logprobs: list[float] | None) -> Forced:
    if logprobs is None:
        if len(continuation) != len(steps):
            raise ToolkitError(f"{at}, forced: {len(steps)} steps on a continuation of {len(continuation)} tokens")
        logprobs = []
        for step, token in enumerate(continuation):
            found = steps.logprob_of(step, token)
            if found is None:
                raise ToolkitError(
                    f"{at}, forced, step {step}: the given token {token} is not among the candidates and its "
                    "log-probability is not stated; capture more candidates"
                )
            logprobs.append(found)
    return Forced(np.array(continuation, np.int64), np.array(logprobs, np.float64), steps)


def _steps(fields: Fields, what: str) -> Steps:
    at = f"{fields.where}, {what}" if what else fields.where
    tokens = fields.counts("tokens")
    rows = fields.sequence("steps")
    if len(rows) != len(tokens):
        raise ToolkitError(
            f"{at} has {len(tokens)} tokens and {len(rows)} steps; there must be one step for each token"
        )
    if not rows:
        raise ToolkitError(f"{at} has no token; generate at least one")
    ids, logits, logprobs = [], [], []
    for number, row in enumerate(rows):
        step = f"{at}, step {number}"
        if not isinstance(row, list) or not row or not all(isinstance(c, list) and len(c) == 3 for c in row):
            raise ToolkitError(f"{step} is not a list of candidates [id, logit or null, logprob]; write it so")
        if len(row) != len(rows[0]):
            raise ToolkitError(
                f"{step} has {len(row)} candidates where step 0 has {len(rows[0])}; give as many of each"
            )
        for candidate in row:
            if type(candidate[0]) is not int or not 0 <= candidate[0] < 1 << 62:
                raise ToolkitError(f"{step}: the candidate {candidate[0]!r:.40} is not a token id")
        ids.append([c[0] for c in row])
        logits.append([_number(c[1], step, "logit", missing=True) for c in row])
        logprobs.append([_number(c[2], step, "log-probability") for c in row])
    without = {value is None for row in logits for value in row}
    if len(without) > 1:
        raise ToolkitError(f"{at} gives logits for some candidates only; give them for all or none")
    return Steps(
        np.array(tokens, np.int64),
        np.array(ids, np.int64),
        np.array(logprobs, np.float64),
        None if without == {True} else np.array(logits, np.float64),
    )


def _number(value: Any, at: str, what: str, *, missing: bool = False) -> float | None:
    if value is None and missing:
        return None
    # JSON has no infinities and no NaN: they come as text, and NaN is refused with the other checks.
    if value in ("-inf", "inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise ToolkitError(f"{at}: the {what} {value!r:.40} is not a number")
    return float(value)
