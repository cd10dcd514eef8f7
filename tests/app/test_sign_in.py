"""The token of a shared app: who is asked for it, what signs in, what is guessed, what an unshared app never sees."""

from __future__ import annotations

import http.client
import re
from contextlib import closing
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from app.__main__ import _parse, address, reach
from app.core import Core
from app.core.access import Access, TooManyGuesses, bits, new_token
from app.core.hosts import checked_name
from app.core.settings import Settings
from app.factory import create_app
from app.shell.app import App
from tests.app.test_app import page_request
from tests.app.test_server import running
from tests.messages import refused, says

TOKEN = "correct-horse-battery"  # short enough to be guessed at
HOST = {"Host": "localhost"}
PAGE = {**HOST, "Accept": "text/html,*/*"}


@pytest.fixture(scope="module")
def guarded(settings: Settings, services: Core) -> App:
    given = replace(settings, token=TOKEN)
    return create_app(given, replace(services, settings=given))


def client(app: App) -> FlaskClient:
    return app.server.test_client()


# ── who is asked ─────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_answered_without_the_token_but_health(guarded: App):
    stranger = client(guarded)
    script = next(one for one in re.findall(r'src="(/[^"]+)"', _home(guarded)) if one.startswith("/static/"))
    rules = [rule.rule for rule in guarded.server.url_map.iter_rules() if "<" not in rule.rule]
    for path in {*rules, script, "/_dash-component-suites/dash/dcc/dash_core_components.js", "/nothing", "/static/x"}:
        for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
            answer = stranger.open(path, method=method, headers=HOST)
            if path == "/healthz" and method in ("GET", "HEAD", "OPTIONS"):
                assert answer.status_code == 200 and answer.text in ("ready\n", "")
            elif path == "/sign-in":
                assert answer.status_code in (200, 403, 405)
            else:
                assert answer.status_code in (401, 405), (method, path)
            assert "tiny-mhsa" not in answer.text
    assert stranger.post("/_dash-update-component", json=page_request("/heads"), headers=HOST).status_code == 401


def _home(app: App) -> str:
    return client(app).get("/", headers={**PAGE, "Authorization": f"Bearer {TOKEN}"}).text


def test_behind_https_cookies_are_never_sent_in_the_open(guarded: App):
    """What the proxy says goes through waitress."""
    with running(guarded.server) as server:
        cookies = {}
        for scheme in ("http", "https"):
            headers = {**PAGE, "X-Forwarded-Proto": scheme}
            with closing(http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=60)) as browser:
                browser.request("GET", f"/?token={TOKEN}", headers=headers)
                cookies[scheme] = browser.getresponse().headers.get_all("Set-Cookie")
    assert [len(cookies[scheme]) for scheme in cookies] == [2, 2]
    assert all("; Secure" in cookie for cookie in cookies["https"])
    assert not any("Secure" in cookie for cookie in cookies["http"])


def test_the_printed_address_signs_in_and_the_token_leaves_it(guarded: App):
    browser = client(guarded)
    answer = browser.get(f"/heads?text=a%20b&token={TOKEN}&head=1.0", headers=PAGE)
    assert answer.status_code == 303 and answer.headers["Location"] == "/heads?text=a+b&head=1.0"
    cookie = next(one for one in answer.headers.getlist("Set-Cookie") if "signed-in" in one)
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and TOKEN not in cookie and "Secure" not in cookie
    assert browser.get("/heads", headers=PAGE).status_code == 200
    assert browser.post("/_dash-update-component", json=page_request("/heads"), headers=HOST).status_code == 200
    assert browser.get(f"/heads?token={TOKEN}", headers=PAGE).headers["Location"] == "/heads"


def test_a_person_without_it_is_asked_and_goes_on_where_they_were(guarded: App):
    browser = client(guarded)
    asked = browser.get("/circuits?head=1.0&kind=ov", headers=PAGE)
    assert asked.status_code == 303 and asked.headers["Location"].startswith("/sign-in?next=")
    page = browser.get(asked.headers["Location"], headers=PAGE)
    assert page.status_code == 200 and 'value="/circuits?head=1.0&amp;kind=ov"' in page.text
    assert page.headers["Referrer-Policy"] == "same-origin" and page.headers["Cache-Control"] == "no-store"
    form = {"next": "/circuits?head=1.0&kind=ov", "token": "wrong"}
    wrong = browser.post("/sign-in", data=form, headers=PAGE)
    assert wrong.status_code == 403 and "not the token" in wrong.text and "signed-in" not in str(wrong.headers)
    right = browser.post("/sign-in", data={**form, "token": f" {TOKEN}\n"}, headers=PAGE)
    assert right.status_code == 303 and right.headers["Location"] == "/circuits?head=1.0&kind=ov"
    assert browser.get("/circuits", headers=PAGE).status_code == 200


