"""Reasons for exponents of time unlike the law's, by analysis and axis; a test holds them against stored points."""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {
    ("circuits", "vocabulary"): (
        "an entry takes 12.5 ns at 1,024 tokens and 2.8 ns at 65,536. What each row costs besides its product "
        "(candidates computed again in float64, embedding and unembedding behind their norms) is linear in V and slow, "
        "and up to 4,096 tokens whole rows are searched. The end of the line is the steeper one."
    ),
    ("path_top", "heads"): (
        "the bounds multiply the matrices of pairs of heads in batches, which are faster the more heads there are; and "
        "a node's operations are counted as if every head were below it."
    ),
    ("composition", "width"): (
        "twice the width takes 1.4 to 1.9 times up to 512 and 2.1 to 2.5 times from there, probably because the "
        "factors of all heads of two layers, in float64, leave the processor's cache."
    ),
    ("atlas", "width"): (
        "patterns and motifs, which do not depend on the width, are most of the time up to 512, and the last doubling "
        "takes 2.8 times, probably since its products no longer fit the cache."
    ),
    ("atlas", "tokens"): (
        "the motifs of a pattern's entries are not products: they go through memory once a motif, and take many times "
        "the 200 operations an entry that the law counts. From 512 to 1,024 tokens the time grows 4.8 times, as n² "
        "does."
    ),
    ("distillation", "tokens"): (
        "the law counts what a token costs and leaves out the patterns that make the heads' outputs, n² a window: up "
        "to 512 tokens the time grows in proportion and slower, and the last doubling takes 3.0 times."
    ),
}
