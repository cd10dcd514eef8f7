"""Orientation, shapes and units: stated here once, followed everywhere.

**Orientation.** The papers write tokens as columns; PyTorch and TransformerLens write them as rows. The code
is row-major throughout:

    object              here                                              in the papers
    residual stream     x [pos, d_model]                                  X ∈ R^{d×n}, so x = Xᵀ
    attention pattern   pattern [query, key]                              see φ below
    head                W_Q, W_K, W_V [d_model, d_head], W_O [d_head, d_model]      the transposes of these
    head's output       pattern @ x @ W_V @ W_O                           W_O W_V X Aᵀ = (A ⊗ W_O W_V) X
    QK circuit          W_QK = W_Q @ W_K.T                                W_Qᵀ W_K
      full              W_E @ W_QK @ W_E.T [destination, source]          W_Eᵀ W_Qᵀ W_K W_E
    OV circuit          W_OV = W_V @ W_O                                  (W_O W_V)ᵀ
      full              W_E @ W_OV @ W_U [source, out]                    (W_U W_O W_V W_E)ᵀ
    Kronecker operator  Kronecker(A, W)(x) = A @ x @ W                    (A ⊗ Wᵀ) X, as (P ⊗ Q) X = Q X Pᵀ

Stacked weights have TransformerLens's shapes: W_Q [n_layers, n_heads, d_model, d_head], and so on.

**By paper.** *structures* applies softmax to the rows of Qᵀ K and multiplies by Aᵀ: its A is our pattern.
*aot* (Eq. 4 and 5), *nonlinearity* and *in-context denoising* apply φ to the columns of [key, query] matrices
and multiply by them: their φ(…) is our pattern's transpose. aot's U_k, W_k^Q, W_k^K and W_k^V are d × p
already, our [d_model, d_head], and its U_k U_kᵀ Z φ(…) has W_O = U_kᵀ here. in-context denoising's W_KQ =
W_Kᵀ W_Q is [key, query]: our W_QK is its transpose; its W_PV is our W_OV transposed.

**φ, over keys, after masking.** `aotlens.models.PHIS` has each: its function of the scores, or a fixed pattern whose
top-left block serves shorter sequences, and whether the rows of its pattern sum to 1.

**Scale.** Scores are multiplied by `attn_scale`: 1/√d_head by default for both kinds of attention, as in the
code that the papers build on, or 1.0, which is aot's Eq. (4) as printed. A QK circuit, in whatever basis,
carries the scale that its model applies: an entry of a full QK circuit is an attention score, an entry of a
full OV circuit a logit.

**Positions.** `aotlens.models.positions.POSITIONS` has each kind. Rotary ones turn queries and keys: R_p takes pair f
of a head's coordinates, a row (u, v), to (u cos θ_f p − v sin θ_f p, u sin θ_f p + v cos θ_f p). As R_i R_jᵀ is
R_{i−j}, a score depends on the distance δ = i − j from destination back to source. The QK circuit is a family over it,

    score(δ) = x_i W_Q R_δ W_Kᵀ x_jᵀ · scale = Σ_f (a_f cos θ_f δ + b_f sin θ_f δ) + c,

a bilinear form of rank ≤ d_head at each δ. With q = (u, v) and k = (x, y) in pair f, a_f = ux + vy and b_f = uy − vx
(times the scale); c is of the coordinates that are not rotated. Pair f is coordinates (f, f + dim/2) or (2f, 2f + 1).
Dynamic scaling makes θ depend on the length too, and circuits take that of a whole context. Without a distance, a QK
circuit is the mean over the distances of a whole context, n_ctx − δ pairs each, and says so; on a prompt each row has
its own. ALiBi adds −m_h δ, which is a term beside the circuit of tokens.

**Grouped keys.** K heads share W_K and W_V; the model shows those of each head, and so do the hooks. The OV circuits of
a group differ by W_O alone.

**One set of weights for every head.** MSSA uses one matrix for query, key and value; the model shows it as
W_Q = W_K = W_V = U_k beside W_O (η U_kᵀ when tied), so an analysis never asks which kind of attention it
reads.

**Norms.** Weight-only circuits fold the norm's gain and bias into the neighbouring maps and centre what
writes to the stream; of an RMS norm they fold the gain, and centre nothing. The scale that remains, a division by
the stream's centred root mean square, depends on the input: a token's row is divided by its own, which is exact in
layer 0 where only the token is in the stream; a prompt's rows by the scale that they had; every other side by 1.
Results that rest on a scale which is not the model's own are labelled relative.

**Counting.** Layers, heads, positions and token ids count from 0. Position 0 holds the start token.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, SupportsFloat, TypeAlias, TypeVar, runtime_checkable

IGNORED: Final = -100
"""A target token that does not count; `torch.nn.functional.cross_entropy`'s mark."""