@pytest.mark.parametrize(
    "target",
    ["//evil.example/x", "/\\evil.example", "\\\\evil.example", "https://evil.example", "/\t//evil.example",
     "\r\n//evil.example", "/ /evil.example", "javascript:alert(1)", "/\n\\evil.example", "///\\//evil.example",
     "/a\r\nSet-Cookie: x=1", "/\u2028//evil.example", "/\x00//evil.example"],
)  # fmt: skip
def test_nobody_is_sent_elsewhere(guarded: App, target: str):
    answer = client(guarded).post("/sign-in", data={"next": target, "token": TOKEN}, headers=PAGE)
    place = answer.headers["Location"]
    assert answer.status_code == 303 and place.startswith("/") and place[1:2] not in ("/", "\\")
    # As browsers read it: without tabs and line ends, and with \\ for /.
    assert not re.sub(r"[\t\r\n]", "", place).replace("\\", "/").startswith("//")
    assert "\r" not in place and "\n" not in place and "x=1" not in str(answer.headers.getlist("Set-Cookie"))


def test_a_line_end_in_an_address_is_the_callers(guarded: App):
    answer = client(guarded).get(f"/a%0d%0aSet-Cookie:%20x=1?token={TOKEN}", headers=PAGE)
    assert answer.status_code == 303 and answer.headers["Location"].startswith("/aSet-Cookie")
    assert "x=1" not in str(answer.headers.getlist("Set-Cookie"))


def test_what_is_typed_is_no_markup(guarded: App):
    page = client(guarded).get("/sign-in?next=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E", headers=PAGE)
    assert "<script" not in page.text and "&lt;script&gt;" in page.text


def test_a_cookie_of_another_process_signs_nobody_in(guarded: App, settings: Settings, services: Core):
    browser = client(guarded)
    browser.get(f"/?token={TOKEN}", headers=PAGE)
    name = f"aotlens-signed-in-{settings.port}"
    cookie = browser.get_cookie(name)
    assert cookie is not None
    again = create_app(replace(settings, token=TOKEN), services).server.test_client()
    for value in (cookie.value, cookie.value[:-2], "eyJzaWduZWQtaW4iOnRydWV9.x.y", ""):
        again.set_cookie(name, value)
        assert again.get("/_dash-layout", headers=HOST).status_code == 401


def test_programs_send_the_token_in_a_header(guarded: App):
    for token, status in ((TOKEN, 200), ("wrong", 401), ("", 401)):
        answer = client(guarded).get("/_dash-layout", headers={**HOST, "Authorization": f"Bearer {token}"})
        assert answer.status_code == status
    assert client(guarded).get("/_dash-layout", headers={**HOST, "Authorization": "Basic eDp5"}).status_code == 401


def test_data_is_stored_nowhere_and_scripts_are(guarded: App):
    browser = client(guarded)
    browser.get(f"/?token={TOKEN}", headers=PAGE)
    layout = browser.get("/_dash-layout", headers=HOST)
    answer = browser.post("/_dash-update-component", json=page_request("/heads"), headers=HOST)
    assert layout.headers["Cache-Control"] == answer.headers["Cache-Control"] == "no-store"
    assert "camera=()" in answer.headers["Permissions-Policy"]
    script = next(one for one in re.findall(r'src="(/static[^"]+)"', _home(guarded)))
    assert "immutable" in browser.get(script, headers=HOST).headers["Cache-Control"]


def test_an_app_of_this_machine_alone_asks_nobody(app: App):
    browser = client(app)
    assert browser.get("/", headers=PAGE).status_code == 200
    assert browser.get("/?token=anything", headers=PAGE).status_code == 200
    assert "signed-in" not in str(browser.get("/", headers=PAGE).headers)


def test_health_says_why_not_to_those_who_may_know(
    app: App, guarded: App, services: Core, monkeypatch: pytest.MonkeyPatch
):
    assert client(app).get("/healthz", headers=HOST).text == "ready\n"
    monkeypatch.setattr(type(services.catalog), "list", lambda self: [])
    told, kept = (client(one).get("/healthz", headers=HOST) for one in (app, guarded))
    assert told.status_code == 503
    says(told.text, "not ready", "no checkpoint")
    assert (kept.status_code, kept.text) == (503, "not ready\n")


# ── guesses ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_short_token_may_be_guessed_at_ten_times_a_minute():
    now = [0.0]
    access = Access("sesame-open", clock=lambda: now[0])
    assert [access.right(f"guess-{number}") for number in range(10)] == [False] * 10
    with pytest.raises(TooManyGuesses, match="60 s"):
        access.right("sesame-open")  # not even the right one, which a guesser could then tell
    assert access.right("sesame-open", "192.0.2.7")  # somebody else is not kept out
    assert not access.right("guess-11", "192.0.2.8")
    now[0] = 60.0
    assert access.right("sesame-open")


def test_a_long_token_is_not_limited_so_that_guesses_keep_nobody_out():
    token = new_token()
    access = Access(token)
    assert not any(access.right(f"{number}") for number in range(1000)) and access.right(token)


