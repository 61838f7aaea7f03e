"""Asking an implementation: its capture script runs in its own environment; what it wrote is checked, then kept."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from toolkit.errors import ToolkitError
from toolkit.oracles.captures import read_capture
from toolkit.oracles.record import OracleRecord, place, shortened
from toolkit.progress import note

SCRIPTS = Path(__file__).parent / "capture_scripts"
IMPLEMENTATIONS = ("transformers", "vllm", "llama-cpp")
PREFIX = "capture: "
ERROR = "error: "
LINE = 400


@dataclasses.dataclass(frozen=True)
class Question:
    """One prompt to ask: its text or its ids, and the continuation to force, if any."""

    text: str | None
    ids: tuple[int, ...] | None = None
    continuation: tuple[int, ...] | None = None


def questions(texts: Sequence[str] | None, forced_on: OracleRecord | None) -> list[Question]:
    """Texts, or the prompts of a record with its first run as what is forced; with both, that record's of these texts.

    Raises ToolkitError for a text that the record does not have, and for a record without greedy runs.
    """
    if forced_on is None:
        return [Question(text) for text in texts or ()]
    if not forced_on.runs:
        raise ToolkitError(f"{forced_on.name} has no greedy run whose tokens could be forced; name a greedy capture")
    known = {prompt.text: prompt for prompt in forced_on.prompts}
    missing = [text for text in texts or () if text not in known]
    if missing:
        raise ToolkitError(f"the record to force has no prompt {missing[0]!r:.60}; capture its continuation first")
    chosen = forced_on.prompts if texts is None else [known[text] for text in texts]
    return [Question(prompt.text, prompt.ids, prompt.tokens) for prompt in chosen]


def ask(implementation: str, python: Path, asked: Sequence[Question], options: Sequence[str]) -> OracleRecord:
    """Run the capture script of ``implementation`` with the interpreter ``python``; its capture as a checked record.

    ``options`` are the script's own (see its --help), but for --prompts, --forced and --out. Raises ToolkitError, one
    sentence, when the interpreter or the implementation is missing, fails, or answers another question.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ToolkitError(f"{implementation!r:.40} has no capture script; choose {', '.join(IMPLEMENTATIONS)}")
    script = SCRIPTS / f"{implementation.replace('-', '_')}_capture.py"
    forced = any(question.continuation is not None for question in asked)
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        prompts, out = Path(folder, "prompts.json"), Path(folder, "capture.json")
        items = [{"prompt": q.text, "ids": q.ids, "tokens": q.continuation} for q in asked]
        prompts.write_text(json.dumps({"prompts": items}), encoding="utf-8")
        command = [str(python), str(script), "--prompts", str(prompts), "--out", str(out), *options]
        _run(command + (["--forced"] if forced else []), implementation, python)
        if not out.is_file():
            raise ToolkitError(f"{implementation} ended without a capture; run it with {python} by hand: {script}")
        record = read_capture(out)
    _same_questions(asked, record, implementation)
    return record


def _run(command: list[str], implementation: str, python: Path) -> None:
    last: deque[str] = deque(maxlen=1)
    error = ""
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
    except OSError as failed:
        raise ToolkitError(
            f"{python} cannot be run: {failed.strerror}; give the interpreter of its environment"
        ) from None
    assert process.stdout is not None
    try:
        for line in process.stdout:
            text = line.strip()
            if text.startswith(PREFIX + ERROR):
                error = text.removeprefix(PREFIX + ERROR)
            elif text.startswith(PREFIX):
                note(f"{implementation}: {text.removeprefix(PREFIX)}")
            elif text:
                last.append(text[:LINE])
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = error or f"it {how}{', after: ' + last[0] if last else ''}"
        raise ToolkitError(f"the capture with {implementation} failed: {why}")


def _same_questions(asked: Sequence[Question], record: OracleRecord, implementation: str) -> None:
    if len(asked) != len(record.prompts):
        raise ToolkitError(f"{implementation} was asked {len(asked)} prompts and answered {len(record.prompts)}")
    for number, (question, prompt) in enumerate(zip(asked, record.prompts, strict=True)):
        if question.text != prompt.text or (question.ids is not None and question.ids != prompt.ids):
            raise ToolkitError(
                f"{implementation} answered another question at {place(number, prompt)}: it reports the ids "
                f"{shortened(prompt.ids)}"
            )
        if question.continuation is not None and (
            prompt.forced is None or tuple(prompt.forced.continuation.tolist()) != question.continuation
        ):
            raise ToolkitError(f"{implementation} did not force the continuation of {place(number, prompt)}")
