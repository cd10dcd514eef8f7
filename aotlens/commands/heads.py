"""``aotlens motifs``, ``head-scores``, ``ablate``, ``generate``, ``compare``, ``universality``: what heads do, what a
model loses without them, and which heads of several models are similar."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aotlens.commands import options
from aotlens.commands.shared import (
    Context,
    Parts,
    TokenBar,
    command,
    documents_to_read,
    prompt,
    several,
    table,
)
from aotlens.conventions import head_name

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.heads import Universality
    from aotlens.models import AttentionOnlyTransformer

#: Windows of --corpus from which `generate` takes means and resampling.
_WINDOWS = 32

How = Annotated[
    str,
    options.word(
        "zero, mean, position_mean (the mean at each position), uniform (uniform attention), fixed_pattern (the mean "
        "pattern) or resample (another sequence's output).",
        "HOW",
    ),
]
RandomSeed = Annotated[int, options.whole("Of the random tokens.", 0, options.MOST_NUMBER)]


@command("motifs", "device")
def motifs_command(
    context: Context,
    checkpoint: options.Checkpoint,
    motif: Annotated[
        list[str], options.word("Only this motif, as previous_token or induction; repeatable.", "NAME")
    ] = [],
    half_length: Annotated[int, options.whole("Random tokens before they are repeated.")] = 50,
    sequences: Annotated[int, options.whole("How many such sequences.")] = 16,
    start: Annotated[
        str, options.word("The start token's id, or none; default: the checkpoint's own.", "ID|none")
    ] = "own",
    seed: RandomSeed = 0,
) -> Parts:
    """Score every head for every motif on repeated random tokens: its mean attention to the motif's keys.

    Scores run from 0 to 1 for a softmax; the last row is chance, what uniform attention over the keys that a query sees
    would score. A head's label is the motif that exceeds chance most, of those that reach 0.4.
    """
    from aotlens.heads import motif_scores

    model = context.load(checkpoint)
    scores = motif_scores(
        model, motifs=motif or None, n_sequences=sequences, half_length=half_length, start=_start(start), seed=seed
    )
    context.write(scores.to_frame())
    yield f"Mean attention on {scores.about}."
    measured = [name for name in scores.motifs if name not in scores.reasons]
    lines = [("head", *map(_words, measured), "label")]
    for layer, labels in enumerate(scores.labels()):
        for head, label in enumerate(labels):
            lines.append((f"{layer}.{head}", *(f"{scores[name][layer, head]:.3f}" for name in measured), _words(label)))
    assert scores.uniform is not None
    chance = (f"{scores.uniform[scores.motifs.index(name)].mean():.3f}" for name in measured)
    lines.append(("uniform", *chance, "what uniform attention scores"))
    yield "\n".join([table(lines), *_not_measured(scores.reasons)])


def _start(text: str) -> int | Literal["own"] | None:
    if text in ("own", "none"):
        return "own" if text == "own" else None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"--start {text}: expected a token id or none.")
    return int(text)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _not_measured(reasons: Mapping[str, str]) -> list[str]:
    return [f"{_words(name)}: not measured, {reason}." for name, reason in reasons.items()]


@command("head-scores")
def head_scores_command(
    context: Context,
    checkpoint: options.Checkpoint,
    corpus: Annotated[
        str | None, options.word("Text for the scores that read one: dir:PATH, stdlib, hf:….", "SPEC")
    ] = None,
    sequences: Annotated[int, options.whole("Windows of it, spread over it.", 2)] = 32,
    score: Annotated[list[str], options.word("Only this score, as anti_induction; repeatable.", "NAME")] = [],
    pairs: Annotated[
        Path | None, options.word("Pairs of prompts, an object of JSON in each line (patching.md).", "FILE")
    ] = None,
    seed: RandomSeed = 0,
) -> Parts:
    """Score every head for what it does with what it attends to: a row per head, with chance in brackets.

    Of text that the checkpoint was trained on, only the documents that were held out are read. Below the table stand
    the heads that reach a score's threshold, and the scores that could not be measured, with the reason.
    """
    from aotlens.checkpoints import shared_held_out_windows
    from aotlens.data import PromptPairs
    from aotlens.heads import head_scores

    model = context.model(checkpoint)
    windows, documents = (None, None) if corpus is None else shared_held_out_windows([model], corpus, sequences)
    prompts = None if pairs is None else PromptPairs.from_jsonl(model, pairs)
    with TokenBar("scores") as bar:
        result = head_scores(model, windows, score or None, pairs=prompts, clusters=documents, seed=seed, progress=bar)
    context.write(result.to_frame())
    all_heads = _heads_of(model)
    rows = [("head", *map(_words, result.measured))]
    for head in all_heads:
        places = [(result.scores.index(name), *head) for name in result.measured]
        rows.append((head_name(head), *(f"{result.values[at]:.3f} ({result.chance[at]:.3f})" for at in places)))
    sentences = [f"{head_name(head)}: {sentence}" for head in all_heads for sentence in result.describe_head(head)]
    yield "\n".join([table(rows), *sentences, *_not_measured(result.reasons)])


def _heads_of(model: AttentionOnlyTransformer) -> list[tuple[int, int]]:
    return list(itertools.product(range(model.cfg.n_layers), range(model.cfg.n_heads)))


@command("ablate")
def ablate_command(
    context: Context,
    checkpoint: options.Checkpoint,
    head: Annotated[
        list[str], options.heads("Without this head; repeatable: without all of them. Default: each alone.")
    ] = [],
    text: Annotated[str | None, options.word("A prompt to measure on.", "TEXT")] = None,
    ids: options.Ids = None,
    corpus: Annotated[
        str | None, options.word("Text to measure on; with --text, what means and resampling are taken from.", "SPEC")
    ] = None,
    how: How = "zero",
    sequences: Annotated[int, options.whole("Windows of the corpus, spread over it.")] = 64,
    document: options.Documents = [],
    all_documents: options.AllDocuments = False,
    seed: Annotated[int, options.whole("Of resampling.", 0, options.MOST_NUMBER)] = 0,
) -> Parts:
    """Measure the next-token loss with and without a head: the change in nats, and its 95% interval over documents.

    Without --head, every head is left out alone. Windows leave themselves out of the means that stand in for a head,
    unless --text is measured against the means of --corpus. Windows of one document depend on each other; of fewer than
    three documents there is no interval, and the change is of these texts.
    """
    import pandas as pd

    from aotlens.data import Encoding, open_corpus, windows_with_documents
    from aotlens.heads import ablate

    if text is None and ids is None and corpus is None:
        raise ValueError("expected something to measure on: --text TEXT, --ids IDS or --corpus SPEC.")
    source = None if corpus is None else open_corpus(corpus)
    model = context.model(checkpoint)
    tokens = prompt(model, text, ids)
    windows, clusters, which = None, None, "the prompt"
    if source is not None:
        documents, read = documents_to_read(model, source, str(corpus), document, all_documents)
        width = model.cfg.n_ctx if tokens is None else tokens.shape[1]
        encoding = Encoding.of(model.tokenizer)
        windows, clusters = windows_with_documents(source, documents or source.names(), encoding, sequences, width)
        which = f"{several(len(windows), 'window')} of {windows.shape[1]} tokens of {read}"
        which = which if tokens is None else f"the prompt, against {which}"
    inputs, reference, clusters = (windows, None, clusters) if tokens is None else (tokens, windows, None)
    assert inputs is not None
    results = {
        " + ".join(names): ablate(model, inputs, names, how, reference=reference, clusters=clusters, seed=seed)
        for names in ([head] if head else [[head_name(one)] for one in _heads_of(model)])
    }
    frame = pd.concat([result.to_frame().assign(head=name) for name, result in results.items()])
    context.write(frame[["head", *frame.columns.drop("head")]])
    clean = next(iter(results.values())).clean_mean
    yield f"Next-token loss of the full model {clean:.4f} nats, on {which}; ablated by {how}."
    rows = [
        {"without": name, "loss": result.ablated_mean, "change": result.change}
        | dict(zip(("95% from", "to"), result.interval(), strict=True))
        for name, result in results.items()
    ]
    yield pd.DataFrame(rows)


@command("generate", "csv", "force")
def generate_command(
    context: Context,
    checkpoint: options.Checkpoint,
    text: Annotated[str | None, options.word("The text to continue; <|mask|> in it is filled.", "TEXT")] = None,
    ids: options.Ids = None,
    tokens: Annotated[int | None, options.whole("New tokens at most; 50 by default.", 1, options.MOST_TOKENS)] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Divides the logits; 0 takes the likeliest. Default: 1; 0 to fill masks."),
    ] = None,
    top_k: Annotated[int | None, options.whole("Draw among the K likeliest tokens.", metavar="K")] = None,
    seed: Annotated[int, options.whole("Of the draws; both continuations have the same.", 0, options.MOST_NUMBER)] = 0,
    stop: Annotated[str | None, options.word("End after this token, as ' the' or '.'.", "TOKEN")] = None,
    without: Annotated[str | None, options.word("Also without these heads, all at once, as 1.0,1.3.", "L.H,…")] = None,
    how: Annotated[str, options.word("Replace head output with this, as in `aotlens ablate`.", "HOW")] = "zero",
    corpus: Annotated[str | None, options.word("Text from which means and resampling are taken.", "SPEC")] = None,
) -> Parts:
    """Continue a text token by token, and next to it the same without some heads.

    A model that sees both sides continues nothing: it fills the masks of the text, from left to right.
    """
    from aotlens.conventions import as_heads
    from aotlens.heads import HeadSwitches
    from aotlens.models import fill, generate

    model = context.model(checkpoint)
    if model.sees_later_keys and (tokens is not None or stop is not None):
        raise ValueError(
            f"{checkpoint} sees both sides of a token, so nothing comes after its text: it fills <|mask|>, and takes "
            "no --tokens and no --stop."
        )
    tokens_given = prompt(model, text, ids)
    if tokens_given is None:
        raise ValueError("expected something to continue: --text TEXT or --ids IDS.")
    start = tokens_given if text is None or model.tokenizer is None else text
    n_new = 0 if model.sees_later_keys else 50 if tokens is None else tokens

    def continued() -> str:
        options: dict[str, Any] = {"top_k": top_k, "seed": seed}
        if model.sees_later_keys:
            output = fill(model, start, temperature=0.0 if temperature is None else temperature, **options)
        else:
            warmth = 1.0 if temperature is None else temperature
            output = generate(model, start, n_new, temperature=warmth, stop_token=stop, **options)
        return _as_text(model, output)

    if without is None:
        yield continued()
        return
    ablated = as_heads(without.split(","), model.cfg)
    reference = None if corpus is None else _windows(model, corpus, tokens_given.shape[1], n_new, how)
    switches = HeadSwitches(model, how, reference=reference, heads=ablated)
    names = ", ".join(map(head_name, ablated))
    for title, off in (("Full model", ()), (f"Without {names} ({how})", ablated)):
        with switches.off(off):
            yield f"{title}:\n{continued()}"


def _as_text(model: AttentionOnlyTransformer, output: str | Tensor) -> str:
    """A text as it is, and ids as text, or as `[12 7 7 3]` if the model has no tokenizer."""
    if isinstance(output, str):
        return output
    ids = output.flatten().tolist()
    return f"[{' '.join(map(str, ids))}]" if model.tokenizer is None else str(model.to_string(ids))


def _windows(model: AttentionOnlyTransformer, corpus: str, n_pos: int, n_new: int, how: str) -> Tensor:
    """Windows as long as the prompt, or where positions are compared as long as it may become."""
    from aotlens.data import Encoding, open_corpus, spread_windows
    from aotlens.heads.replacement import reference_length

    source = open_corpus(corpus)
    names, _ = documents_to_read(model, source, corpus)
    encoding = Encoding.of(model.tokenizer, causal=not model.sees_later_keys)
    return spread_windows(source, names or source.names(), encoding, _WINDOWS, reference_length(how, n_pos, n_new))


@command("compare")
def compare_command(
    context: Context,
    left: Annotated[str, typer.Argument(metavar="LEFT", help="A checkpoint.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="Another one with the same tokens.")],
    corpus: Annotated[str | None, options.word("Text on which patterns and losses are compared too.", "SPEC")] = None,
    sequences: Annotated[int, options.whole("Windows of it, spread over it.")] = 8,
) -> Parts:
    """Pair the heads of two checkpoints by what they do to tokens, and count what each model's heads are.

    Cosines of the OV and QK circuits between tokens, and with --corpus of the patterns on the same windows; the pairs
    have the largest sum. The margin is by how much a pair beats the left head's best other partner.
    """
    from aotlens.checkpoints import shared_held_out_windows
    from aotlens.heads import match_heads

    models = [context.model(name) for name in (left, right)]
    windows, documents = (None, None) if corpus is None else shared_held_out_windows(models, corpus, sequences)
    matched = match_heads(models[0], models[1], windows)
    context.write(matched.to_frame())
    summaries = [_summary(model, windows, documents) for model in models]
    yield table([("", left, right), *((name, *(each[name] for each in summaries)) for name in summaries[0])])
    yield matched.to_frame()


def _summary(model: AttentionOnlyTransformer, windows: Any, documents: Any) -> dict[str, str]:
    """What a model's heads are, by the name of each line."""
    from aotlens.evaluate import validation_loss
    from aotlens.heads import head_labels, motif_scores, subspaces

    cfg = model.cfg
    lines = {"attention": cfg.attention.upper() + ("" if cfg.attn_only else " and MLPs")}
    lines["heads"] = f"{cfg.n_layers} × {cfg.n_heads}"
    if windows is not None and not model.sees_later_keys:
        lines["loss, nats"] = f"{validation_loss(model, windows.to(model.device)):.3f}"
    names = head_labels(motif_scores(model), motif_scores(model, windows, clusters=documents)).names
    labels = Counter(label for row in names for label in row)
    lines["labels"] = ", ".join(f"{n} {_words(label)}" for label, n in labels.most_common())
    spans = subspaces(model, n_random=100)
    if spans.bases.shape[1] > 1:
        of_random, of_weights = spans.layer_ratios
        lines["overlap of subspaces ÷ random subspaces"] = f"{of_random:.2f}"
        lines["overlap of subspaces ÷ random weights behind the norms"] = f"{of_weights:.2f}"
    return lines


