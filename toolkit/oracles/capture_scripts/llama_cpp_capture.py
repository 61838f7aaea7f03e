"""Capture of llama.cpp on a GGUF file, through the C interface of llama-cpp-python: greedy, with as many sequences in one
decode as --batch says, and teacher forcing in one pass."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import common
import numpy as np

CACHES = {"f16": 1, "f32": 0}  # ggml's numbers of the types


def script() -> None:
    """Read the command line, ask, write the capture."""
    parser = common.arguments(__doc__)
    parser.add_argument("--cache", choices=list(CACHES), default="f16", help="type of the key and value cache")
    parser.add_argument("--flash", action="store_true", help="llama.cpp's flash attention")
    parser.add_argument("--length", type=int, default=512, help="longest prompt and continuation together")
    options = common.checked(parser.parse_args())

    import llama_cpp as ll

    items = common.read_items(options)
    quiet = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    common.say(f"loading {Path(options.model).name}")
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(options.model.encode(), ll.llama_model_default_params())
    if not model:
        raise common.Wrong(f"llama.cpp cannot load {options.model}; is it a GGUF file of a model that it knows?")
    vocabulary = ll.llama_model_get_vocab(model)
    size = ll.llama_vocab_n_tokens(vocabulary)
    for item in items:
        item["ids"] = item["ids"] or tokenize(ll, vocabulary, item["prompt"])
    longest = max(len(i["ids"]) + max(options.tokens, len(i["continuation"] or [])) for i in items)
    if longest > options.length:
        raise common.Wrong(f"a prompt and its continuation take {longest} tokens; give --length {longest} or more")
    parameters = ll.llama_context_default_params()
    parameters.n_ctx = options.length * options.batch
    parameters.n_batch = parameters.n_ubatch = parameters.n_ctx
    parameters.n_seq_max = options.batch
    parameters.n_threads = parameters.n_threads_batch = options.threads
    parameters.type_k = parameters.type_v = CACHES[options.cache]
    parameters.flash_attn_type = int(options.flash)
    context = ll.llama_init_from_model(model, parameters)
    if not context:
        raise common.Wrong("llama.cpp made no context with these settings; try a smaller --length or --batch")
    memory = ll.llama_get_memory(context)

    def decode(rows: list[tuple[int, list[int], int]], wanted: int) -> list[Any]:
        """Append tokens to sequences (sequence, tokens, position); the logits of the last ``wanted`` tokens of each."""
        batch = ll.llama_batch_init(sum(len(tokens) for _, tokens, _ in rows), 0, 1)
        places = []
        for sequence, tokens, position in rows:
            for offset, token in enumerate(tokens):
                i = batch.n_tokens
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = (
                    token,
                    position + offset,
                    1,
                    sequence,
                )
                batch.logits[i] = offset >= len(tokens) - wanted
                if batch.logits[i]:
                    places.append(i)
                batch.n_tokens += 1
        code = ll.llama_decode(context, batch)
        if code:
            raise common.Wrong(f"llama_decode failed with {code}")
        found = [np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i), (size,)).copy() for i in places]
        ll.llama_batch_free(batch)
        return found

    def greedy(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ll.llama_memory_clear(memory, True)
        made: list[dict[str, Any]] = [{"tokens": [], "steps": []} for _ in group]
        rows = [(n, item["ids"], 0) for n, item in enumerate(group)]
        for _ in range(options.tokens):
            logits = decode(rows, 1)
            rows = [(n, [int(np.argmax(row))], at + len(ids)) for (n, ids, at), row in zip(rows, logits, strict=True)]
            for one, (_, (token,), _), row in zip(made, rows, logits, strict=True):
                one["tokens"].append(token)
                one["steps"].append(common.candidates(row, options.top)[0])
        return made

    groups = [items[start : start + options.batch] for start in range(0, len(items), options.batch)]
    runs = []
    for number in range(options.repeats if options.tokens else 0):
        made = (greedy(group) for group in groups)
        runs.append([one for part in common.track(made, f"run {number}, batches", len(groups)) for one in part])
    forced_parts = []
    for item in common.track(items if options.forced else [], "forced, prompts", len(items)):
        ll.llama_memory_clear(memory, True)
        continuation = item["continuation"]
        logits = decode([(0, item["ids"] + continuation[:-1], 0)], len(continuation))
        forced_parts.append(common.forced(logits, continuation, options.top))
    bos = ll.llama_vocab_bos(vocabulary)
    head = {
        "oracle": "llama-cpp-python",
        "version": ll.__version__,
        "libraries": common.versions("numpy"),
        "dtype": file_type(Path(options.model).name),
        "file": Path(options.model).name,
        "attn": "flash" if options.flash else None,
        "device": "gpu" if ll.llama_supports_gpu_offload() else "cpu",
        "cache": options.cache,
        "vocabulary": size,
        "bos": bos if bos >= 0 else None,
    }

    def text(tokens: list[int]) -> str:
        return b"".join(piece(ll, vocabulary, token) for token in tokens).decode("utf-8", "replace")

    common.write(options, head, common.assemble(options, items, runs, forced_parts, text))


def tokenize(ll: Any, vocabulary: Any, prompt: str) -> list[int]:
    """With what the model's file says is added, such as a begin-of-sequence token."""
    raw = prompt.encode()
    room = len(raw) + 8
    tokens = (ll.llama_token * room)()
    count = ll.llama_tokenize(vocabulary, raw, len(raw), tokens, room, True, True)
    if count < 1:
        raise common.Wrong(f"llama.cpp makes no tokens of the prompt {prompt[:40]!r}")
    return list(tokens[:count])


def piece(ll: Any, vocabulary: Any, token: int) -> bytes:
    """The text of a token, which may be a part of a character."""
    buffer = ctypes.create_string_buffer(256)
    count = ll.llama_token_to_piece(vocabulary, token, buffer, 256, 0, True)
    return buffer.raw[: max(0, count)]


def file_type(name: str) -> str:
    """ "gemma3-270m-BF16.gguf" → "gguf-bf16"."""
    types = re.findall(r"(?:^|[-._])(bf16|f16|f32|i?q\d\w*)(?=[-._])", name.lower())
    return f"gguf-{types[-1]}" if types else "gguf"


if __name__ == "__main__":
    common.main(script)