def test_bits_of_a_token():
    assert bits("12345678") == pytest.approx(26.6, abs=0.1)
    assert bits("deadbeef" * 4) == pytest.approx(32 * 4.7, abs=0.1)
    assert bits(new_token()) > 128 > bits(TOKEN)


def test_too_many_guesses_are_said_on_the_page(settings: Settings, services: Core):
    browser = create_app(replace(settings, token=TOKEN), services).server.test_client()
    for _ in range(10):
        assert browser.get("/heads?token=wrong", headers=PAGE).status_code == 403
    form = {"next": "/", "token": TOKEN}
    for answer in (browser.post("/sign-in", data=form, headers=PAGE), browser.get("/?token=x", headers=PAGE)):
        assert answer.status_code == 429 and "Too many wrong tokens" in answer.text
        assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert browser.get("/sign-in", headers=PAGE).status_code == 200


# ── how an app is started ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "token", "said"),
    [
        ([], "none", "for this machine alone"),
        (["--host", "localhost"], "none", "for this machine alone"),
        (["--host", "::1"], "none", "for this machine alone"),
        (["--token", TOKEN], TOKEN, "the token on this machine"),
        (["--host", "192.168.1.5"], "made", "this address or its token"),
        (["--host", "0.0.0.0"], "made", "this machine's name or address"),
        (["--trusted-host", "lens.example"], "made", "others use lens.example"),
        (["--host", "192.168.1.5", "--token", TOKEN], TOKEN, "this address or its token"),
        (["--host", "192.168.1.5", "--no-token"], "none", "no token is asked for"),
        (["--trusted-host", "a.example", "--no-token"], "none", "for everybody"),
    ],
)
def test_a_shared_app_has_a_token_or_somebody_said_not(arguments: list[str], token: str, said: str):
    settings = _parse(arguments)
    assert said in reach(settings)
    if token == "made":
        assert settings.token is not None and bits(settings.token) > 128 and settings.token != _parse(arguments).token
        assert address(settings).endswith(f"/?token={settings.token}")
    else:
        assert settings.token == (None if token == "none" else token)
        assert ("?token=" in address(settings)) == (token != "none")


def test_the_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("AOTLENS_TOKEN", TOKEN)
    assert _parse([]).token == TOKEN
    assert _parse(["--no-token"]).token is None
    monkeypatch.setenv("AOTLENS_TOKEN", "short")
    with pytest.raises(SystemExit):
        _parse([])
    says(capsys.readouterr().err, "AOTLENS_TOKEN", "8 to 200")


def test_an_app_made_by_a_program_is_not_shared_by_accident(settings: Settings, services: Core):
    for shared in (replace(settings, host="0.0.0.0"), replace(settings, trusted_hosts=("lens.example",))):
        with refused("token", "settings"):
            create_app(shared, services)


@pytest.mark.parametrize(
    "token", ["short", "", "with space 123", "ünïcödé-token", "a&b=c&d=e", "x" * 201, "line\nbreak"]
)
def test_a_token_that_cannot_stand_in_an_address(token: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        _parse(["--token", token])
    says(capsys.readouterr().err, "--token", "8 to 200 letters")
    with pytest.raises(ValueError, match="expected a token"):
        Settings(token=token)


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("*", "lens.example.org"),
        ("*.example.org", "example.org"),
        ("http://x", "x"),
        ("https://lens.example/", "lens.example"),
        ("box:8443", "box"),
        ("[::1]:80", "[::1]"),
        ("lens.example/aotlens", "lens.example"),
        ("a,b", "lens.example.org"),
        ("a b", "lens.example.org"),
        ("", "lens.example.org"),
        ("x-.example", "lens.example.org"),
        ("a..b", "lens.example.org"),
    ],
)
def test_a_trusted_host_of_the_wrong_form_is_refused_with_the_right_one(
    name: str, example: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        _parse(["--trusted-host", name])
    error = capsys.readouterr().err
    assert f"such as {example}; got {name!r}" in error
    with pytest.raises(ValueError, match="expected the name alone"):
        Settings(trusted_hosts=(name,))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("Lens.Example", "lens.example"), ("10.0.0.7", "10.0.0.7"), ("fe80::1", "[fe80::1]"), ("[fe80::1]", "[fe80::1]")],
)
def test_names_that_a_host_header_can_have(name: str, kept: str):
    assert checked_name(name) == kept


def test_on_all_addresses_any_address_and_the_machines_name_are_known(
    settings: Settings, services: Core, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.core.settings.gethostname", lambda: "Box")
    given = replace(settings, host="0.0.0.0", no_token=True)
    browser = create_app(given, services).server.test_client()
    for host, status in {
        "192.168.1.5:8050": 200,
        "[fe80::1]": 200,
        "box:8050": 200,
        "evil.example": 400,
        "": 400,
    }.items():
        assert browser.get("/healthz", headers={"Host": host}).status_code == status, host