@command("universality")
def universality_command(
    context: Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME ...", help="Checkpoints with the same tokens.")],
    corpus: Annotated[str, options.word("Text on which patterns and effects are compared: dir:PATH, stdlib.", "SPEC")],
    sequences: Annotated[int, options.whole("Windows of it, spread over it.", 2)] = 32,
    tokens: Annotated[int, options.whole("Tokens of each window.", 8, 4096)] = 64,
    match: Annotated[str, options.word("Evidence that groups of heads are matched on.", "NAME")] = "pattern",
    test: Annotated[str, options.word("Evidence that they are tested on.", "NAME")] = "ov",
    kind: Annotated[
        list[str], options.word("The kind of a checkpoint, as seed-0=decay; of each, or none.", "NAME=KIND")
    ] = [],
    seed: Annotated[int, options.whole("Of the permutations.", 0, options.MOST_NUMBER)] = 0,
) -> Parts:
    """Match the heads of several checkpoints on one evidence and test the matches on another.

    Evidence is one of ov, qk, pattern, content, written, effect. A line per test, with the mean of the tested evidence
    over matched heads next to that of heads permuted within their layers; whether heads are alike beyond how they
    attend by distance; a line per test and layer, with an interval over models; then a line per group of heads that are
    matched with each other, with the models that have it, and ± the standard error over documents of what comes from
    text. With models of two kinds, how much each kind's heads recur.
    """
    from aotlens.checkpoints import shared_held_out_windows
    from aotlens.heads import universality

    models = {Path(name).name: context.model(name) for name in names}
    if len(models) < len(names):
        raise ValueError(f"expected checkpoints of different names, got {', '.join(names)}.")
    for text in kind:
        if "=" not in text:
            raise ValueError(f"--kind {text}: expected NAME=KIND, with a checkpoint's name.")
    kinds = {name: label for name, _, label in (text.rpartition("=") for text in kind)} or None
    windows = shared_held_out_windows(list(models.values()), corpus, sequences, tokens)
    result = universality(
        models, windows.ids, grouped_by=(match, test), kinds=kinds, clusters=windows.documents, seed=seed
    )
    context.write(result.to_frame())
    yield from _universal(result, match, test)


def _universal(result: Universality, match: str, test: str) -> Parts:
    yield result.headline
    yield result.tests_frame()
    if result.beyond_distance:
        yield f"{result.beyond_distance}."
    yield result.layers_frame()
    if result.layer_trend:
        yield result.layer_trend
    rows = []
    for group in result.groups:
        members = {name: head_name(head) for name, head in group.heads}
        similar = (group.matched, group.matched_text_se), (group.tested, group.tested_text_se)
        values = (f"{value:.2f}" + (f" ± {error:.2f}" if error == error else "") for value, error in similar)
        rows.append((str(len(members)), *(members.get(name, "") for name in result.models), *values, f"{group.q:.2g}"))
    yield table([("in", *result.models, match, test, "q"), *rows])
    repeated = [kind for kind in dict.fromkeys(result.kinds) if result.kinds.count(kind) > 1]
    for first, second in itertools.combinations(repeated, 2):
        yield result.compare_kinds(first, second).headline
