"""The parameters of a family on a page: the field of the address and the control of each kind (aotlens.views.kinds).

A field's component holds its value. A parameter without a control of its own is held in a store, which clicks set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views import Limit, Parameter
from aotlens.views.kinds import (
    ChoiceParameter,
    CorpusParameter,
    FlagParameter,
    HeadParameter,
    ImagesParameter,
    NumberParameter,
    NumbersParameter,
    OptionParameter,
    OwnImagesParameter,
    RowParameter,
    TextParameter,
)
from app.core import address, address_checks
from app.core.address_checks import Check
from app.shell.choices import one_of, some_of
from app.shell.controls import labelled, segments, slider, switch_of
from app.shell.panel import QUIET
from app.shell.props import components

#: The largest number of characters of a head, a row or an option in an address.
_LONGEST = 400
#: Characters from which a text is kept by the server, and an address has its key (`address.prompt`).
_KEPT = 600
#: Options up to which a choice in a panel's header shows all of them side by side.
_SIDE_BY_SIDE = 3
#: Options from which on a choice is searched.
_SEARCHED = 20
#: Steps up to which a number has a slider.
_STEPS = 1000


def address_field(parameter: Parameter, key: str | None, check: Check | None) -> Any:
    """Return a parameter as a field of the page's address."""
    named: dict[str, Any] = {"key": key, "check": check}
    if isinstance(parameter, ChoiceParameter):
        return address.choice(tuple(parameter.options), parameter.first, key=key)
    if isinstance(parameter, NumberParameter) and parameter.whole:
        least, most = int(parameter.least), int(parameter.most)
        return address.whole(parameter.first, least=least, most=most, **named)
    if isinstance(parameter, NumberParameter):
        return address.real(parameter.first, least=parameter.least, most=parameter.most, key=key)
    if isinstance(parameter, NumbersParameter):
        return address.reals(most=parameter.most, **named)
    if isinstance(parameter, FlagParameter):
        return address.flag(parameter.word, key=key)
    if isinstance(parameter, HeadParameter) and parameter.several:
        return address.pairs(most=parameter.several, expected="layers and heads, as 1.0,1.3", **named)
    if isinstance(parameter, HeadParameter) and not is_typed(parameter):
        return address.pair(expected="a layer and a head, as 1.3", **named)
    if isinstance(parameter, TextParameter) and parameter.most > _KEPT:
        return address.prompt(parameter.first)
    if isinstance(parameter, RowParameter) and parameter.several:
        return address.wholes(most=parameter.several, **named)
    if isinstance(parameter, OptionParameter) and parameter.several:
        return address.texts(most=parameter.several, longest=_LONGEST, **named)
    if isinstance(parameter, RowParameter):
        return address.whole(**named)
    if isinstance(parameter, CorpusParameter):
        return address.corpus()
    if isinstance(parameter, ImagesParameter):
        return address.text(check=address_checks.images)
    if isinstance(parameter, OwnImagesParameter):
        return address.texts(most=parameter.most, longest=22, check=address_checks.own_images)
    most = parameter.most if isinstance(parameter, TextParameter) else _LONGEST
    first = None if isinstance(parameter, OptionParameter) else parameter.written(parameter.first)
    named["write"] = lambda value: value if isinstance(value, str) else parameter.written(value)
    blank = bool(parameter.blank) and first is not None
    return address.text(first, most=most, blank=blank, renamed=parameter.renamed, **named)


def is_typed(parameter: Parameter) -> bool:
    """Return whether a user types the value: a text, or a head that may be none and is not listed."""
    if not isinstance(parameter, HeadParameter):
        return isinstance(parameter, TextParameter)
    return parameter.of == "head" and bool(parameter.blank) and not parameter.listed and not parameter.several


def is_held(parameter: Parameter) -> bool:
    """Return whether a store holds the value, which only clicks set."""
    if isinstance(parameter, HeadParameter):
        return not is_typed(parameter) and not parameter.listed
    return isinstance(parameter, NumbersParameter | OwnImagesParameter)


def is_picked_head(parameter: Parameter) -> bool:
    """Return whether a form has buttons of heads for it."""
    return is_held(parameter) and isinstance(parameter, HeadParameter) and parameter.of == "head"


