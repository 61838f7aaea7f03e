"""Hundreds of corrupted folders: each loads to the very content or is refused by one sentence, within bounded memory."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.folders import GEMMA3, LLAMA, QWEN3, write_folder, write_json, write_shards
from toolkit import checkpoints
from toolkit.errors import ToolkitError

ROUNDS = 110  # for each of three kinds of folder
MEMORY_BYTES = 64 << 20

ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**30,
    1e-320,
    1e308,
    "",
    "BF16",
    "\ud800",
    "../x",
    [],
    [0],
    [-1, 2**62],
    {},
    {"a": {}},
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        found += places(inner)
    return found


def change_json(text: bytes, chance: random.Random) -> bytes:
    """One change of a JSON document: a value replaced, dropped or copied, a name changed, or the text itself damaged."""
    value = json.loads(text)
    container, key = chance.choice(places(value) or [(None, None)])
    match chance.randrange(6):
        case 0 if container is not None:
            container[key] = chance.choice(ODD_VALUES)
        case 1 if isinstance(container, dict):
            del container[key]
        case 2 if isinstance(container, dict):
            container[f"{key}x"] = container.pop(key)
        case 3 if container is not None:
            container[key] = json.loads(
                json.dumps(chance.choice([inner for _, inner in [chance.choice(places(value))]]))
            )
        case 4:
            return change_bytes(text, chance)
        case _:
            twice = json.dumps(value)
            return (twice[:-1] + ', "model_type": "qwen3", "vocab_size": NaN}').encode()
    return json.dumps(value).encode()


def change_bytes(content: bytes, chance: random.Random) -> bytes:
    """One change of raw bytes: a bit flipped, a piece cut out, zeroed or repeated, the end lost."""
    at = chance.randrange(max(len(content), 1))
    size = chance.choice([1, 2, 8, 100])
    match chance.randrange(5):
        case 0:
            changed = bytearray(content)
            changed[at] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case 1:
            return content[:at] + content[at + size :]
        case 2:
            return content[:at] + bytes(size) + content[at + size :]
        case 3:
            return content[:at] + content[at : at + size] * 2 + content[at + size :]
        case _:
            return content[:at]


def change_safetensors(content: bytes, chance: random.Random) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    match chance.randrange(4):
        case 0:
            return struct.pack("<Q", chance.choice([0, 1, length - 1, length + 1, 2**32, 2**63])) + content[8:]
        case 1:
            return content[:8] + change_bytes(header, chance) + data
        case 2:
            changed = change_json(header, chance)
            return struct.pack("<Q", len(changed)) + changed + data
        case _:
            return content[: -chance.randrange(1, 50)]


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".safetensors": change_safetensors,
    ".json": change_json,
}


def content_of(checkpoint: checkpoints.Checkpoint) -> tuple[Any, ...]:
    return (
        checkpoint.config,
        checkpoint.weights_hash,
        checkpoint.stop_ids,
        checkpoint.tokenizer.encode("the capital of a b c"),
    )


@pytest.mark.parametrize("config", [QWEN3, LLAMA, GEMMA3], ids=["shards", "llama", "gemma3"])
def test_corruptions(tmp_path: Path, config: dict[str, Any]) -> None:
    if config is QWEN3:
        write_shards(tmp_path, config)
    else:
        write_folder(tmp_path, config)
    write_json(tmp_path / "generation_config.json", {"eos_token_id": [1, 3]})
    intact = content_of(checkpoints.load(tmp_path))
    originals = {path: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    outcomes = {"same": 0, "other": 0, "refused": 0}
    tracemalloc.start()
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        path = chance.choice(list(originals))
        path.write_bytes(CHANGES[path.suffix](originals[path], chance))
        message = ""
        try:
            found = content_of(checkpoints.load(tmp_path))
        except ToolkitError as error:
            message = str(error)
        path.write_bytes(originals[path])
        if message:
            outcomes["refused"] += 1
            assert "\n" not in message, (seed, path)
            assert str(tmp_path) in message, (seed, path)
        else:
            # One valid value in the place of another is another model: the configuration or the hash says so.
            outcomes["same" if found == intact else "other"] += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_BYTES
    assert sum(outcomes.values()) == ROUNDS
    assert outcomes["refused"] > ROUNDS // 2
