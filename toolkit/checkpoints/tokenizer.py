"""Text to token ids and back, with exactly one beginning-of-sequence token (BOS) where the model needs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers

from toolkit.checkpoints import strict_json
from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.files import read_bytes
from toolkit.checkpoints.keys import Keys
from toolkit.errors import ToolkitError

# Gemma's 262 144 tokens and their merges take 33 MB.
MAX_BYTES = 128 << 20


class Tokenizer:
    """``backend`` with the model's rules around it.

    ``bos_id`` begins every prompt, or is None when the model takes no BOS; ``eos_id`` is the tokenizer's own end token,
    if it names one; ``vocab_size`` is the number of embedding rows; ``where`` names the file in errors.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, bos_id: int | None, eos_id: int | None, vocab_size: int, where: str
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.vocab_size = vocab_size
        self.where = where

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, BOS first where the model needs one; a text that begins with the BOS keeps that one.

        Raises ToolkitError for a text that is not Unicode or gives no token, and as ``check`` does.
        """
        with failures_as(f"the prompt {text!r:.60} cannot be encoded with {self.where}"):
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids = [self.bos_id, *ids]
        return self.check(ids, f"the prompt {text!r:.60}")

    def check(self, ids: Sequence[int], what: str = "the prompt") -> list[int]:
        """``ids`` as a list. Raises ToolkitError, naming ``what``, when the model cannot take them as a prompt:

        none at all, an id without an embedding, no BOS or a second one where the model needs exactly one.
        """
        ids = list(ids)
        if not ids:
            raise ToolkitError(f"{what} has no token and the model takes no beginning-of-sequence token; give a text")
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise ToolkitError(
                    f"{what} has the token id {token} ({self.decode_one(token)!r:.40}) in {self.where}, but the model "
                    f"embeds only {self.vocab_size}; leave it out, or use the tokenizer that belongs to the weights"
                )
        if self.bos_id is not None and (ids[0] != self.bos_id or ids.count(self.bos_id) != 1):
            raise ToolkitError(
                f"{what} must begin with the model's BOS (id {self.bos_id}) and hold it once, but its ids begin "
                f"{ids[:4]} and hold it {ids.count(self.bos_id)} times; leave the BOS out of the text"
            )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``, special tokens spelled out; an id that the tokenizer does not know adds nothing."""
        known = [token for token in ids if 0 <= token < 1 << 32]  # the backend's own range
        with failures_as(f"the ids {known[:4]} cannot be decoded with {self.where}"):
            return str(self._backend.decode(known, skip_special_tokens=False))

    def decode_one(self, token: int) -> str:
        """The text of one id by itself; part of a character shows as U+FFFD."""
        return self.decode([token])


