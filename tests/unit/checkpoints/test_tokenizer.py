"""Exactly one BOS where the model needs it, ids within the embedding, and files that agree with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import processors

from tests.unit.checkpoints.folders import BOS, EOS, GEMMA3, LLAMA, QWEN3, VOCAB_SIZE, backend, write_folder, write_json
from toolkit import checkpoints
from toolkit.checkpoints import Tokenizer
from toolkit.errors import ToolkitError

FRANCE = [29, 30, 31, 32, 33]  # the capital of France is
TEXT = "the capital of France is"
NAMES = {"bos_token": BOS, "eos_token": EOS}


def open_tokenizer(folder: Path, config: dict[str, Any], **options: Any) -> Tokenizer:
    return checkpoints.load(write_folder(folder, config, **options)).tokenizer


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(ToolkitError) as caught:
        checkpoints.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


class TestBos:
    @pytest.mark.parametrize("in_template", [True, False])
    def test_gemma3_always_has_exactly_one(self, tmp_path: Path, in_template: bool) -> None:
        tokenizer = open_tokenizer(tmp_path, GEMMA3, bos_in_template=in_template)
        assert tokenizer.bos_id == 0
        assert tokenizer.encode(TEXT) == [0, *FRANCE]
        assert tokenizer.encode(f"{BOS}{TEXT}") == [0, *FRANCE]
        assert tokenizer.encode(BOS) == [0]
        assert tokenizer.encode("") == [0]

    def test_gemma3_without_a_tokenizer_config_uses_the_models_bos(self, tmp_path: Path) -> None:
        write_folder(tmp_path, GEMMA3, bos_in_template=False)
        (tmp_path / "tokenizer_config.json").unlink()
        assert checkpoints.load(tmp_path).tokenizer.encode("a") == [0, 3]

    @pytest.mark.parametrize("text", [f"{BOS}{BOS}a", f"a {BOS}", f"{BOS} a {BOS} b"])
    def test_a_second_one_is_refused(self, tmp_path: Path, text: str) -> None:
        tokenizer = open_tokenizer(tmp_path, GEMMA3)
        with pytest.raises(ToolkitError, match=r"BOS \(id 0\).*hold it 2 times|BOS \(id 0\).*hold it 3 times"):
            tokenizer.encode(text)

    def test_llama_follows_its_post_processor(self, tmp_path: Path) -> None:
        with_bos = open_tokenizer(tmp_path / "with", LLAMA, bos_in_template=True)
        assert with_bos.encode(TEXT) == [0, *FRANCE]
        assert with_bos.encode(f"{BOS}{TEXT}") == [0, *FRANCE]
        without = open_tokenizer(tmp_path / "without", LLAMA)
        assert without.bos_id is None
        assert without.encode(TEXT) == FRANCE
        assert without.encode(f"{BOS}{TEXT}") == [0, *FRANCE]

    def test_add_bos_token_counts_where_there_is_no_post_processor(self, tmp_path: Path) -> None:
        tokenizer = open_tokenizer(tmp_path, LLAMA, tokenizer_config=NAMES | {"add_bos_token": True})
        assert tokenizer.encode(TEXT) == [0, *FRANCE]

    def test_qwen3_has_none(self, tmp_path: Path) -> None:
        settings = {"bos_token": None, "eos_token": EOS, "add_bos_token": False}
        tokenizer = open_tokenizer(tmp_path, QWEN3, tokenizer_config=settings)
        assert tokenizer.bos_id is None
        assert tokenizer.encode(TEXT) == FRANCE

    def test_contradictions(self, tmp_path: Path) -> None:
        write_folder(tmp_path, LLAMA, bos_in_template=True, tokenizer_config=NAMES | {"add_bos_token": False})
        refused(tmp_path, "add_bos_token is false", "adds id 0")
        write_folder(tmp_path, LLAMA, tokenizer_config={"add_bos_token": True})
        refused(tmp_path, "add_bos_token is true", "adds none")
        write_folder(tmp_path, LLAMA, bos_in_template=True, tokenizer_config={"bos_token": EOS})
        refused(tmp_path, "bos_token has the id 1", "adds 0")
        write_folder(tmp_path, GEMMA3, tokenizer_config={"bos_token": EOS})
        refused(tmp_path, "Gemma-3 needs a BOS", "0, 1 and 0")
        write_folder(tmp_path, GEMMA3 | {"bos_token_id": 5})
        refused(tmp_path, "Gemma-3 needs a BOS", "0, 0 and 5")
        write_folder(tmp_path, LLAMA, tokenizer_config=NAMES | {"add_bos_token": "yes"})
        refused(tmp_path, "add_bos_token", "'yes'")

    def test_a_post_processor_that_adds_more_is_refused(self, tmp_path: Path) -> None:
        write_folder(tmp_path, LLAMA)
        for template, words in {
            f"$A {EOS}": ["[] before", "[1] after"],
            f"{BOS} {EOS} $A": ["[0, 1] before"],
        }.items():
            changed = backend()
            changed.post_processor = processors.TemplateProcessing(single=template, special_tokens=[(BOS, 0), (EOS, 1)])
            changed.save(str(tmp_path / "tokenizer.json"))
            refused(tmp_path, "tokenizer.json", *words)
        write_folder(tmp_path, LLAMA, tokenizer_config=NAMES | {"add_eos_token": True})
        refused(tmp_path, "add_eos_token")


class TestCheckedIds:
    def test_given_ids_are_checked_like_a_text(self, tmp_path: Path) -> None:
        tokenizer = open_tokenizer(tmp_path, GEMMA3)
        assert tokenizer.check((0, 30)) == [0, 30]
        for ids, words in {
            (): "no token",
            (30,): "must begin with the model's BOS",
            (30, 0): "must begin with the model's BOS",
            (0, 0): "hold it 2 times",
            (0, VOCAB_SIZE): f"token id {VOCAB_SIZE} .*embeds only {VOCAB_SIZE}",
            (0, -1): "token id -1",
            (0, 1 << 40): "token id 1099511627776",
        }.items():
            with pytest.raises(ToolkitError, match=words):
                tokenizer.check(ids)

    def test_a_prompt_without_any_token(self, tmp_path: Path) -> None:
        with pytest.raises(ToolkitError, match="has no token"):
            open_tokenizer(tmp_path, QWEN3).encode("")

    def test_a_vocabulary_smaller_than_the_tokenizer_is_refused_only_where_it_matters(self, tmp_path: Path) -> None:
        tokenizer = open_tokenizer(tmp_path, QWEN3 | {"vocab_size": 32})
        assert tokenizer.encode("the capital") == [29, 30]
        with pytest.raises(ToolkitError, match=r"token id 32 \('France'\).*embeds only 32"):
            tokenizer.encode(TEXT)

    @pytest.mark.parametrize("text", ["\ud800", 3, None, b"bytes"])
    def test_things_that_are_not_text(self, tmp_path: Path, text: Any) -> None:
        with pytest.raises(ToolkitError, match="cannot be encoded"):
            open_tokenizer(tmp_path, QWEN3).encode(text)


def test_decoding(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(tmp_path, GEMMA3)
    assert tokenizer.decode(FRANCE) == TEXT
    assert tokenizer.decode([0, 32]) == f"{BOS} France"
    assert tokenizer.decode_one(32) == "France"
    assert tokenizer.decode_one(VOCAB_SIZE - 1) == ""
    assert tokenizer.decode([-1, 1 << 40]) == ""


def test_truncation_and_padding_in_the_file_are_switched_off(tmp_path: Path) -> None:
    write_folder(tmp_path)
    changed = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    changed.enable_truncation(2)
    changed.enable_padding(length=9)
    changed.save(str(tmp_path / "tokenizer.json"))
    assert checkpoints.load(tmp_path).tokenizer.encode(TEXT) == FRANCE


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"version": "1.0", "model": {"type": "BPE"}}'])
def test_a_broken_tokenizer_file(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(content)
    refused(tmp_path, "tokenizer.json", "again")


def test_settings_that_do_not_fit_the_tokenizer(tmp_path: Path) -> None:
    write_folder(tmp_path, tokenizer_config={"eos_token": "<|im_end|>"})
    refused(tmp_path, "eos_token", "'<|im_end|>'", "tokenizer.json knows")
    write_folder(tmp_path, tokenizer_config={"eos_token": 3})
    refused(tmp_path, "eos_token", "a token")
    write_folder(tmp_path, tokenizer_config={"eos_token": "\ud800"})
    refused(tmp_path, "eos_token", "not a text")
    write_folder(tmp_path, tokenizer_config={"added_tokens_decoder": {"1": {"content": BOS}}})
    refused(tmp_path, "added token 1", "'<bos>' here", "'<eos>' in tokenizer.json")
    write_folder(tmp_path, tokenizer_config={"added_tokens_decoder": {"99": {"content": "x"}}})
    refused(tmp_path, "added token 99", "None in tokenizer.json")
    write_folder(tmp_path, tokenizer_config={"added_tokens_decoder": {"one": {"content": "x"}}})
    refused(tmp_path, "added_tokens_decoder")
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {"1": {"content": EOS}}})
    assert checkpoints.load(tmp_path).tokenizer.eos_id is None


@pytest.mark.parametrize("in_sequence", [True, False])
def test_a_template_with_an_undefined_token_never_reaches_the_backend(
    tmp_path: Path, in_sequence: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, GEMMA3)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["post_processor"]["special_tokens"] = {}
    if in_sequence:
        content["post_processor"] = {"type": "Sequence", "processors": [content["post_processor"]]}
    write_json(tmp_path / "tokenizer.json", content)
    refused(tmp_path, "tokenizer.json", "does not define")
    assert "panicked" not in capfd.readouterr().err


def test_the_post_processors_of_real_models_are_understood(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA)
    changed = backend()
    template = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    changed.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])  # Llama 3
    changed.save(str(tmp_path / "tokenizer.json"))
    assert checkpoints.load(tmp_path).tokenizer.bos_id == 0
    changed.post_processor = processors.ByteLevel(trim_offsets=False)  # Qwen3
    changed.save(str(tmp_path / "tokenizer.json"))
    assert checkpoints.load(tmp_path).tokenizer.bos_id is None


def test_a_model_type_the_backend_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    write_folder(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["unk_token"] = "absent"
    write_json(tmp_path / "tokenizer.json", content)
    tokenizer = checkpoints.load(tmp_path).tokenizer
    with pytest.raises(ToolkitError, match=r"cannot be encoded.*tokenizer\.json"):
        tokenizer.encode("unknown words")
