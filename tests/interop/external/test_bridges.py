"""A BERT comes as a bridge: what takes one works, and every other public function refuses it by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

pytestmark = pytest.mark.long

#: Public methods that take a model for their own use.
NOT_ASKED = {
    "ModelConfig.of_model": "a configuration that remembers whose it is",
    "ActivationCache": "what a model's run_with_cache makes",
    "Record.distillation_of": "reads the card alone",
    "RecipeRun.loss": "of the model that the run trains",
    "RecipeRun.losses": "of the model that the run trains",
    "RecipeRun.train": "makes its model",
}
#: They read no weights of a model of ours.
NO_WEIGHTS = {
    **NOT_ASKED,
    "head_summary": "reads the tokenizer alone",
    "count_parameters": "shapes are enough",
    "from_transformer_lens": "takes a bridge",
    "tokens_like": "reads the tokenizer alone",
    "save_checkpoint": "checks them as they are stored, in an error of its own",
}
_REFUSAL = r"ValueError: [\w. ]+: expected a model of aotlens, got a TransformerBridge;"
#: They refuse what is no model of theirs in words of their own: a bridge around a ViT is one for the first two.
OWN_WORDS = {
    "image_maps": r"ValueError: image maps: expected a model of images",
    "semantic_consistency": r"ValueError: semantic consistency: expected a model of images",
    "from_transformer_lens": r"ValueError: (this bridge is outside the family|from_transformer_lens: expected)",
    "require_ours": r"ValueError: None: expected a model of aotlens, got a",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What every public function with a parameter for a model says, by what it is given for one."""
    bert, texts = (tmp_path_factory.mktemp(name) for name in ("bert", "texts"))
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
    )
    transformers.BertForMaskedLM(config).save_pretrained(bert)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "rat", "sat", "on", "mat"]
    (bert / "vocab.txt").write_text("\n".join(words + [f"w{i}" for i in range(30 - len(words))]))
    for name in "abc":
        (texts / f"{name}.txt").write_text(f"the cat sat on the mat {name} the rat sat on the cat\n" * 40)
    command = [sys.executable, "-m", "tests.interop.external.bridge_calls", str(bert), str(texts)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    answers: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_what_takes_a_bridge_works(said: dict[str, dict[str, str]]) -> None:
    assert said["works"] == dict.fromkeys(said["works"], "ok")
    assert len(said["works"]) == 18


def test_everything_else_refuses_a_bridge_by_name(said: dict[str, dict[str, str]]) -> None:
    """Whatever else it is given: what the model is comes first."""
    assert {"save_checkpoint", "evaluate_zero_shot", "HeadSwitches", "without", "subspaces"} <= said["bridge"].keys()
    assert len(said["bridge"]) > 50
    wrong = {
        name: message
        for name, message in said["bridge"].items()
        if name not in NOT_ASKED and not re.match(OWN_WORDS.get(name, _REFUSAL), message)
    }
    assert not wrong


@pytest.mark.parametrize("kind", ["nan", "meta"])
def test_weights_that_are_no_numbers_are_refused_by_name(said: dict[str, dict[str, str]], kind: str) -> None:
    """Whatever else it is given: no analysis reads them."""
    words = {"nan": r"W_V of this model holds numbers that are not finite", "meta": r"is on the meta device"}[kind]
    refusal = re.compile(rf"ValueError: [\w. ]+: .*{words}")
    assert not {n: message for n, message in said[kind].items() if n not in NO_WEIGHTS and not refusal.match(message)}


def test_a_name_in_a_models_place_is_refused(said: dict[str, dict[str, str]]) -> None:
    said_so = re.compile(r"ValueError: [\w. ]+: expected .*, got (a )?str")
    wrong = {n: message for n, message in said["name"].items() if n not in NOT_ASKED and not said_so.match(message)}
    assert not wrong
