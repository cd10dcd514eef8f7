"""The form of addresses: a page declares its fields once, and everything else comes from that.

    @dataclass(frozen=True, kw_only=True)
    class HeadsState:
        checkpoint: str | None = address.checkpoint()
        head: tuple[int, int] | None = address.head()
        view: View = address.choice(get_args(View), "attention")

    ADDRESS = Address("heads", HeadsState)

`ADDRESS.read(search)` gives the state and, for each value that cannot be, a sentence that says what was taken instead;
`ADDRESS.format(state)` gives `/heads?checkpoint=…`, with defaults left out; `Links.to("heads", head=(1, 0))` is how
another page links to it; and `ADDRESS.browser()` is what the browser needs to write the same form
(shell/static/address.js).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlencode

from app.core.address_checks import Unfit
from app.core.address_fields import (
    Field,
    against,
    cell,
    checkpoint,
    choice,
    corpus,
    flag,
    head,
    heads,
    motif,
    pair,
    pairs,
    position,
    prompt,
    real,
    reals,
    text,
    texts,
    token,
    whole,
    wholes,
)
from app.core.address_values import quoted
from app.core.errors import RequestError

if TYPE_CHECKING:
    from app.core import Core


__all__ = [
    "Address",
    "against",
    "cell",
    "checkpoint",
    "choice",
    "corpus",
    "flag",
    "head",
    "heads",
    "motif",
    "pair",
    "pairs",
    "parse_query",
    "position",
    "prompt",
    "real",
    "reals",
    "text",
    "texts",
    "token",
    "whole",
    "wholes",
]

State = TypeVar("State")
Query: TypeAlias = dict[str, str]
#: What an address of an older form is in the present one.
Older: TypeAlias = Callable[[Query], Query]


class Address(Generic[State]):
    """The address of the page `name`: `/name?key=value&…`, for the fields of the dataclass `state`."""

    def __init__(self, name: str, state: type[State], older: Older | None = None) -> None:
        """`older(query)` gives the query of an address of an older form in the present one."""
        self.name, self.path, self._state, self._older = name, f"/{name}", state, older
        declared = dataclasses.fields(state)  # type: ignore[arg-type]
        self._fields: dict[str, Field] = {each.name: each.metadata["address"] for each in declared}
        self._first = state()
        keys = [self._key(name) for name in self._fields]
        if len(set(keys)) < len(keys):
            raise ValueError(f"The address of {name} has a key twice: {keys}.")

    def read(self, search: str | None, core: Core | None = None) -> tuple[State, list[str]]:
        """Return the state, and a sentence for each value that cannot be: what was expected, what came, what was taken.

        Addresses are typed, cut and pasted, so this never fails. With a `core`, what is named must be there:
        checkpoints, heads, tokens, texts.
        """
        query = parse_query(search)
        query = query if self._older is None else self._older(query)
        state, sentences = self._first, []
        for name, field in self._fields.items():
            raw = query.get(self._key(name))
            if raw is None or (raw == "" and not field.blank):
                continue
            expected, first = "", getattr(self._first, name)
            try:
                value = field.read(raw)
            except Unfit as unfit:
                value, expected = unfit.taken[0] if unfit.taken else first, unfit.expected
            try:
                if core is not None and field.check is not None and (value != first or not expected):
                    field.check(core, state, value)
                if core is not None and field.meant is not None and not expected:
                    value = field.meant(core, value)
            except Unfit as unfit:
                value, expected = unfit.taken[0] if unfit.taken else first, unfit.expected
            if expected:
                sentences.append(self.sentence(name, raw, expected, value))
            state = dataclasses.replace(state, **{name: value})  # type: ignore[type-var]
        return state, sentences

    def parse(self, search: str | None) -> State:
        """Return the state alone."""
        return self.read(search)[0]

    def format(self, state: State) -> str:
        """Return the address of a state; defaults are left out."""
        pairs = {self._key(name): self._written(name, state) for name in self._fields}
        # A lone surrogate can't be part of an address; the page says so where the text is.
        query = urlencode({key: value for key, value in pairs.items() if value is not None}, errors="replace")
        return f"{self.path}?{query}" if query else self.path

    def to(self, **values: Any) -> str:
        """Return the address of a state given by its fields. Raises TypeError for a field that there isn't."""
        return self.format(self._state(**values))

    def names(self) -> list[str]:
        """Return the fields, in order."""
        return list(self._fields)

    def state(self, data: Mapping[str, Any]) -> State:
        """Return the state that JSON says by fields' names; what it does not name is as at first. Raises RequestError
        for a value that the address could not say."""
        values = {}
        for name, field in self._fields.items():
            if data.get(name) is not None:
                try:
                    values[name] = field.of_json(data[name])
                except Unfit as unfit:
                    raise RequestError(f"Expected {unfit.expected}.") from None
        return dataclasses.replace(self._first, **values)  # type: ignore[type-var]

    def json(self, state: State) -> dict[str, Any]:
        """Return a state as the JSON that `state` reads."""
        return dataclasses.asdict(state)  # type: ignore[call-overload, no-any-return]

    def unsaid(self, value: Any, *, strict: bool = False) -> str | None:
        """Return the first of the fields' names under which JSON has, at any depth, what this address could not say;
        `strict`, under which a value of another kind is nothing else of that name (`Field.says`), nor empty if the
        field has a value at first."""
        parts = value if isinstance(value, list) else ()
        if isinstance(value, dict):
            for name, part in value.items():
                if name not in self._fields:
                    continue
                field = self._fields[name]
                fits = part is None or field.says(part, strict=strict)
                if strict and (part is None or (part == "" and not field.blank)):
                    fits = getattr(self._first, name) in (None, "", ())
                if not fits:
                    return str(name)
            parts = list(value.values())
        return next((name for each in parts if (name := self.unsaid(each, strict=strict)) is not None), None)

    def browser(self) -> dict[str, Any]:
        """Describe the fields, as the browser needs them to write this form."""
        return {
            name: {
                "key": self._key(name),
                "default": field.written(getattr(self._first, name)),
                "blank": field.blank,
                **field.browser,
            }
            for name, field in self._fields.items()
        }

    def written(self, name: str, value: Any) -> str:
        """Return a field's value as it stands in an address."""
        return self._fields[name].written(value) or ""

    def _key(self, name: str) -> str:
        return self._fields[name].key or name

    def _written(self, name: str, state: State) -> str | None:
        field = self._fields[name]
        value = field.written(getattr(state, name))
        return None if value == field.written(getattr(self._first, name)) else value

    def sentence(self, name: str, raw: str, expected: str, taken: Any) -> str:
        """Write the sentence about a field's value that cannot be, `raw` as it stands in the address."""
        value = self._fields[name].written(taken)
        instead = "It was left out." if value is None else f"{quoted(value)} was taken instead."
        return f"{self._key(name)}={quoted(raw)}: expected {expected}. {instead}"


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────


def parse_query(search: str | None) -> Query:
    """Return the last value of each key of `?key=value&…`."""
    query = (search or "").removeprefix("?")
    return {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True, max_num_fields=None).items()}
