"""The tokenizer that a GGUF file describes: byte-level BPE with listed merges ("gpt2"), or SentencePiece's ("llama").

SentencePiece merges the pair whose result has the highest score; as a BPE model that is one merge for each way to cut a
token into two tokens, in the order of scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.keys import Keys
from toolkit.checkpoints.tokenizer import Tokenizer, failures_as
from toolkit.errors import ToolkitError

PREFIX = "tokenizer.ggml."
STOPS = ("eos_token_id", "eot_token_id", "eom_token_id")

# Kinds of tokens that are matched whole in a text before it is split or merged.
CONTROL, USER_DEFINED = 3, 4
# The longest piece of a SentencePiece model; each is cut in all ways, so this bounds the work.
MAX_PIECE_CHARACTERS = 256

SPACE = "\u2581"  # how SentencePiece spells a space in its pieces

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
# The names that llama.cpp gives to the ways of splitting a text into words.
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_WORDS = ("gpt-2", "smollm", "qwen2", *_LLAMA3)


def read(metadata: Mapping[str, Any], config: ModelConfig, *, where: str) -> Tokenizer:
    """The tokenizer in ``metadata``, the pairs of the GGUF file ``where``. Raises ToolkitError if it cannot be built."""
    keys = _keys(metadata, where)
    tokens = _list_of(keys, "tokens", str, None)
    kinds = _list_of(keys, "token_type", int, len(tokens)) if "token_type" in keys.data else [1] * len(tokens)
    model = keys.text("model")
    with failures_as(f"{keys.where} does not describe a tokenizer that can be built; download the file again"):
        if model == "gpt2":
            backend = _byte_level(keys, tokens)
        elif model == "llama":
            tokens = [SPACE * len(token) if token and not token.strip(" ") else token for token in tokens]
            backend = _sentencepiece(keys, tokens, kinds)
        else:
            raise keys.refuse("model", model, "'gpt2' or 'llama'")
        # A run of spaces is left to the merges, as in the tokenizer.json of the same model.
        whole = [
            (token, kind) for token, kind in zip(tokens, kinds, strict=True) if token and SPACE * len(token) != token
        ]
        backend.add_tokens([AddedToken(token, normalized=False) for token, kind in whole if kind == USER_DEFINED])
        backend.add_special_tokens([AddedToken(token, normalized=False) for token, kind in whole if kind == CONTROL])
    return Tokenizer(
        backend,
        bos_id=_required_bos(keys, config, sentencepiece=model == "llama"),
        eos_id=keys.token("eos_token_id", vocab_size=config.vocab_size),
        vocab_size=config.vocab_size,
        where=where,
    )


def stop_sources(metadata: Mapping[str, Any], config: ModelConfig, *, where: str) -> Mapping[int, tuple[str, ...]]:
    """Each stop id with the metadata that name it: the ends of a text, of a turn and of a message."""
    keys = _keys(metadata, where)
    sources: dict[int, tuple[str, ...]] = {}
    for key in STOPS:
        token = keys.token(key, vocab_size=config.vocab_size)
        if token is not None:
            sources[token] = (*sources.get(token, ()), PREFIX + key)
    return sources


def _keys(metadata: Mapping[str, Any], where: str) -> Keys:
    found = {name.removeprefix(PREFIX): value for name, value in metadata.items() if name.startswith(PREFIX)}
    return Keys(found, f"{where} ({PREFIX}*)")


def _list_of(keys: Keys, key: str, kind: type, length: int | None) -> list[Any]:
    value = keys.take(key)
    if not isinstance(value, list) or not value or not all(type(item) is kind for item in value):
        raise ToolkitError(
            f"{keys.where}: {key!r} is missing or not a list of {kind.__name__}; download the file again"
        )
    if length is not None and len(value) != length:
        raise ToolkitError(f"{keys.where}: {key!r} has {len(value)} items for {length} tokens; download the file again")
    return value


def _vocabulary(keys: Keys, tokens: Sequence[str]) -> dict[str, int]:
    vocabulary = {token: position for position, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(token for position, token in enumerate(tokens) if vocabulary[token] != position)
        raise ToolkitError(f"{keys.where}: the token {twice!r:.40} is there twice; download the file again")
    return vocabulary


def _byte_level(keys: Keys, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    merges = [tuple(merge.split(" ")) for merge in _list_of(keys, "merges", str, None)]
    if not all(len(merge) == 2 for merge in merges):
        raise ToolkitError(f"{keys.where}: 'merges' has one that is not a pair; download the file again")
    words = keys.text("pre")
    if words not in _WORDS:
        raise keys.refuse("pre", words, f"a way of splitting words that is known ({', '.join(_WORDS)})")
    backend = tokenizers.Tokenizer(models.BPE(_vocabulary(keys, tokens), merges, ignore_merges=words in _LLAMA3))
    if words == "gpt-2":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif words == "smollm":
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        split = pre_tokenizers.Split(Regex(_QWEN2_WORDS if words == "qwen2" else _LLAMA3_WORDS), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    if words == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(keys: Keys, tokens: Sequence[str], kinds: Sequence[int]) -> tokenizers.Tokenizer:
    vocabulary = _vocabulary(keys, tokens)
    scores = _list_of(keys, "scores", float, len(tokens))
    if not all(math.isfinite(score) for score in scores) or max(map(len, tokens)) > MAX_PIECE_CHARACTERS:
        raise ToolkitError(
            f"{keys.where}: a score is not finite or a token longer than {MAX_PIECE_CHARACTERS} characters; "
            "download the file again"
        )
    # User-defined tokens rank with the best, whatever score the file gives them; among equals the longest left part wins.
    best = -max(scores)
    cuts: list[tuple[float, int, int, str, str]] = []
    for token, kind, score in zip(tokens, kinds, scores, strict=True):
        rank = best if kind == USER_DEFINED else -score
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in vocabulary and right in vocabulary:
                cuts.append((rank, -len(left), -len(right), left, right))
    cuts.sort(key=lambda cut: cut[:3])
    unknown = keys.integer("unknown_token_id", 0, low=0, high=len(tokens) - 1)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocabulary,
            [cut[3:] for cut in cuts],
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = keys.flag("add_space_prefix", True)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first" if prefix else "never", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(" ", 1, 0)] if prefix else [])
    )
    return backend


def _required_bos(keys: Keys, config: ModelConfig, *, sentencepiece: bool) -> int | None:
    """The BOS that begins a prompt; where the file does not say, SentencePiece's and Llama 3's tokenizers have one."""
    if keys.flag("add_eos_token", False):
        raise ToolkitError(f"{keys.where}: add_eos_token would end every prompt; use a file without it")
    gemma = config.architecture == "Gemma3ForCausalLM"
    if not keys.flag("add_bos_token", sentencepiece or keys.text("pre") in _LLAMA3) and not gemma:
        return None
    bos = keys.token("bos_token_id", vocab_size=config.vocab_size)
    if bos is None:
        raise ToolkitError(f"{keys.where}: the model needs a BOS, but there is no bos_token_id; use another file")
    return bos
