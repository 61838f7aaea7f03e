"""The safetensors header against the file's size, and the folder's shards against their index."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.checkpoints.folders import Tensor, header_of, pack, safetensors_bytes, tensor, write_json, write_shards
from toolkit.checkpoints import safetensors, shards
from toolkit.errors import ToolkitError

TENSORS: dict[str, Tensor] = {
    "a": tensor([2, 3], "BF16", seed=1),
    "b": tensor([4], "F32", seed=2),
    "c": tensor([2, 2], "F16", seed=3),
}
DATA = b"".join(data for _, _, data in TENSORS.values())


def refused(path: Path, content: bytes, *words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ToolkitError) as caught:
        safetensors.open_file(path)
    message = str(caught.value)
    assert "\n" not in message
    for word in [path.name, *words]:
        assert word in message


def read(file: safetensors.File, name: str) -> np.ndarray[Any, Any]:
    entry = file.entries[name]
    return safetensors.MappedTensor(
        file.data[entry.begin : entry.end], safetensors.WEIGHTS[entry.kind], entry.shape
    ).read()


def test_reads_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {
        "half": np.arange(6, dtype=np.float16).reshape(2, 3),
        "brain": np.arange(8).astype(ml_dtypes.bfloat16),
        "single": np.float32([[1.5]]),
    }
    save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "pt"})
    file = safetensors.open_file(tmp_path / "x.safetensors")
    assert file.entries.keys() == arrays.keys()
    for name, array in arrays.items():
        found = read(file, name)
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()


def test_tensors_are_mapped_and_read_only(tmp_path: Path) -> None:
    size = 64 << 20
    with (tmp_path / "x.safetensors").open("wb") as file:
        file.write(pack({"a": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}, b""))
        file.truncate(file.tell() + size)
    tracemalloc.start()
    found = read(safetensors.open_file(tmp_path / "x.safetensors"), "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.nbytes == size
    assert peak < 1 << 20
    assert not found.flags.writeable


def test_unaligned_data_is_copied_into_place(tmp_path: Path) -> None:
    header = json.dumps(header_of(TENSORS)).encode()
    header += b" " * ((-len(header)) % 8 + 1)
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + DATA)
    found = read(safetensors.open_file(tmp_path / "x.safetensors"), "b")
    assert found.flags.aligned
    assert found.tobytes() == TENSORS["b"][2]


def test_no_tensor_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(pack({}, b""))
    assert not safetensors.open_file(tmp_path / "x.safetensors").entries


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\x01\x02", ["truncated"]),
        (struct.pack("<Q", 126 << 20) + b"{}", ["header of 132120576 bytes", "holds 10"]),
        (struct.pack("<Q", 2**63) + b"{}", ["truncated"]),
        (struct.pack("<Q", 4) + b"[12]", ["does not begin with a brace"]),
        (struct.pack("<Q", 4) + b"{bad", ["not valid JSON", "header"]),
        (b"version https://git-lfs.github.com/spec/v1\n", ["truncated or not a safetensors file"]),
        (pack(header_of(TENSORS), DATA[:-1]), ["truncated", "take 36 bytes", "holds 35"]),
        (pack(header_of(TENSORS), DATA + b"x"), ["belong to no tensor"]),
        (pack(header_of(TENSORS) | {"__metadata__": {"format": 3}}, DATA), ["__metadata__"]),
        (pack(header_of(TENSORS) | {"__metadata__": None}, DATA), ["__metadata__"]),
        (pack('{"a": 1, "a": 2}', b""), ["'a'", "twice"]),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, words: list[str]) -> None:
    refused(tmp_path / "x.safetensors", content, *words)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("a", {"dtype": "Q4"}, ["'a'", "'Q4'", "unknown dtype"]),
        ("a", {"dtype": ["BF16"]}, ["unknown dtype"]),
        ("a", {"dtype": "F32"}, ["'a'", "needs 24 bytes"]),
        ("a", {"shape": [2, 4]}, ["'a'", "needs 16 bytes"]),
        ("a", {"shape": [2**62, 2**62, 3]}, ["needs"]),
        ("a", {"shape": [2**64]}, ["not a list of sizes"]),
        ("a", {"shape": [-2, -3]}, ["not a list of sizes"]),
        ("a", {"shape": [2.0, 3]}, ["not a list of sizes"]),
        ("a", {"shape": [True, 6]}, ["not a list of sizes"]),
        ("a", {"shape": [1] * 9}, ["not a list of sizes"]),
        ("a", {"shape": "6"}, ["not a list of sizes"]),
        ("a", {"data_offsets": [0]}, ["data_offsets"]),
        ("a", {"data_offsets": [12, 0]}, ["'a'", "12 to 0"]),
        ("a", {"data_offsets": [0, 2**70]}, ["data_offsets"]),
        ("b", {"data_offsets": [8, 24]}, ["'b'", "overlaps"]),
        ("b", {"data_offsets": [16, 32]}, ["'b'", "gap"]),
        ("c", {"data_offsets": [1000, 1008]}, ["'c'", "gap"]),
        ("c", {"surprise": 1}, ["'c'", "nothing else"]),
    ],
)
def test_broken_entries(tmp_path: Path, name: str, changes: dict[str, Any], words: list[str]) -> None:
    header = header_of(TENSORS)
    header[name] |= changes
    refused(tmp_path / "x.safetensors", pack(header, DATA), *words)


def test_two_tensors_on_the_same_bytes(tmp_path: Path) -> None:
    header = header_of(TENSORS)
    header["twin"] = dict(header["a"])
    refused(tmp_path / "x.safetensors", pack(header, DATA), "overlaps")


def test_a_huge_claim_allocates_nothing(tmp_path: Path) -> None:
    size = 1 << 42
    content = pack({"a": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}, b"1234")
    tracemalloc.start()
    refused(tmp_path / "x.safetensors", content, "truncated")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_header_beyond_any_model_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "x.safetensors", pack('{"a": "' + "x" * (9 << 20) + '"}', b""), "header of", "reads up to")


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    weight_map = write_shards(tmp_path)
    found = shards.open_folder(tmp_path)
    assert {name: file.path.name for name, (file, _) in found.items()} == weight_map


def test_an_index_that_names_the_single_file(tmp_path: Path) -> None:
    (tmp_path / shards.SINGLE).write_bytes(safetensors_bytes(TENSORS))
    write_json(tmp_path / shards.INDEX, {"weight_map": dict.fromkeys(TENSORS, shards.SINGLE)})
    assert shards.open_folder(tmp_path).keys() == TENSORS.keys()


def test_the_vendors_own_copy_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / shards.SINGLE).write_bytes(safetensors_bytes(TENSORS))
    (tmp_path / "consolidated.00.safetensors").write_bytes(b"")
    assert shards.open_folder(tmp_path).keys() == TENSORS.keys()


def change_index(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    index = json.loads((folder / shards.INDEX).read_text())
    change(index)
    write_json(folder / shards.INDEX, index)


NAME = "model.embed_tokens.weight"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / SECOND).unlink(), [SECOND, "not in the folder"]),
        (lambda folder: (folder / SECOND).write_bytes(b""), [SECOND, "empty"]),
        (lambda folder: (folder / SECOND).write_bytes((folder / SECOND).read_bytes()[:-1]), [SECOND, "truncated"]),
        (lambda folder: (folder / SECOND).write_bytes((folder / FIRST).read_bytes()), [SECOND, "both"]),
        (
            lambda folder: change_index(folder, lambda index: index["weight_map"].update({NAME: SECOND})),
            [FIRST, NAME, f"expects in {SECOND}"],
        ),
        (lambda folder: change_index(folder, lambda index: index["weight_map"].pop(NAME)), [NAME, "nowhere"]),
        (
            lambda folder: change_index(folder, lambda index: index["weight_map"].update({"extra": SECOND})),
            [SECOND, "'extra'", "lacks"],
        ),
        (lambda folder: change_index(folder, lambda index: index.pop("weight_map")), ["weight_map"]),
        (lambda folder: change_index(folder, lambda index: index.update(weight_map={})), ["weight_map"]),
        (lambda folder: change_index(folder, lambda index: index["weight_map"].update(x=3)), ["'x'", "3"]),
        (
            lambda folder: change_index(folder, lambda index: index["weight_map"].update(x="../secret.safetensors")),
            ["'../secret.safetensors'", "in the folder"],
        ),
        (
            lambda folder: change_index(folder, lambda index: index["weight_map"].update(x="/secret.safetensors")),
            ["'/secret.safetensors'"],
        ),
        (
            lambda folder: change_index(folder, lambda index: index["weight_map"].update(x="pytorch_model.bin")),
            ["'pytorch_model.bin'"],
        ),
        (lambda folder: (folder / shards.INDEX).write_text("{"), ["index.json", "not valid JSON"]),
        (lambda folder: (folder / shards.INDEX).unlink(), [FIRST, "download the missing one"]),
        (
            lambda folder: (folder / "model-00003-of-00003.safetensors").write_bytes(pack({}, b"")),
            ["'model-00003-of-00003.safetensors'", "does not name"],
        ),
        (
            lambda folder: (folder / shards.SINGLE).write_bytes(pack({}, b"")),
            ["'model.safetensors'", "does not name"],
        ),
    ],
)
def test_broken_shards(tmp_path: Path, damage: Callable[[Path], Any], words: list[str]) -> None:
    write_shards(tmp_path)
    damage(tmp_path)
    with pytest.raises(ToolkitError) as caught:
        shards.open_folder(tmp_path)
    for word in words:
        assert word in str(caught.value)


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / FIRST).write_bytes(safetensors_bytes(TENSORS))
    (tmp_path / SECOND).write_bytes(safetensors_bytes({"a": TENSORS["a"]}))
    write_json(tmp_path / shards.INDEX, {"weight_map": dict.fromkeys(TENSORS, FIRST) | {"d": SECOND}})
    with pytest.raises(ToolkitError, match=r"'a' is in both model-00001.* and model-00002.*stale"):
        shards.open_folder(tmp_path)


def test_left_over_adapter(tmp_path: Path) -> None:
    (tmp_path / shards.SINGLE).write_bytes(safetensors_bytes(TENSORS))
    (tmp_path / "adapter_model.safetensors").write_bytes(pack({}, b""))
    with pytest.raises(ToolkitError, match=r"adapter_model.safetensors.*remove it"):
        shards.open_folder(tmp_path)


def test_no_safetensors(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="no safetensors found in"):
        shards.open_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ToolkitError, match=r"no safetensors found in .*pytorch_model\.bin.*can run code"):
        shards.open_folder(tmp_path)