def head_buttons(id: str, parameter: HeadParameter, value: Any) -> html.Div:
    """Lay out a form's choice of a head, or of several ones to ablate: buttons, which
    static/head_buttons.js draws, and the store that holds it."""
    store = dcc.Store(id=id, data=list(map(list, value or ())) if parameter.several else list(value or parameter.first))
    if not parameter.several:
        picker = _buttons(id, "pick-heads", "Heads")
        return html.Div([store, labelled("Head (layer.head)", picker)])
    switches = html.Div(_buttons(id, "switch-heads", "Heads to ablate"))
    name = html.Span(parameter.label.partition(",")[0], id=f"{id}-label", className="field-label field-label-xs")
    summary = html.Summary(html.Span(id=f"{id}-line"), **{"aria-labelledby": f"{id}-label {id}-line"})
    return html.Div([name, store, html.Details([summary, switches], className="heads-off popover")])


def _buttons(id: str, class_name: str, label: str) -> html.Div:
    named = {"aria-label": label, "data-store": id}
    return html.Div(id=f"{id}-heads", className=class_name, role="group", **named, **QUIET)


def property_of(parameter: Parameter) -> str:
    """Return the property of the component that holds the value."""
    if is_held(parameter):
        return "data"
    return "checked" if isinstance(parameter, FlagParameter) else "value"


def kind_of(parameter: Parameter, *, small: bool = False) -> str:
    """Name how the browser reads a control (static/view_page.js): "most" means no number at the upper end of a slider,
    "log" a power of ten, "number" none for an empty box, "row" a number by its text, "first" none for the first
    option, "several" none for the options of the default, "corpus" none for a text that is being pasted, "text" a text
    as it is, "head" and "heads" a head and several by layer and number."""
    if isinstance(parameter, NumberParameter):
        if small or _has_box(parameter):
            return "number"
        return "log" if parameter.log else "most" if parameter.first is None else ""
    if isinstance(parameter, RowParameter):
        return "row"
    if isinstance(parameter, CorpusParameter):
        return "corpus"
    if is_typed(parameter):
        return "text"
    if isinstance(parameter, HeadParameter) and (parameter.listed or parameter.several):
        return "heads" if parameter.several else "head"
    if isinstance(parameter, OptionParameter):
        return "several" if parameter.several else "first"
    return ""


def _has_box(parameter: NumberParameter) -> bool:
    """Return whether a number is typed: if it may be empty, or has more values than a slider has pixels."""
    if parameter.log:
        return False
    optional = parameter.first is None and bool(parameter.blank)
    return optional or (parameter.most - parameter.least) / parameter.step > _STEPS


def power_of(value: float | None) -> float | None:
    """Return the position of a slider of powers of ten for a number: its logarithm."""
    return None if value is None else round(math.log10(value), 4)


