"""Two browsers at one server: whose Stop ends what, and what each is told."""

from __future__ import annotations

import json
import threading
from typing import Any

from flask.testing import FlaskClient

from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import wait
from tests.messages import says

HOST = {"Host": "localhost"}
FORM = "distillation-new"
STOP, TIMER = shell.stop(FORM), shell.timer(FORM)
PROGRESS, WATCHED = shell.progress(FORM), shell.watched(FORM)


def browser(app: App) -> FlaskClient:
    """A client with cookies of its own, which has opened the page."""
    client = app.server.test_client()
    client.get("/distillation", headers=HOST)
    return client


def session(client: FlaskClient) -> str:
    cookie = client.get_cookie("aotlens-session")
    assert cookie is not None and cookie.http_only
    return cookie.value


def click(app: App, client: FlaskClient, button: str, watched: str | None) -> dict[str, Any]:
    """What the form answers."""
    callback = next(one for one in app._callback_list if f"{PROGRESS}.children" in one["output"])
    outputs = [part.rsplit(".", 1) for part in callback["output"].strip(".").split("...")]
    body = {
        "output": callback["output"],
        "outputs": [{"id": id, "property": prop.partition("@")[0]} for id, prop in outputs],
        "inputs": [{**one, "value": 1} for one in callback["inputs"]],
        "state": [{**one, "value": watched if one["id"] == WATCHED else None} for one in callback["state"]],
        "changedPropIds": [f"{button}.n_clicks" if button != TIMER else f"{button}.n_intervals"],
    }
    answer = client.post("/_dash-update-component", json=body, headers=HOST)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.get_json()["response"]
    return response


def test_a_stop_ends_the_work_of_its_own_browser_only(app: App):
    jobs = app.services["distillation"].jobs
    ann, bob, going = browser(app), browser(app), threading.Event()
    assert session(ann) != session(bob)
    first = session(ann)
    ann.get("/heads", headers=HOST)
    assert session(ann) == first  # for as long as the browser is open

    def endless(report: Any) -> None:
        while True:
            report(1, 3, "training FFNs")
            going.set()

    job = jobs.start("endless", "Distilling tiny-mhsa", endless, session=session(ann))
    assert going.wait(120)
    seen = click(app, bob, STOP, None)
    assert not job.stop and seen[STOP] == {"className": "hidden"} and WATCHED not in seen
    says(json.dumps(seen[PROGRESS]), "somebody else", "Distilling tiny-mhsa")
    assert seen[TIMER] == {"disabled": False}  # and goes on to look

    shared = jobs.start("endless", "Distilling tiny-mhsa", endless, session=session(bob))
    assert shared is job
    seen = click(app, bob, TIMER, "endless")
    assert seen[STOP] == {"className": ""} and "somebody" not in json.dumps(seen[PROGRESS])
    seen = click(app, bob, STOP, "endless")
    assert not job.stop
    says(json.dumps(seen[PROGRESS]), "somebody else")
    click(app, ann, STOP, "endless")
    assert wait(job).state == "stopped"
    says(json.dumps(click(app, ann, TIMER, "endless")[PROGRESS]), "nothing", "kept")