def read(folder: Path, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a Hugging Face folder.

    tokenizer.json's post-processor says whether a BOS begins a prompt, as in transformers; Gemma-3 needs one whatever
    it says. Raises ToolkitError when the files contradict each other or add anything but one BOS.
    """
    path = folder / "tokenizer.json"
    backend = _parse(read_bytes(path, limit=MAX_BYTES), str(path))
    settings = _settings(folder)
    bos, eos = _special_token(settings, backend, "bos_token"), _special_token(settings, backend, "eos_token")
    _check_added_tokens(settings, backend)
    return Tokenizer(
        backend,
        bos_id=_required_bos(backend, settings, bos, config, str(path)),
        eos_id=eos,
        vocab_size=config.vocab_size,
        where=str(path),
    )


@contextmanager
def failures_as(message: str) -> Iterator[None]:
    """Turn any failure of the backend, which raises bare Exceptions and Rust panics, into a ToolkitError."""
    try:
        yield
    except ToolkitError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ToolkitError(f"{message}: {' '.join(str(error).split()):.120}") from error
        raise


def _parse(content: bytes, where: str) -> tokenizers.Tokenizer:
    text = strict_json.decode(content, where=where)
    with failures_as(f"{where} is not a tokenizer that can be read; download it again"):
        return tokenizers.Tokenizer.from_str(text)


def _settings(folder: Path) -> Keys:
    """tokenizer_config.json, with special_tokens_map.json for what it does not say."""
    merged: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).exists():
            content = strict_json.read_object(folder / name)
            merged |= {key: value for key, value in content.items() if value is not None or key not in merged}
    return Keys(merged, f"{folder / 'tokenizer_config.json'}")


def _special_token(settings: Keys, backend: tokenizers.Tokenizer, key: str) -> int | None:
    value = settings.take(key)
    content = value.get("content") if isinstance(value, dict) else value
    if content is None:
        return None
    if not isinstance(content, str):
        raise settings.refuse(key, value, "a token")
    token: int | None = None
    with failures_as(f"{settings.where}: {key} is not a text"):
        token = backend.token_to_id(content)
    if token is None:
        raise settings.refuse(key, value, "a token that tokenizer.json knows")
    return token


def _check_added_tokens(settings: Keys, backend: tokenizers.Tokenizer) -> None:
    for key, value in (settings.mapping("added_tokens_decoder") or {}).items():
        content = value.get("content") if isinstance(value, dict) else None
        if not key.isascii() or not key.isdigit() or len(key) > 9 or not isinstance(content, str):
            raise settings.refuse("added_tokens_decoder", {key: value}, "tokens by id")
        if backend.id_to_token(int(key)) != content:
            raise ToolkitError(
                f"{settings.where}: the added token {key} is {content!r:.60} here and "
                f"{backend.id_to_token(int(key))!r:.60} in tokenizer.json; download both again"
            )


def _required_bos(
    backend: tokenizers.Tokenizer, settings: Keys, named: int | None, config: ModelConfig, where: str
) -> int | None:
    before, after = _added_around(backend, where)
    if after or len(before) > 1 or settings.take("add_eos_token") is True:
        raise ToolkitError(
            f"{where}: the post-processor puts {before} before a prompt and {after} after it, and only one BOS before "
            "it is supported; set the post-processor accordingly and add_eos_token to false"
        )
    added = before[0] if before else None
    asked = None if settings.take("add_bos_token") is None else settings.flag("add_bos_token", False)
    if config.architecture == "Gemma3ForCausalLM":
        candidates = {token for token in (added, named, config.bos_token_id) if token is not None}
        if len(candidates) != 1:
            raise ToolkitError(
                f"{where}: Gemma-3 needs a BOS, but post-processor, tokenizer_config.json and config.json give "
                f"{added}, {named} and {config.bos_token_id}; correct them to one id"
            )
        return candidates.pop()
    if added is None and asked and backend.post_processor is None:
        added = named
    if asked is not None and asked != (added is not None):
        raise ToolkitError(
            f"{settings.where}: add_bos_token is {str(asked).lower()}, but tokenizer.json's post-processor "
            f"{'adds none' if added is None else f'adds id {added}'}; correct one of them"
        )
    if added is not None and named is not None and added != named:
        raise ToolkitError(
            f"{settings.where}: bos_token has the id {named}, but tokenizer.json's post-processor adds {added}; "
            "correct one of them"
        )
    return added


def _added_around(backend: tokenizers.Tokenizer, where: str) -> tuple[list[int], list[int]]:
    """The ids that the post-processor puts before and after a text."""
    _refuse_undefined_tokens(backend, where)
    with failures_as(f"{where} cannot encode a text; download it again"):
        plain: list[int] = backend.encode("a", add_special_tokens=False).ids
        full: list[int] = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start], full[start + len(plain) :]
    raise ToolkitError(f"{where}: the post-processor rewrites the ids of a text ({plain} to {full}); use another file")


def _refuse_undefined_tokens(backend: tokenizers.Tokenizer, where: str) -> None:
    """Raises ToolkitError for a template that uses a token it does not define, on which the backend would abort."""
    if backend.post_processor is None:
        return
    outer = json.loads(backend.post_processor.__getstate__())
    for processor in outer["processors"] if outer["type"] == "Sequence" else [outer]:
        if processor["type"] == "TemplateProcessing":
            used = {piece["SpecialToken"]["id"] for piece in processor["single"] if "SpecialToken" in piece}
            if not used <= processor["special_tokens"].keys():
                raise ToolkitError(
                    f"{where}: the post-processor adds a token that it does not define; download it again"
                )
