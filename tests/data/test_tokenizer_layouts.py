"""Tokenizers in the layouts of published families: ids and texts are those of `transformers` from the same file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers

from aotlens.data import Tokenizer
from aotlens.interop.bridge_out import read_hugging_face
from tests.data.layouts import LAYOUTS, LOSSY, STARTS, TEXT, bert, gemma, phi, sentencepiece
from tests.messages import refused
from tests.small_models import SMALL, maker

TEXTS = [TEXT, "  Two spaces", "the Cat's 日本 e\u0301", "a\tb\n\nc 1234", "", " ", "<s>[CLS]<|endoftext|>"]


def opened(name: str) -> tuple[Tokenizer, transformers.PreTrainedTokenizerFast]:
    text = LAYOUTS[name]().to_str()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = Tokenizer.of(text)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(text))
    return ours, theirs


@pytest.mark.parametrize("name", LAYOUTS)
def test_ids_and_texts_are_those_of_transformers(name: str) -> None:
    ours, theirs = opened(name)
    assert ours.d_vocab == len(theirs)
    start = STARTS.get(name, "<|endoftext|>")
    assert ours.start == start and ours.eot_id == theirs.convert_tokens_to_ids(start)
    again = Tokenizer.from_json(ours.to_json())
    assert again.to_json() == ours.to_json() and again.eot_id == ours.eot_id
    for text in TEXTS:
        ids = theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
        assert ours.encode(text) == again.encode(text) == ours.encode_batch([text])[0] == ids
        decoded = theirs.decode(ids).replace("</w>", " ").rstrip(" " if name == "CLIP" else "")
        assert ours.decode(ids) == decoded
        if not set(ids) & set(theirs.all_special_ids) and name != "BERT" and "[" not in text:
            assert ours.decode_bytes(ids).decode().strip(" ") == decoded.strip(" ")
        special = theirs(text, add_special_tokens=False).input_ids
        assert ours.encode(text, special=True) == special
        assert len(ours.str_tokens(special)) == len(special)
    assert ours.lossy == (name in LOSSY) == ("lossy" in repr(ours))
    assert (ours.decode(ours.encode(TEXT)) == TEXT) == (name not in LOSSY)


def test_labels_show_what_a_token_writes() -> None:
    labels = {
        "Llama 2": [" the", " cat", "<0xC3>", "<0xA9>"],
        "Qwen 2": ["the", " cat", "<0xC3>", "<0xA9>"],
        "BERT": [" the", " cat", "e"],
        "CLIP": ["the ", "c", "a", "t", "<0xC3>", "<0xA9> "],
    }
    for name, expected in labels.items():
        ours, _ = opened(name)
        assert ours.str_tokens(ours.encode("the caté")) == expected
    llama, _ = opened("Llama 2")
    assert llama.decode(llama.encode("é")[-1:]) == "<0xA9>"


def test_lossy_tokenizers_say_so(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(bert().to_str(), encoding="utf-8")
    with pytest.warns(UserWarning, match=r'lossy: it reads "Aa  b.*" as "aa b e — \[UNK\]'):
        assert read_hugging_face(path).lossy


def test_the_start_token_is_what_the_configuration_names(tmp_path: Path) -> None:
    backend = sentencepiece(["<unk>", "<s>", "</s>", "<go>"], True, "<s>")
    saved = {**json.loads(backend.to_str()), "post_processor": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved), encoding="utf-8")
    assert read_hugging_face(tmp_path / "tokenizer.json").start == "<s>"
    for named in ("<go>", {"content": "<go>", "lstrip": False}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": named}), encoding="utf-8")
        read = read_hugging_face(tmp_path / "tokenizer.json")
        assert read.start == Tokenizer.from_json(read.to_json()).start == "<go>" and read.eot_id == 3
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(read.to_json()))
        assert theirs("the").input_ids == [3, *read.encode("the")]


def test_tokens_beyond_the_model_and_gaps_do_not_lose_the_tokenizer() -> None:
    backend = gemma()
    with pytest.warns(UserWarning, match=r"no row for the tokens \['\[multimodal\]'\], which are left out"):
        ours = Tokenizer.of(backend, d_vocab=330)
    assert ours.d_vocab == 330 and ours.encode(TEXT) == backend.encode(TEXT, add_special_tokens=False).ids
    saved = json.loads(phi().to_str())
    for token in saved["added_tokens"]:
        if token["content"].startswith("\t"):
            token["id"] += 4
    last = saved["added_tokens"].pop()
    saved["model"]["vocab"] = {token: index + (index > 200) for token, index in saved["model"]["vocab"].items()}
    ours = Tokenizer.of(json.dumps(saved), d_vocab=400)
    assert ours.d_vocab == 400 and ours.str_tokens([201, 309, 399]) == [f"<|unused {i}|>" for i in (201, 309, 399)]
    assert ours.encode("a\t\tb")[1] == 313 and last["content"] == "<|im_end|>"
    assert Tokenizer.from_json(ours.to_json()).to_json() == ours.to_json()


@pytest.mark.parametrize("name", ["Llama 2", "Qwen 2", "BERT"])
@pytest.mark.parametrize("kind", ["tokenizers", "transformers"])
@pytest.mark.filterwarnings("ignore:the tokenizer is lossy")
def test_a_model_takes_other_libraries_tokenizers(name: str, kind: str) -> None:
    backend = LAYOUTS[name]()
    backend.enable_padding(length=10**3)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend) if kind == "transformers" else backend
    model = maker({**SMALL, "d_vocab": 400, "n_ctx": 64}, seed=0)()
    model.tokenizer = theirs
    expected = opened(name)[0]
    assert isinstance(model.tokenizer, Tokenizer) and model.tokenizer.d_vocab == 400
    assert model.to_tokens("the cat").tolist() == [[expected.eot_id, *expected.encode("the cat")]]
    assert backend.padding is not None, "the caller's own is left as it is"
    with refused("a tokenizer of", "int"):
        model.tokenizer = 3  # type: ignore[assignment]
    model.tokenizer = None
    assert model.tokenizer is None


def test_special_tokens_are_read_when_asked_and_the_start_is_counted_once() -> None:
    ours, theirs = opened("Mistral")
    model = maker({**SMALL, "d_vocab": ours.d_vocab, "n_ctx": 64}, seed=0)(tokenizer=ours)
    text = "<s>[INST] the cat</s>"
    assert model.to_tokens(text, special=True).tolist() == [theirs(text, add_special_tokens=False).input_ids]
    assert model.to_tokens(text[3:], special=True)[0, 0] == 1
    assert model.to_tokens(text, special=True, prepend_bos=False)[0].tolist()[0] == 1
    plain = model.to_tokens(text)[0].tolist()
    assert plain[0] == 1 and not set(plain[1:]) & {1, 2, 3} and model.to_string(plain[1:]) == text
    ids, mask = model.to_tokens([text, "the"], special=True, return_mask=True)
    assert ids.shape == mask.shape and ids[1, 0] == 1 and int(mask[1].sum()) == 1 + len(ours.encode("the"))


def test_generated_text_keeps_its_first_space() -> None:
    ours, _ = opened("Llama 2")
    model = maker({**SMALL, "d_vocab": ours.d_vocab, "n_ctx": 64, "bias": True}, seed=0)(tokenizer=ours)
    cat = ours.encode("the cat")[-1]
    with torch.no_grad():
        model.unembed.b_U[cat] += 1000
    from aotlens.models import generate

    assert generate(model, "the", 2, temperature=0.0) == "the cat cat"


def test_a_panic_of_the_library_is_an_error_of_ours() -> None:
    saved = json.loads(LAYOUTS["T5"]().to_str())
    saved["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}
    with refused("a tokenizer's JSON", "index out of bounds"):
        Tokenizer.of(json.dumps(saved))