def control(
    id: str,
    parameter: Parameter,
    value: Any,
    *,
    small: bool = False,
    picked: bool = False,
    wide: bool = False,
    live: bool = False,
) -> Any:
    """Lay out the control of a parameter: `small`, in a panel's header; `wide`, in a strip across the page; `picked`,
    if clicks set it, too; `live`, if a slider sends each value that it passes.

    Text that clicks set is told by Enter or when it is left: where it waits for more typing (Mantine's `debounce`), two
    clicks meanwhile can leave the first one's.
    """
    label = parameter.label
    named: dict[str, Any] = {"aria-label": label} if small else {"label": label}
    if is_held(parameter):
        return dcc.Store(id=id, data=list(value) if isinstance(value, tuple) else value)
    if isinstance(parameter, ChoiceParameter):
        if small and len(parameter.options) <= _SIDE_BY_SIDE:
            return switch_of(id, label, value, parameter.options)
        if wide and len(parameter.options) <= _SIDE_BY_SIDE:
            return segments(id, label, value, parameter.options, size="xs")
        data = [{"value": option, "label": words} for option, words in parameter.options.items()]
        box = dmc.Select(
            id=id, data=data, value=value, allowDeselect=False, size="xs", w=220 if small else None, **named
        )
        return labelled(label, box, size="xs") if small else box
    if isinstance(parameter, NumberParameter):
        if small or _has_box(parameter):
            number = dmc.NumberInput(
                id=id, value="" if value is None else value, min=parameter.least, max=parameter.most,
                step=parameter.step, startValue=parameter.step if parameter.step > 1 else 0,
                allowDecimal=not parameter.whole, allowNegative=parameter.least < 0, placeholder=parameter.blank,
                debounce=300, clampBehavior="blur",
                size="xs", w=76 if small else None, **named,
            )  # fmt: skip
            return labelled(label, number, size="xs") if small else number
        if parameter.log:
            least, most = power_of(parameter.least), power_of(parameter.most)
            power = most if value is None else power_of(value)
            return slider(id, label, power, least, most, parameter.step, says="tenToThe")
        shown = parameter.most if value is None else value
        mode = "drag" if live else "mouseup"
        return slider(id, label, shown, parameter.least, parameter.most, parameter.step, updatemode=mode)
    if isinstance(parameter, FlagParameter):
        return dmc.Switch(id=id, label=label, checked=bool(value), size="xs")
    if isinstance(parameter, RowParameter) and parameter.searched:
        words = f"{parameter.blank}; type to choose"
        searched = some_of(id, label, words, parameter.several) if parameter.several else one_of(id, label, words)
        searched.value = kept_value(value)
        return searched
    if isinstance(parameter, HeadParameter) and parameter.listed:
        head = parameter.written(parameter.first if value is None else value) or None
        heads = dmc.Select(
            id=id, data=[] if head is None else [head], value=head, placeholder=parameter.blank, searchable=True,
            clearable=bool(parameter.blank), allowDeselect=bool(parameter.blank), size="xs", w=112 if small else None,
            **named,
        )  # fmt: skip
        return heads
    if isinstance(parameter, OptionParameter | RowParameter) and parameter.several:
        return dmc.MultiSelect(
            id=id, data=[], value=kept_value(value), maxValues=parameter.several, placeholder=parameter.blank,
            hidePickedOptions=True, size="xs", **named,
        )  # fmt: skip
    if isinstance(parameter, OptionParameter | RowParameter):
        return dmc.Select(
            id=id, data=[], value=kept_value(value), clearable=isinstance(parameter, RowParameter),
            placeholder=parameter.blank, searchable=getattr(parameter, "searched", False), size="xs",
            w=130 if small else None, **named,
        )  # fmt: skip
    lines = parameter.lines if isinstance(parameter, TextParameter) else 1
    settings: dict[str, Any] = {"placeholder": parameter.blank, "size": "xs", "debounce": True if picked else 500}
    if lines == 1 and isinstance(parameter, TextParameter):  # what is pasted is cut: the server refuses longer ones
        settings["attributes"] = {"input": {"maxLength": parameter.most}}
    if small:
        return labelled(label, dmc.TextInput(id=id, value=value, w=150, **named, **settings), size="xs")
    if lines == 1:
        return dmc.TextInput(id=id, value=value, **named, **settings)
    most = max(lines, 4 if wide else 12)
    return dmc.Textarea(id=id, value=value, autosize=True, minRows=lines, maxRows=most, **named, **settings)


def kept_value(value: Any) -> str | list[str] | None:
    """Return a value as Mantine's choices have it."""
    if isinstance(value, list | tuple):
        return list(map(str, value))
    return None if value is None else str(value)


def limited(parameter: Parameter, limit: Limit) -> dict[str, Any]:
    """Return the properties of a control that a limit sets; nothing for a store, and for what is searched."""
    if is_held(parameter) or (isinstance(parameter, RowParameter) and parameter.searched):
        return {}
    set_to: dict[str, Any] = {}
    if kind_of(parameter) in ("log", "several"):
        set_to["data-rest"] = power_of(limit.rest) if kind_of(parameter) == "log" else kept_value(limit.rest)
    if limit.options is not None:
        set_to["data"] = [{"value": str(value), "label": words} for value, words in limit.options.items()]
    if limit.options is not None and isinstance(parameter, OptionParameter):
        set_to["searchable"] = len(limit.options) >= _SEARCHED
    if limit.most is not None:
        least = getattr(parameter, "least", 0)
        set_to["max"] = max(limit.most, least + 1)  # Mantine's slider divides by its length
    if limit.shape is not None and isinstance(parameter, HeadParameter) and parameter.listed:
        sizes = limit.shape
        heads = [(layer, head) for layer in range(sizes.n_layers) for head in range(sizes.n_heads)]
        set_to["data"] = list(map(parameter.written, heads))
    if limit.options is None and limit.shape is None:
        set_to["disabled"] = limit.off
    return set_to


def with_limits(tree: Any, id: str, properties: Mapping[str, Any]) -> None:
    """Set properties of the component `id` inside a control."""
    for component in components(tree):
        if component.id == id:
            for name, value in properties.items():
                setattr(component, name, value)