#: (layer, head), from 0.
Head: TypeAlias = tuple[int, int]
#: A head as an argument: (1, 0) or [1, 0], whole numbers of any type, or "1.0", as results and pages print it
#: (`as_head`). Two numbers are one head also where several are taken; one head in a list is [(1, 0)] or ["1.0"].
HeadLike: TypeAlias = Any
#: `progress(done, total)`, which long work calls as it goes: how much is done and how much there is in all, in the unit
#: that the function names. `total` is an upper bound where the end is not known before, as for text that is encoded
#: while it is read. A callback that raises ends the work.
Progress: TypeAlias = Callable[[int, int], None]
#: The form of a head's name.
HEAD_NAME: Final = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)

#: The replacements of an ablated head's output, in words, by the library's name (`aotlens.heads.ablation`).
ABLATIONS: Final[dict[str, str]] = {
    "zero": "zero",
    "mean": "mean output",
    "position_mean": "mean output at each position",
    "uniform": "uniform attention",
    "fixed_pattern": "mean pattern",
    "resample": "output on another text",
}
#: Those that are taken from other sequences: what a head does there replaces its output.
FROM_OTHERS: Final = ("mean", "position_mean", "fixed_pattern", "resample")

#: The names of dimensions in annotations and docstrings. `n_…` is how many of a thing there are.
DIMENSIONS: Final[dict[str, str]] = {
    "batch": "sequences processed together",
    "pos": "positions of a sequence",
    "query": "positions that attend: the rows of a pattern, the destinations of a circuit",
    "key": "positions attended to: the columns of a pattern, the sources of a circuit",
    "layer": "attention layers, from the input",
    "head": "heads of a layer",
    "d_model": "the residual stream",
    "d_head": "a head's queries, keys and values; the subspace of an MSSA head",
    "d_mlp": "hidden units of a baseline's feed-forward network",
    "d_vocab": "tokens of the vocabulary",
}

#: The units of numbers, by the word used in names and docstrings.
UNITS: Final[dict[str, str]] = {
    "nats": "losses (per token), entropies, attention scores before φ: natural logarithms, never bits",
    "logits": "scores of tokens before softmax, nats up to a constant for each position",
    "probability": "between 0 and 1; patterns of softmax, predictions; never per cent",
    "tokens": "amounts of text, training budgets",
    "seconds": "durations",
    "bytes": "sizes of memory and of files; MB is 10⁶ bytes",
}

#: Draws, prompts or steps that may be asked for: more would never end.
MOST_DRAWS: Final = 1_000_000
#: Choices that an error message lists.
_MOST_LISTED: Final = 30


@runtime_checkable
class HasShape(Protocol):
    """The interface of arrays and tensors that `require_shape` reads."""

    @property
    def shape(self) -> Sequence[int]: ...


Number = TypeVar("Number", bound=SupportsFloat)
Choice = TypeVar("Choice", bound=Hashable)
Shaped = TypeVar("Shaped", bound=HasShape)


@runtime_checkable
class HasHeads(Protocol):
    """The interface of whatever has a number of heads: a model's configuration, an expansion, a reader."""

    @property
    def n_layers(self) -> int: ...
    @property
    def n_heads(self) -> int: ...


