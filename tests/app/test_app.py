"""The app as a server sees it: ids, headers, hosts, limits, callbacks."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from dash import Dash

from app.core import Core
from app.core.security import content_security_policy
from app.core.settings import Settings
from app.factory import create_app
from app.pages.heads.ids import ids
from app.shell import ids as shell
from app.shell import navigation
from app.shell.app import App

# ── security ─────────────────────────────────────────────────────────────────────────────────────────────────


FOREIGN = ["evil.example", "127.0.0.1.evil.example", "evil.example:8050", "0.0.0.0", "", "localhost@evil", "a b"]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused(app: Dash, host: str):
    client = app.server.test_client()
    assert client.get("/", headers={"Host": host}).status_code == 400
    assert client.get("/_dash-layout", headers={"Host": host}).status_code == 400
    assert client.post("/_dash-update-component", json={}, headers={"Host": host}).status_code == 400
    assert client.get("/healthz", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8050", "localhost:9999", "[::1]:8050"])
def test_this_machines_own_names_are_served(app: Dash, host: str):
    assert app.server.test_client().get("/", headers={"Host": host}).status_code == 200


def test_a_named_host_is_served(services: Core, checkpoints: Path):
    settings = Settings(checkpoints=(checkpoints,), host="192.168.1.5", trusted_hosts=("lens.example",), no_token=True)
    client = create_app(settings, services).server.test_client()
    for host, status in {"lens.example": 200, "192.168.1.5:8050": 200, "other.example": 400}.items():
        assert client.get("/", headers={"Host": host}).status_code == status


@pytest.mark.parametrize("value", ["true", "0"])
def test_dash_serves_no_tools(settings: Settings, services: Core, monkeypatch: pytest.MonkeyPatch, value: str):
    """Dash takes any text for true and then answers /_mcp beside the app's own checks."""
    monkeypatch.setenv("DASH_MCP_ENABLED", value)
    server = create_app(settings, services, pages=()).server
    assert not [rule for rule in server.url_map.iter_rules() if "mcp" in rule.rule]


def test_a_post_from_another_site_is_refused(app: Dash, services: Core):
    client = app.server.test_client()
    body = page_request("/checkpoints")
    headers = {"Host": "localhost:8050"}
    own = client.post("/_dash-update-component", json=body, headers={**headers, "Origin": "http://localhost:8050"})
    assert own.status_code == 200
    for origin in ("http://evil.example", "http://localhost:1234", "null", "http://[::1", "localhost:8050", ""):
        other = client.post("/_dash-update-component", json=body, headers={**headers, "Origin": origin})
        assert other.status_code == 400, origin


@pytest.mark.parametrize(
    ("method", "path", "site", "mode", "status"),
    [
        ("POST", "/texts", "cross-site", "no-cors", 400), ("POST", "/texts", "cross-site", "navigate", 400),
        ("POST", "/texts", "same-origin", "cors", 200), ("GET", "/healthz", "cross-site", "no-cors", 400),
        ("GET", "/heads", "cross-site", "navigate", 200), ("GET", "/heads", "none", "navigate", 200),
    ],
)  # fmt: skip
def test_another_site_may_link_here_and_ask_nothing(app: Dash, method: str, path: str, site: str, mode: str, status):
    """A browser that leaves Origin out says where a request comes from."""
    headers = {"Host": "localhost", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    assert app.server.test_client().open(path, method=method, headers=headers, data=b"").status_code == status


def test_the_policy_names_every_inline_script_and_no_eval(app: Dash):
    response = app.server.test_client().get("/", headers={"Host": "localhost"})
    policy = response.headers["Content-Security-Policy"]
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    page = response.text
    assert "//cdn" not in page and "unpkg" not in page and "jsdelivr" not in page
    for attributes, script in re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL):
        if "application/json" in attributes or not script:
            continue  # data, which isn't run, or a file
        digest = hashlib.sha256(script.encode()).digest()
        assert f"'sha256-{base64.b64encode(digest).decode()}'" in policy, script[:80]
    for source in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert source.startswith("/"), source


def test_every_answer_has_the_headers(app: Dash):
    client = app.server.test_client()
    for path in ("/", "/nothing", "/_dash-layout", "/healthz"):
        with client.get(path, headers={"Host": "localhost"}) as answer:
            headers = answer.headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_the_policy_is_well_formed():
    policy = content_security_policy(["'sha256-x'"])
    assert "script-src 'self' 'sha256-x'" in policy
    assert policy.count(";") == 9


def test_a_large_request_is_refused(app: Dash, settings: Settings):
    body = b"{" + b" " * settings.max_request_bytes + b"}"
    answer = app.server.test_client().post(
        "/_dash-update-component", data=body, content_type="application/json", headers={"Host": "localhost"}
    )
    assert answer.status_code == 413


# ── callbacks ────────────────────────────────────────────────────────────────────────────────────────────────


def page_request(pathname: str, search: str = "") -> dict[str, Any]:
    return {
        "output": f"{shell.PAGE}.children",
        "outputs": {"id": shell.PAGE, "property": "children"},
        "inputs": [
            {"id": shell.LOCATION, "property": "pathname", "value": pathname},
            {"id": shell.LOCATION, "property": "search", "value": search},
        ],
        "changedPropIds": [f"{shell.LOCATION}.pathname"],
    }


