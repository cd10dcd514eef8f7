"""A browser without a browser: what pages lay out, and what the server's answers make of it, callback by callback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from app.shell import requests as forms
from app.shell.app import App
from app.shell.props import components
from app.shell.requests import Place

URL = "/_dash-update-component"
HEADERS = {"Host": "localhost"}


class SessionByHand:
    """The values of every place of every page at once, as a person's browser would hold them.

    What scripts put into stores is taken from the examples that pages declare, and what a panel has seen from the store
    that it follows.
    """

    def __init__(self, app: App) -> None:
        self.app, self.client = app, app.server.test_client()
        self.client.get("/", headers=HEADERS)  # Dash completes its callbacks at the first request
        self.callbacks = {output: one for output, one in app.callback_map.items() if "callback" in one}
        layouts = [page.content(app.core, app.services[page.name], page.address.parse(None)) for page in app.pages]
        there = {one.id: one for one in components([app.layout, *layouts])}
        self.values: dict[Place, Any] = {}
        for callback in self.callbacks.values():
            for entry in (*callback["inputs"], *callback["state"]):
                id, prop = entry["id"], entry["property"]
                self.values[id, prop] = getattr(there[id], prop, None)
        for store, example in app.asked._declared.items():
            if self.values.get((store, "data"), 0) is None:
                self.values[store, "data"] = json.loads(json.dumps(example, default=min))
        self.values["theme", "data"] = "light"

    def body(self, output: str) -> dict[str, Any]:
        """The request that asks for a callback's outputs."""
        callback = self.callbacks[output]
        places = [{"id": id, "property": prop} for id, prop in forms._places(output)]
        entries = {
            kind: [{**place, "value": self._value(place["id"], place["property"])} for place in _bare(callback[kind])]
            for kind in ("inputs", "state")
        }
        changed = [f"{one['id']}.{one['property']}" for one in entries["inputs"][:1]]
        many = output.startswith("..")
        return {"output": output, "outputs": places if many else places[0], **entries, "changedPropIds": changed}

    def post(self, body: Any) -> Any:
        """The server's answer."""
        return self.client.post(URL, data=json.dumps(body), content_type="application/json", headers=HEADERS)

    def open(self, rounds: int = 2) -> None:
        """Asks every callback a few times over, and keeps what is answered."""
        for _ in range(rounds):
            for output in self.callbacks:
                try:
                    answer = self.post(self.body(output))
                except TypeError:  # components, which are laid out and not sent
                    continue
                if answer.status_code == 200:
                    for id, props in (answer.get_json() or {}).get("response", {}).items():
                        for prop, value in props.items():
                            if (id, prop) in self.values:
                                self.values[id, prop] = value

    def _value(self, id: str, prop: str) -> Any:
        followed = self.app.asked._same.get(id)
        value = self.values.get((followed, prop) if followed else (id, prop))
        return copy.deepcopy(value)


def _bare(entries: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for entry in entries:
        yield {"id": entry["id"], "property": entry["property"]}
