"""aotlens: a workbench for the interpretability of attention-only transformers.

    import aotlens

    for info in aotlens.list_checkpoints():
        print(info.name, info.metrics)
    model = aotlens.load("novels-2l-mhsa")
    aotlens.heads.motif_scores(model)

Packages, each with its own `help`, for instance `help(aotlens.heads)`:

    checkpoints   trained models on disk: list, load, save, verify, import and export
    circuits      what each head looks for (QK) and writes (OV), read from the weights; spectra, copying, composition
    conventions   orientation, shapes and units, stated once
    data          text as tokens, images, prompts of regression: corpora by name, tokenizers, token files, batches
    denoise       attention as denoising: subspaces, Bayes predictors, associative memory
    distill       heads as feed-forward networks, and feed-forward networks as attention
    dynamics      analyses of every snapshot of a training run, and what each circuit took off the loss
    evaluate      losses, what a model predicts next, repeated text, bigram baselines, zero-shot evaluation
    heads         attention patterns, motifs, ablations, what heads attend to
    interop       models from and to TransformerLens and Hugging Face
    models        the attention-only transformer and its configuration
    notebook      the maps of all heads in a notebook, without a server
    patching      activations of one prompt in the run of another; what gradients estimate of it
    paths         a prompt's logits, and its attention scores, as sums over paths through heads
    plots         figures of results; `aotlens.plot(result)` chooses the one that fits
    report        what is known of a checkpoint, in one file that opens without a server
    results       what every result has in common: a line that says what it is, and a table
    statistics    rank correlations, fitted lines, intervals and McNemar's test, from scipy
    sweeps        grids of runs, on this machine or a Dask cluster
    train         training from recipes, on one device or several
    trigrams      skip-trigrams of heads, compared with text
    views         analyses declared once: call, figure, table and sentences, for pages, commands and scripts
    widget        the maps of all heads as packed arrays, and the module that draws them in app, notebook and report

A package is imported when it is first used (PEP 562), so that ``import aotlens`` takes no time; the first
that reads a model imports PyTorch and TransformerLens, which takes some seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlens import (
        checkpoints,
        circuits,
        conventions,
        data,
        denoise,
        distill,
        dynamics,
        evaluate,
        heads,
        interop,
        models,
        notebook,
        patching,
        paths,
        plots,
        report,
        results,
        statistics,
        sweeps,
        train,
        trigrams,
        views,
        widget,
    )
    from aotlens.checkpoints import list_checkpoints, load, load_run
    from aotlens.models import AttentionOnlyTransformer, ModelConfig
    from aotlens.notebook import show
    from aotlens.plots import plot

__version__ = "0.1.0"

#: The modules that `aotlens` names.
_MODULES = """
    checkpoints circuits conventions data denoise distill dynamics evaluate heads interop models notebook patching
    paths plots report results statistics sweeps train trigrams views widget
""".split()  # noqa: SIM905
#: The module of each name that is not a module itself.
_HOME = {
    "AttentionOnlyTransformer": "aotlens.models",
    "ModelConfig": "aotlens.models",
    "list_checkpoints": "aotlens.checkpoints",
    "load": "aotlens.checkpoints",
    "load_run": "aotlens.checkpoints",
    "plot": "aotlens.plots",
    "show": "aotlens.notebook",
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in __all__:
        return import_module(f"aotlens.{name}")
    raise AttributeError(f"module 'aotlens' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