def test_addresses_lead_to_pages(app: App):
    def at(path: str, search: str | None = None) -> str:
        shown = navigation.content(app, path, search)
        return json.dumps(shown, default=lambda component: component.to_plotly_json())

    assert at("/heads") == at("/heads/")
    assert "start-title" in at("/") and "heads-text" not in at("/")
    assert at("/", "?checkpoint=tiny-mssa") == at("/heads", "?checkpoint=tiny-mssa")
    assert "checkpoints-table" in at("/checkpoints")
    assert "no such page" in at("/elsewhere")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/paths", 200), ("/heads/", 200), ("/healthz", 200), ("/nope", 404), ("/a/b", 404)],
)
def test_an_unknown_address_is_answered_with_404_and_the_app(app: Dash, path: str, status: int):
    answer = app.server.test_client().get(path, headers={"Host": "localhost"})
    assert answer.status_code == status
    assert path == "/healthz" or "_dash-renderer" in answer.text
    assert "Content-Security-Policy" in answer.headers


def analyse(app: Dash, prompt: dict[str, Any], **state: Any) -> dict[str, Any]:
    """The answer to a submitted text."""
    callback = next(one for one in app._callback_list if one["output"].startswith(f"..{ids.ANALYSIS}.data"))
    parts = [part.rsplit(".", 1) for part in callback["output"].strip(".").split("...")]
    outputs = [{"id": component, "property": prop} for component, prop in parts]
    body = {
        "output": callback["output"],
        "outputs": outputs,
        "inputs": [{"id": ids.PROMPT, "property": "data", "value": prompt}],
        "state": [
            {"id": ids.ANALYSIS, "property": "data", "value": state.get("shown")},
            {"id": ids.HEAD, "property": "data", "value": state.get("head")},
            {"id": ids.POSITION, "property": "data", "value": state.get("position")},
            {"id": ids.OFF, "property": "data", "value": state.get("off")},
            {"id": ids.CELL, "property": "data", "value": {"cell": None, "against": None}},
        ],
        "changedPropIds": [f"{ids.PROMPT}.data"],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body, headers={"Host": "localhost"})
    assert answer.status_code == 200, answer.text
    return answer.get_json()["response"]


def test_a_text_gets_its_size_and_its_tokens(app: Dash):
    answer = analyse(app, {"checkpoint": "tiny-mhsa", "text": "a\n b"}, head=[1, 2], position=1)
    assert answer[ids.ANALYSIS]["data"]["layers"] == 2
    assert ids.HEAD not in answer and ids.POSITION not in answer  # they stay
    assert answer[ids.COUNT]["children"].startswith(f"{len(answer[ids.ANALYSIS]['data']['tokens'])} of at most ")


def test_a_head_or_position_that_is_not_there_is_replaced(app: Dash):
    answer = analyse(app, {"checkpoint": "tiny-mhsa", "text": "ab"}, head=[7, 0], position=40)
    assert answer[ids.HEAD]["data"] == [0, 0]
    assert answer[ids.POSITION]["data"] is None


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"checkpoint": "tiny-mhsa", "text": "x" * 400}, "at most 48"),
        ({"checkpoint": "tiny-mhsa", "text": "", "length": 10**7}, "10,000,000 characters"),
        ({"checkpoint": "tiny-mhsa", "text": "\ud800"}, "can't be tokenised"),
        ({"checkpoint": "../etc", "text": "a"}, "No checkpoint is called"),
        ({"checkpoint": "broken", "text": "a"}, "model.safetensors"),
    ],
)
def test_what_cannot_be_done_is_said_in_the_panel(app: Dash, prompt: dict[str, Any], message: str):
    answer = analyse(app, prompt)
    assert answer[ids.ANALYSIS]["data"] is None
    assert message in json.dumps(answer[shell.notice(ids.PROMPT_PANEL)], ensure_ascii=False)


class Panic(BaseException):
    """As PyO3 raises them: no Exception."""


@pytest.mark.parametrize("error", [ZeroDivisionError("on purpose"), Panic("on purpose"), MemoryError("on purpose")])
def test_a_defect_is_logged_and_named(
    app: Dash, services: Core, monkeypatch: pytest.MonkeyPatch, caplog, error: BaseException
):
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(services.inference, "analyse", fail)
    text = json.dumps(analyse(app, {"checkpoint": "tiny-mhsa", "text": "a"}))
    assert "Traceback" not in text
    assert ("defect of aotlens" in text) != ("not enough memory" in text) == isinstance(error, MemoryError)
    id = re.search(r"error ([0-9a-f]{8})", text)
    assert id is not None and id.group(1) in caplog.text and "on purpose" in caplog.text


def test_a_script_of_no_package_is_not_found(app: Dash):
    client = app.server.test_client()
    for path in ("nobody/x.js", "dash/nothing.js", "dash/../../etc/passwd"):
        assert client.get(f"/_dash-component-suites/{path}", headers={"Host": "localhost"}).status_code == 404, path