def as_head(head: HeadLike, sizes: HasHeads | tuple[int, int] | None = None) -> Head:
    """Return the head that `(1, 0)`, `[1, 0]` or `"1.0"` names. Every function that takes a head takes these.

    Raises `ValueError` for anything else, and for a head that the model, of `sizes` (layers, heads), does not have.
    """
    match = HEAD_NAME.fullmatch(head) if isinstance(head, str) else None
    try:
        layer, number = map(int, match.groups()) if match else map(_whole, () if isinstance(head, str) else head)
    except (TypeError, ValueError):
        raise ValueError(
            f'head {head!r}: expected a layer and a head, whole numbers from 0, as (1, 0) or "1.0".'
        ) from None
    if sizes is not None:
        n_layers, n_heads = sizes if isinstance(sizes, tuple) else (sizes.n_layers, sizes.n_heads)
        if not (0 <= layer < n_layers and 0 <= number < n_heads):
            raise ValueError(
                f"head {layer}.{number}: this model has layers 0 to {n_layers - 1} and heads 0 to {n_heads - 1}."
            )
    return layer, number


def head_name(head: Sequence[int]) -> str:
    """Return the name of a head: `"1.0"`."""
    return f"{head[0]}.{head[1]}"


def as_heads(heads: HeadLike | Iterable[HeadLike], sizes: HasHeads, *, at_least: int = 1) -> tuple[Head, ...]:
    """Return one head, or several, each once and in the order given: `(1, 0)` and `[1, 0]` are head 1.0, not two of
    something; `[(1, 0)]` and `["1.0"]` are lists of one.

    Raises `ValueError` as `as_head` does, and for fewer than `at_least`.
    """
    if isinstance(heads, str) or not isinstance(heads, Iterable):
        return (as_head(heads, sizes),)
    several = list(heads)
    if several and not any(isinstance(part, Iterable) and getattr(part, "ndim", 1) for part in several):
        return (as_head(several, sizes),)
    if len(several) < at_least:
        raise ValueError(f'heads: expected at least {at_least}, as (1, 0) or "1.0", got {len(several)}.')
    return tuple(dict.fromkeys(as_head(head, sizes) for head in several))


def slices(n: int, size: int, *, progress: Progress | None = None) -> Iterator[slice]:
    """Yield consecutive slices of at most `size` of n rows; `progress(done, n)` is called when each is done."""
    for start in range(0, n, size):
        yield (rows := slice(start, min(start + size, n)))
        if progress is not None:
            progress(rows.stop, n)


def all_heads(sizes: HasHeads) -> tuple[Head, ...]:
    """Return every head of a model, in order of layer and head."""
    return tuple((layer, head) for layer in range(sizes.n_layers) for head in range(sizes.n_heads))


def require_whole(name: str, value: Any, least: int = 0, most: int = MOST_DRAWS) -> int:
    """Return a whole number from `least` to `most`, of any type that Python counts with.

    Raises `ValueError` for any other value.
    """
    try:
        number = _whole(value)
    except (TypeError, ValueError):
        number = None
    if number is None or not least <= number <= most:
        raise ValueError(f"{name}={_short(value)}: expected a whole number from {least:,} to {most:,}.")
    return number


