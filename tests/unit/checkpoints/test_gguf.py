"""GGUF files: the header within its bounds, the same model as the folder's, dequantisation to the bit, the tokenizers."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.checkpoints.folders import GEMMA3, LLAMA, QWEN3, tensor, weights, write_folder
from tests.unit.checkpoints.gguf_files import (
    ARRAY,
    BF16,
    BOOL,
    BYTE_LEVEL,
    F16,
    F32,
    FLOAT32,
    INT32,
    PIECES,
    Q8_0,
    STRING,
    UINT32,
    Value,
    gguf_bytes,
    metadata,
    stored,
    write_gguf,
)
from toolkit import checkpoints
from toolkit.checkpoints import LinearScaling, Llama3Scaling, Rope, gguf_file, quants
from toolkit.errors import ToolkitError

TIED_LLAMA = LLAMA | {"tie_word_embeddings": True}
# llama.cpp knows one pattern of windows only.
CONFIGS = [QWEN3, TIED_LLAMA, GEMMA3 | {"sliding_window_pattern": 6}]


def refused(path: Path, *words: str, **options: Any) -> None:
    with pytest.raises(ToolkitError) as caught:
        checkpoints.load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in [path.name, *words]:
        assert word in message


class TestModel:
    @pytest.mark.parametrize("config", CONFIGS, ids=["qwen3", "llama", "gemma3"])
    def test_is_the_folders_model(self, tmp_path: Path, config: dict[str, Any]) -> None:
        folder = checkpoints.load(write_folder(tmp_path / "folder", config))
        file = checkpoints.load(write_gguf(tmp_path / "x.gguf", config, F32))
        assert file.weights_hash == folder.weights_hash
        assert list(file.tensors) == list(folder.tensors)
        for name in ("layers", "heads", "head_dim", "layer_types", "sliding_window", "rope", "attention_scale"):
            assert getattr(file.config, name) == getattr(folder.config, name)
        assert file.config.rms_norm_eps == 1e-6
        assert file.weights_dtype == "bfloat16"

    @pytest.mark.parametrize("kind", [F32, BF16])
    def test_weights_dtype_is_what_is_read_and_hashed(self, tmp_path: Path, kind: int) -> None:
        path = write_gguf(tmp_path / "x.gguf", QWEN3, kind)
        narrow = checkpoints.load(path)
        wide = checkpoints.load(path, weights_dtype="float32")
        half = checkpoints.load(path, weights_dtype="float16")
        assert len({narrow.weights_hash, wide.weights_hash, half.weights_hash}) == 3
        for name in narrow.tensors:
            assert wide.tensors[name].dtype == np.float32
            assert half.tensors[name].dtype == np.float16
            assert np.array_equal(wide.tensors[name].astype(ml_dtypes.bfloat16), narrow.tensors[name])
        assert (wide.weights_dtype, wide.config.dtype) == ("float32", "float32")
        refused(path, "'int8'", weights_dtype="int8")

    def test_float16_storage(self, tmp_path: Path) -> None:
        found = checkpoints.load(write_gguf(tmp_path / "x.gguf", QWEN3, F16), weights_dtype="float32")
        written = np.frombuffer(weights(QWEN3)["model.embed_tokens.weight"][2], ml_dtypes.bfloat16)
        assert np.array_equal(found.tensors["model.embed_tokens.weight"].ravel(), written.astype(np.float16))

    def test_dequantised_in_pieces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = checkpoints.load(write_gguf(tmp_path / "x.gguf", TIED_LLAMA)).weights_hash
        monkeypatch.setattr("toolkit.checkpoints.gguf.CHUNK_ELEMENTS", 48)
        assert checkpoints.load(tmp_path / "x.gguf").weights_hash == whole

    def test_quantised_blocks_run_along_the_rows(self, tmp_path: Path) -> None:
        config = QWEN3 | {"hidden_size": 32, "intermediate_size": 64}
        tensors = stored(config)
        blocks = np.random.default_rng(0).integers(-9, 9, (24, 32)).astype(np.int8)
        raw = b"".join(np.float16(2.0**-row).tobytes() + blocks[row].tobytes() for row in range(24))
        name = "token_embd.weight"
        (tmp_path / "x.gguf").write_bytes(
            gguf_bytes(metadata(config), tensors | {name: (Q8_0, [40, 32], raw + bytes(34 * 16))})
        )
        found = checkpoints.load(tmp_path / "x.gguf", weights_dtype="float32").tensors["model.embed_tokens.weight"]
        assert np.array_equal(found[:24], blocks * 2.0 ** -np.arange(24)[:, None])

    def test_an_output_makes_an_untied_head(self, tmp_path: Path) -> None:
        head = {"lm_head.weight": tensor([40, 16], seed=99)}
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(metadata(LLAMA), stored(LLAMA, weights(LLAMA) | head)))
        file = checkpoints.load(tmp_path / "x.gguf")
        assert not file.config.tie_word_embeddings
        assert file.weights_hash == checkpoints.load(write_folder(tmp_path / "folder", LLAMA)).weights_hash

    def test_float16_for_gemma3(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "x.gguf", GEMMA3)
        refused(path, "float16", "overflow", dtype="float16")
        refused(path, "float16", "overflow", weights_dtype="float16")

    def test_weights_that_are_not_finite(self, tmp_path: Path) -> None:
        tensors = stored(QWEN3)
        kind, shape, raw = tensors["blk.1.ffn_up.weight"]
        tensors["blk.1.ffn_up.weight"] = (kind, shape, raw[:-4] + np.float32(1e38).tobytes())
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(metadata(QWEN3), tensors))
        assert checkpoints.load(tmp_path / "x.gguf").weights_hash
        half = checkpoints.load(tmp_path / "x.gguf", weights_dtype="float16")
        with pytest.raises(ToolkitError, match=r"x\.gguf: tensor 'blk\.1\.ffn_up\.weight'.*not finite in float16"):
            _ = half.weights_hash

    def test_gemma3_scaling_and_local_base(self, tmp_path: Path) -> None:
        path = write_gguf(
            tmp_path / "x.gguf",
            GEMMA3,
            gemma3__rope__scaling__type=(STRING, "linear"),
            gemma3__rope__scaling__factor=(FLOAT32, 8.0),
            gemma3__rope__freq_base_swa=(FLOAT32, 5e3),
            gemma3__final_logit_softcapping=(FLOAT32, 30.0),
        )
        found = checkpoints.load(path).config
        assert found.rope == {"full_attention": Rope(1e6, LinearScaling(8.0)), "sliding_attention": Rope(5e3)}
        assert found.final_logit_softcapping == 30.0

    def test_llama3_scaling_is_recognised_by_its_factors(self, tmp_path: Path) -> None:
        config = TIED_LLAMA | {"hidden_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64}
        frequencies = 5e5 ** (-np.arange(0, 64, 2) / 64)
        factors = []
        for frequency in frequencies:  # as llama.cpp's converter computes them
            wavelength = 2 * np.pi / frequency
            if wavelength < 8192 / 4:
                factors.append(1.0)
            elif wavelength > 8192 / 1:
                factors.append(32.0)
            else:
                smooth = (8192 / wavelength - 1) / (4 - 1)
                factors.append(1 / ((1 - smooth) / 32 + smooth))
        assert 1.0 < factors[16] < 32.0
        pairs = metadata(config) | {"llama.rope.freq_base": (FLOAT32, 5e5)}
        tensors = stored(config) | {"rope_freqs.weight": (F32, [32], np.float32(factors).tobytes())}
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(pairs, tensors))
        found = checkpoints.load(tmp_path / "x.gguf").config
        assert found.rope_of(0) == Rope(5e5, Llama3Scaling(32.0, 1.0, 4.0, 8192))
        factors[3] = 1.5
        tensors["rope_freqs.weight"] = (F32, [32], np.float32(factors).tobytes())
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(pairs, tensors))
        refused(tmp_path / "x.gguf", "rope_freqs.weight", "not those of Llama 3")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"general__architecture": (STRING, "gpt2")}, ["'gpt2'", "unknown", "llama, gemma3, qwen3"]),
            ({"general__architecture": None}, ["None", "unknown"]),
            ({"split__count": (UINT32, 3)}, ["one part of several"]),
            ({"qwen3__block_count": (UINT32, 3)}, ["lacks the tensor 'model.layers.2"]),
            ({"qwen3__block_count": (UINT32, 1)}, ["'blk.1.", "is not one that"]),
            ({"qwen3__block_count": (UINT32, 10**6)}, ["block_count"]),
            ({"qwen3__block_count": (STRING, "2")}, ["block_count", "'2'"]),
            ({"qwen3__block_count": None}, ["block_count", "None"]),
            ({"qwen3__embedding_length": (UINT32, 32)}, ["token_embd.weight", "[40, 16]", "[40, 32]"]),
            ({"qwen3__attention__value_length": (UINT32, 16)}, ["value_length", "the size of a head, 8"]),
            ({"qwen3__rope__dimension_count": (UINT32, 4)}, ["dimension_count"]),
            ({"qwen3__attention__head_count_kv": (ARRAY, UINT32, [2, 2])}, ["head_count_kv", "[2, 2]"]),
            ({"qwen3__vocab_size": (UINT32, 41)}, ["vocab_size", "40 rows"]),
            ({"qwen3__rope__scaling__type": (STRING, "yarn")}, ["'yarn'", "linear"]),
            ({"qwen3__rope__scaling__type": (STRING, "linear")}, ["rope.scaling.factor"]),
            ({"qwen3__expert_count": (UINT32, 8)}, ["expert_count", "not known"]),
            ({"qwen3__attention__layer_norm_rms_epsilon": (FLOAT32, float("nan"))}, ["layer_norm_rms_epsilon"]),
            ({"qwen3__rope__freq_base": (FLOAT32, float("inf"))}, ["rope.freq_base"]),
            ({"tokenizer__ggml__eos_token_id": (UINT32, 40)}, ["eos_token_id", "40"]),
        ],
    )
    def test_refusals(self, tmp_path: Path, changes: dict[str, Value], words: list[str]) -> None:
        refused(write_gguf(tmp_path / "x.gguf", QWEN3, **changes), *words)

    def test_tensors_that_do_not_belong(self, tmp_path: Path) -> None:
        path = tmp_path / "x.gguf"
        extra = (F32, [4], bytes(16))
        for name in ("blk.0.ffn_gate_exps.weight", "v.patch_embd.weight", "blk.00001.attn_q.weight", "attn_q.weight"):
            path.write_bytes(gguf_bytes(metadata(QWEN3), stored(QWEN3) | {name: extra}))
            refused(path, repr(name), "is not one that")
        tensors = stored(QWEN3)
        tensors["blk.0.attn_q_norm.weight"] = extra
        path.write_bytes(gguf_bytes(metadata(QWEN3), tensors))
        refused(path, "'blk.0.attn_q_norm.weight'", "[4]", "[8]")
        del tensors["token_embd.weight"]
        path.write_bytes(gguf_bytes(metadata(QWEN3), tensors))
        refused(path, "token_embd.weight")


class TestHeader:
    def test_version_2_and_alignment(self, tmp_path: Path) -> None:
        pairs = metadata(QWEN3) | {"general.alignment": (UINT32, 64)}
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(pairs, stored(QWEN3), version=2, alignment=64))
        (tmp_path / "y.gguf").write_bytes(gguf_bytes(metadata(QWEN3), stored(QWEN3)))
        one, other = checkpoints.load(tmp_path / "x.gguf"), checkpoints.load(tmp_path / "y.gguf")
        assert one.weights_hash == other.weights_hash

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", ["empty"]),
            (b"GG", ["not a GGUF file"]),
            (b"\x80\x02}q", ["not a GGUF file"]),
            (b"GGUF", ["the version"]),
            (b"GGUF" + struct.pack("<I", 1), ["version 1"]),
            (b"GGUF" + struct.pack(">I", 3), ["big-endian"]),
            (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 1), ["number of tensors"]),
            (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), ["number of metadata pairs"]),
            (gguf_bytes({"general.x": (UINT32, 1)}, {})[:-20], ["general.x"]),
        ],
    )
    def test_broken_files(self, tmp_path: Path, content: bytes, words: list[str]) -> None:
        (tmp_path / "x.gguf").write_bytes(content)
        refused(tmp_path / "x.gguf", *words)

    @pytest.mark.parametrize(
        ("pair", "words"),
        [
            (struct.pack("<Q", 2**40) + b"x", ["metadata name"]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<I", 13), ["'x'", "unknown type 13"]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<IQ", 8, 2**40), ["length of 'x'"]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<IQ", 8, 2) + b"\xff\xfe", ["'x'", "UTF-8"]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 4, 2**40), ["length of 'x'", str(2**40)]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 8, 2**40), ["'x'", str(2**40)]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 9, 1), ["'x'", "unknown type 9"]),
            (struct.pack("<Q", 1) + b"x" + struct.pack("<IB", 7, 2), ["'x'", "truth value of 2"]),
            (struct.pack("<Q", 1) + b"\xff" + struct.pack("<II", 4, 2), ["UTF-8"]),
        ],
    )
    def test_broken_metadata(self, tmp_path: Path, pair: bytes, words: list[str]) -> None:
        (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair + bytes(700))
        tracemalloc.start()
        refused(tmp_path / "x.gguf", *words)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20

    def test_names_twice(self, tmp_path: Path) -> None:
        pair = struct.pack("<Q", 1) + b"x" + struct.pack("<II", 4, 2)
        (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair + pair)
        refused(tmp_path / "x.gguf", "metadata name 'x' is there twice")
        info = struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 8, 0, 0)
        (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + info + info + bytes(99))
        refused(tmp_path / "x.gguf", "tensor 't' is there twice")

    @pytest.mark.parametrize("alignment", [(UINT32, 0), (UINT32, 24), (UINT32, 1 << 20), (STRING, "32")])
    def test_alignment(self, tmp_path: Path, alignment: Value) -> None:
        refused(
            write_gguf(tmp_path / "x.gguf", QWEN3, general__alignment=alignment), "general.alignment", "power of two"
        )

    def test_tensors_within_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "x.gguf"
        one, two = (F32, [3, 8], bytes(96)), (F32, [16], bytes(64))
        tensors = {"one": one, "two": two}
        whole = gguf_bytes({}, tensors)
        path.write_bytes(whole)
        assert gguf_file.open_file(path).tensors["one"].shape == (3, 8)
        for content, words in {
            whole[:-1]: ["truncated", "'two'"],
            whole + bytes(32): ["32 bytes after its last tensor"],
            gguf_bytes({}, tensors, offsets={"two": 64}): ["'two'", "overlaps"],
            gguf_bytes({}, tensors, offsets={"two": 128}): ["'two'", "gap"],
            gguf_bytes({}, tensors, offsets={"one": 2**63}): ["gap"],
            gguf_bytes({}, tensors, offsets={"two": 0}): ["overlaps"],
            gguf_bytes({}, {"one": (F32, [2**40, 2**40], bytes(96))}): ["truncated"],
            gguf_bytes({}, {"one": (F32, [0], b"")}): ["'one'", "cannot hold"],
            gguf_bytes({}, {"one": (Q8_0, [2, 33], bytes(70))}): ["'one'", "Q8_0 cannot hold"],
            gguf_bytes({}, {"one": (99, [32], bytes(96))}): ["unsupported type 99", "Q4_K"],
            gguf_bytes({}, {"one": (F32, [1] * 5, bytes(4))}): ["5 dimensions"],
            gguf_bytes({}, {"one": (F32, [], bytes(4))}): ["0 dimensions"],
        }.items():
            path.write_bytes(content)
            with pytest.raises(ToolkitError) as caught:
                gguf_file.open_file(path)
            for word in [path.name, *words]:
                assert word in str(caught.value)

    @pytest.mark.parametrize("config", CONFIGS, ids=["qwen3", "llama", "gemma3"])
    def test_corruptions(self, tmp_path: Path, config: dict[str, Any]) -> None:
        path = write_gguf(tmp_path / "x.gguf", config, BF16)
        content = path.read_bytes()
        header = len(content) - sum(len(raw) + 31 for _, _, raw in stored(config, kind=BF16).values())
        refusals = 0
        tracemalloc.start()
        for seed in range(120):
            chance = random.Random(seed)
            at = chance.randrange(header) if chance.random() < 0.9 else chance.randrange(len(content))
            size = chance.choice([1, 2, 4, 8])
            replacement = chance.choice([bytes(size), b"\xff" * size, chance.randbytes(size), b"", b"\x00" * 9])
            path.write_bytes(content[:at] + replacement + content[at + size :])
            message = ""
            try:
                found = checkpoints.load(path)
                _ = found.weights_hash, found.tokenizer.encode("a 12"), found.tokenizer.decode(range(5))
            except ToolkitError as error:
                message = str(error)
            if message:
                refusals += 1
                assert "\n" not in message, seed
                assert path.name in message, seed
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20
        assert refusals > 60

    def test_truncation_at_every_length(self, tmp_path: Path) -> None:
        content = write_gguf(tmp_path / "x.gguf", GEMMA3).read_bytes()
        for length in range(0, len(content), 61):
            (tmp_path / "x.gguf").write_bytes(content[:length])
            refused(tmp_path / "x.gguf")


BLOCKS = np.load(Path(__file__).parent / "data" / "gguf_blocks.npz")


@pytest.mark.parametrize("format", [format for format in quants.FORMATS.values() if format.elements > 1])
def test_dequantisation_is_that_of_the_gguf_package_to_the_bit(format: quants.Format) -> None:
    blocks, values = BLOCKS[f"{format.name}_blocks"], BLOCKS[f"{format.name}_values"]
    assert blocks.shape[1] == format.block_bytes
    found = format.dequantise(blocks)
    assert found.dtype == np.float32
    assert found.shape == (len(blocks), format.elements)
    assert found.tobytes() == values.tobytes()


class TestTokenizers:
    def test_sentencepiece_merges_by_score(self, tmp_path: Path) -> None:
        tokenizer = checkpoints.load(write_gguf(tmp_path / "x.gguf", GEMMA3)).tokenizer
        piece = {piece: at for at, piece in enumerate(PIECES)}
        space = piece["\u2581"]
        # "▁t" has the best score, so " the" becomes ▁t + he; "he" comes next and makes ▁the; a run of two spaces is one.
        assert tokenizer.encode(" the") == [1, piece["\u2581the"]]
        assert tokenizer.encode("the") == [1, piece["t"], piece["he"]]
        assert tokenizer.encode("  the") == [1, piece["  "], piece["t"], piece["he"]]
        assert tokenizer.encode("x y") == [1, piece["x"], space, piece["y"]]
        assert tokenizer.encode("A") == [1, piece["<0x41>"]]
        assert tokenizer.encode("\u00e9") == [1, piece["<unk>"]]
        assert tokenizer.encode("<s> the</s>") == [1, piece["\u2581the"], 2]
        assert tokenizer.decode([1, piece["\u2581the"], space, piece["<0x41>"]]) == "<s> the A"
        assert tokenizer.eos_id == 2

    def test_space_prefix(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "x.gguf", GEMMA3, tokenizer__ggml__add_space_prefix=(BOOL, True))
        tokenizer = checkpoints.load(path).tokenizer
        assert tokenizer.encode("the") == [1, PIECES.index("\u2581the")]
        assert tokenizer.decode([PIECES.index("\u2581the")]) == "the"

    def test_bos_by_default(self, tmp_path: Path) -> None:
        assert checkpoints.load(write_gguf(tmp_path / "x.gguf", QWEN3)).tokenizer.bos_id is None
        for name, config, changes, expected in (
            ("said", QWEN3, {"tokenizer__ggml__add_bos_token": (BOOL, True)}, 0),
            ("gpt2", QWEN3, {"tokenizer__ggml__add_bos_token": None}, None),
            ("llama3", QWEN3, {"tokenizer__ggml__add_bos_token": None, "tokenizer__ggml__pre": (STRING, "llama-bpe")}, 0),
            ("spm", GEMMA3, {"tokenizer__ggml__add_bos_token": None}, 1),
            ("gemma", GEMMA3, {"tokenizer__ggml__add_bos_token": (BOOL, False)}, 1),
        ):  # fmt: skip
            assert (
                checkpoints.load(write_gguf(tmp_path / f"{name}.gguf", config, **changes)).tokenizer.bos_id == expected
            )
        refused(write_gguf(tmp_path / "x.gguf", GEMMA3, tokenizer__ggml__bos_token_id=None), "needs a BOS")

    @pytest.mark.parametrize(
        ("pre", "text", "pieces"),
        [
            ("gpt-2", " abc12", ["\u0120abc", "12"]),
            ("smollm", " abc12", ["\u0120abc", "1", "2"]),
            ("qwen2", " abc12", ["\u0120abc", "1", "2"]),
            ("llama-bpe", " abc12", ["\u0120abc", "12"]),
            ("gpt-2", "a'bc", ["a", "'", "bc"]),
            ("gpt-2", "<|end|>a", ["<|end|>", "a"]),
        ],
    )
    def test_byte_level_words(self, tmp_path: Path, pre: str, text: str, pieces: list[str]) -> None:
        path = write_gguf(tmp_path / "x.gguf", QWEN3, tokenizer__ggml__pre=(STRING, pre))
        tokenizer = checkpoints.load(path).tokenizer
        ids = tokenizer.encode(text)
        assert [BYTE_LEVEL[token] for token in ids] == pieces
        assert tokenizer.decode(ids) == text

    def test_stop_tokens_name_their_metadata(self, tmp_path: Path) -> None:
        path = write_gguf(tmp_path / "x.gguf", QWEN3, tokenizer__ggml__eom_token_id=(UINT32, 7))
        assert checkpoints.load(path).stop_sources == {
            0: ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"),
            7: ("tokenizer.ggml.eom_token_id",),
        }

    @pytest.mark.parametrize(
        ("config", "changes", "words"),
        [
            (QWEN3, {"tokenizer__ggml__model": (STRING, "bert")}, ["'bert'", "'gpt2' or 'llama'"]),
            (QWEN3, {"tokenizer__ggml__model": None}, ["model"]),
            (QWEN3, {"tokenizer__ggml__pre": (STRING, "exotic")}, ["'exotic'", "smollm"]),
            (QWEN3, {"tokenizer__ggml__pre": None}, ["pre", "None"]),
            (QWEN3, {"tokenizer__ggml__tokens": None}, ["'tokens' is missing"]),
            (QWEN3, {"tokenizer__ggml__tokens": (ARRAY, STRING, ["a", "b"])}, ["'token_type' has"]),
            (QWEN3, {"tokenizer__ggml__token_type": (ARRAY, INT32, [1])}, ["'token_type' has 1 items"]),
            (QWEN3, {"tokenizer__ggml__token_type": (UINT32, 1)}, ["'token_type'", "list of int"]),
            (QWEN3, {"tokenizer__ggml__merges": (ARRAY, STRING, ["a b c"])}, ["not a pair"]),
            (QWEN3, {"tokenizer__ggml__merges": (ARRAY, STRING, ["a z"])}, ["can be built", "out of vocabulary"]),
            (QWEN3, {"tokenizer__ggml__add_eos_token": (BOOL, True)}, ["add_eos_token"]),
            (QWEN3, {"tokenizer__ggml__add_bos_token": (UINT32, 1)}, ["add_bos_token"]),
            (GEMMA3, {"tokenizer__ggml__tokens": (ARRAY, STRING, ["a"] * len(PIECES))}, ["'a' is there twice"]),
            (GEMMA3, {"tokenizer__ggml__tokens": (ARRAY, STRING, ["x" * 300, *PIECES[1:]])}, ["longer than 256"]),
            (GEMMA3, {"tokenizer__ggml__scores": (ARRAY, FLOAT32, [float("nan")] * len(PIECES))}, ["not finite"]),
            (GEMMA3, {"tokenizer__ggml__scores": None}, ["'scores' is missing"]),
            (GEMMA3, {"tokenizer__ggml__unknown_token_id": (UINT32, 99)}, ["unknown_token_id", "99"]),
        ],
    )
    def test_refusals(
        self, tmp_path: Path, config: dict[str, Any], changes: dict[str, Value], words: list[str]
    ) -> None:
        refused(write_gguf(tmp_path / "x.gguf", config, **changes), *words)


def test_weights_dtype_does_not_apply_to_a_folder(tmp_path: Path) -> None:
    refused(write_folder(tmp_path / "folder"), "--weights-dtype", weights_dtype="bfloat16")
