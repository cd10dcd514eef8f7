"""A BERT comes as a bridge: what takes one works, and the rest refuses it by name.

In a process of its own without the tests' checks of types at run time, which would come before ours.
"""

from __future__ import annotations

import json
import subprocess
import sys

import transformers

SCRIPT = """
import json, sys, warnings
import torch
import aotlens
from aotlens import circuits, evaluate, heads, interop, paths

warnings.simplefilter("ignore")
bridge, tokens = aotlens.load(sys.argv[1], "cpu"), torch.randint(30, (2, 8))
calls = {
    "motif_scores": lambda: heads.motif_scores(bridge, half_length=4),
    "atlas": lambda: heads.atlas(bridge, tokens),
    "attention_patterns": lambda: heads.attention_patterns(bridge, tokens[0]),
    "ablate": lambda: heads.ablate(bridge, tokens, "0.0"),
    "qk_circuit": lambda: circuits.qk_circuit(bridge, "0.0"),
    "ov_circuit": lambda: circuits.ov_circuit(bridge, "0.0"),
    "copying_rate": lambda: circuits.copying_rate(bridge, "0.0"),
    "composition": lambda: circuits.composition(bridge, "k"),
    "paths": lambda: paths.expand(bridge, tokens[0]),
    "term_importance": lambda: paths.term_importance(bridge, tokens),
    "next_token_predictions": lambda: evaluate.next_token_predictions(bridge, tokens[0], 1, 5),
    "masked_predictions": lambda: evaluate.masked_predictions(bridge, tokens[0], 1, 5),
    "to_transformer_lens": lambda: interop.to_transformer_lens(bridge),
}
said = {}
for name, call in calls.items():
    try:
        call()
        said[name] = "ok"
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def test_what_takes_a_bridge_and_what_does_not(tmp_path):
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("motif_scores") == said.pop("atlas") == "ok"
    for name, message in said.items():
        refusal = f"ValueError: {name}: expected a model of aotlens, got a TransformerBridge; what takes a bridge"
        assert message.startswith(refusal), message