def require_between(
    name: str,
    value: Number,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> Number:
    """Return a finite number from `least` to `most`; `above` and `below` are bounds that are themselves excluded.

    Raises `ValueError` for any other number, NaN and infinity included, and for a value that is not a number.
    """
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError: PyTorch's, for several numbers
        number = math.nan
    tests = (
        (least, "at least", operator.ge),
        (above, "above", operator.gt),
        (most, "at most", operator.le),
        (below, "below", operator.lt),
    )
    bounds = [(words, bound, holds) for bound, words, holds in tests if bound is not None]
    if not math.isfinite(number) or not all(holds(number, bound) for _, bound, holds in bounds):
        limits = " and ".join(f"{words} {bound:,}" for words, bound, _ in bounds)
        if least is not None and most is not None:
            limits = f"from {least:,} to {most:,}"
        raise ValueError(f"{name}={_short(value)}: expected a finite number{limits and ', '}{limits}.")
    return value


def require_choice(name: str, value: Any, choices: Iterable[Choice]) -> Choice:
    """Return `value` if it is one of the choices, such as the keys of a dictionary.

    Raises `ValueError` otherwise, with the choices, or some of them if they are many, and the names nearest to a text.
    """
    known = {choice: choice for choice in choices}
    with suppress(TypeError):  # a value without a hash
        if value in known:
            return known[value]
    listed = ", ".join(map(repr, list(known)[:_MOST_LISTED])) or "none, since there are no choices"
    if len(known) > _MOST_LISTED:
        listed = f"{len(known):,}, such as {listed}"
    texts = [choice for choice in known if isinstance(choice, str)]
    near = difflib.get_close_matches(value, texts, 3, 0.5) if isinstance(value, str) else []
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(f"{name}={_short(value)}: expected one of {listed}.{hint}")


def require_shape(name: str, value: Shaped, shape: Sequence[int | str]) -> Shaped:
    """Return an array or tensor of this shape, in which a text such as `"pos"` names a dimension of any size.

    A name that occurs twice stands for one size. Raises `ValueError` for any other shape.
    """
    sizes: dict[str, int] = {}
    actual = list(value.shape)
    fits = len(actual) == len(shape) and all(
        size == (sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted)
        for size, wanted in zip(actual, shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name}: expected [{', '.join(map(str, shape))}], got {actual}.")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__


def require_seed(seed: Any) -> int:
    """Return a seed of random numbers. Raises `ValueError` for an invalid one."""
    return require_whole("seed", seed, 0, 2**64 - 1)


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


#: Unicode categories with nothing to see: control, format, private, unassigned, surrogates, other separators.
INVISIBLE = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp", "Zs"}


_GLYPHS = {" ": "·", "\n": "⏎", "\t": "→"}


def several(number: Any, noun: str) -> str:
    """Say how many there are: `1 layer`, `2 layers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str], most: int = 6, separator: str = ", ") -> str:
    """Write the first names, and how many more there are: `a, b and 3 more`."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return separator.join(every[:most]) + more


def minus(value: SupportsFloat, form: str) -> str:
    """Write a number in a format, with a minus as long as a plus: `−0.400`."""
    return f"{value:{form}}".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """Write a number with its sign, a minus as long as a plus: `+1.840`, `−0.400`; rounded to nothing `+0.000`."""
    return minus(round(value, digits) + 0.0, f"+.{digits}f")


def percent(share: float) -> str:
    """Write a probability for people: `12.3%`, `0.12%`, `1.2e-06`."""
    if share >= 0.01:
        return f"{share:.1%}"
    return f"{share:.2g}" if share < 1e-5 else f"{100 * share:.2g}%"


def glyphs(token: str) -> str:
    """Write a token with every character visible, for people: `" the"` is `"·the"`, a newline ⏎, a tab →, the empty
    token ∅.

    Other invisible characters are their codes, since few fonts have the pictures that Unicode gives control characters.
    It isn't reversible (a real middle dot looks the same); `describe` is the unambiguous form.
    """
    return "".join(map(_glyph, token)) or "∅"


def _glyph(char: str) -> str:
    if char in _GLYPHS:
        return _GLYPHS[char]
    category = unicodedata.category(char)
    if category in INVISIBLE:
        return f"⟨{ord(char):04X}⟩"
    return "◌" + char if category.startswith("M") else char


def describe(token: str) -> str:
    """Write a token as a quoted literal in which nothing is ambiguous: `" the"`, `"\\n"`, `"\\u200b"`."""
    body = "".join(char if _plain(char) else _escape(char) for char in token)
    return f'"{body}"'


def _plain(char: str) -> bool:
    if char in '"\\':
        return False
    return char == " " or unicodedata.category(char) not in INVISIBLE


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char) or (
        f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
    )
