"""One file that opens from disk: its size, what it says, that it asks nothing of a network, hover and lock."""

from __future__ import annotations

import gzip
import io
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.heads import attention_patterns
from aotlens.report import MAX_BYTES, SECTIONS, Report, Section, Text, make_report
from aotlens.views import family
from tests.messages import refused, says
from tests.small_models import SMALL, maker, small_tokenizer
from tests.widget.decoded import decoded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

EVIL = "</script><script>document.title = 'run'</script><img src=https://example.org/x onerror=alert(1)>"
PATIENCE = 120_000
VECTORS = {"read_in": "vectors", "d_in": 3, "read_out": "vectors", "d_out": 1, "d_vocab": None}


class Resources(HTMLParser):
    """Addresses of all that a browser would fetch, scripts with a source, and the text of every element."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]


def payload(html: str) -> tuple[dict[str, Any], bytes]:
    """The header and all arrays of a report, read as packed.py says, not by its code."""
    (text,) = re.findall(r'id="data">([^<]*)<', html)
    plain = gzip.decompress(b64decode(text))
    end = 4 + int.from_bytes(plain[:4], "little")
    return json.loads(plain[4:end]), plain[end:]


def trained() -> Any:
    """A small model with a tokenizer that has a token of every character, and counts of tokens."""
    tokenizer = small_tokenizer()
    model = maker({**SMALL, "d_vocab": 270, "n_ctx": 128})(tokenizer=tokenizer)
    model.unigram_counts = torch.ones(270)
    model.card = CheckpointInfo(
        name="small <b>", description=f"A *small* model. {EVIL} ![x](https://example.org/y.png)"
    )
    return model


@pytest.fixture(scope="module")
def html() -> str:
    return make_report(trained(), text="the cat " + EVIL[:24], heads=["0.0", "1.2"]).to_html()


def test_it_fetches_nothing_and_runs_nothing_of_an_untrusted_card(html: str) -> None:
    resources = Resources()
    resources.feed(html)
    assert all(address.startswith(("#", "data:")) for address in resources.addresses)
    assert resources.scripts == 3 and html.count("</script>") == 3
    assert "<img" not in html and "<b>" not in html
    assert "default-src 'none'" in html and "unsafe-eval" not in html and "script-src 'unsafe-inline'" not in html
    assert "&lt;/script&gt;" in html, "the card's text is there, as text"


def test_its_maps_are_the_models_to_half_a_step(html: str) -> None:
    header, arrays = payload(html)
    (maps,) = header["maps"]
    text = "the cat " + EVIL[:24]
    patterns = attention_patterns(trained(), text)
    steps = np.frombuffer(arrays, dtype=np.uint8)[: patterns.pattern.size]
    values, half = decoded(maps, steps)
    assert (np.abs(values - patterns.pattern) <= half).all()
    assert "".join(maps["tokens"][1:]) == text.replace(" ", "·")


def test_what_a_section_says_is_in_the_file_without_scripts(html: str) -> None:
    for name, (title, _) in SECTIONS.items():
        assert f'id="{name}"' in html and f">{title}</h2>" in html
    assert "Head 0.0 looks for (QK)" in html and "Head 1.2 writes (OV)" in html and "Head 0.1 writes" not in html
    says(html, "No atlas of small &lt;b&gt;", "no verdicts")


def test_trigrams_have_the_verdicts_of_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat, the rat sat on the cat. " * 60, encoding="utf-8")
    report = make_report(
        trained(), corpus=f"dir:{tmp_path}", heads=["0.0"], sections=["trigrams"], n_tokens=2000
    )  # fmt: skip
    (section,) = report.sections
    _, *_, table = section.parts
    assert table.columns[-1] == "verdict" and {row[-1] for row in table.rows} <= {
        "confirmed",
        "not confirmed",
        "too rare",
    }
    expected = aotlens.trigrams.skip_trigrams(trained(), "0.0", k=10)
    assert [row[-4] for row in table.rows] == [f"{value:+.3f}" for value in expected.effect]


def test_a_corpus_that_is_too_short_for_an_atlas_costs_that_section_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat", encoding="utf-8")
    report = make_report(trained(), corpus=f"dir:{tmp_path}", sections=["maps", "atlas"])
    maps, atlas = report.sections
    assert len(maps.parts) == 2
    says(repr(maps.parts), "random tokens")
    (said,) = atlas.parts
    assert "expected" in said.text and "No atlas" not in said.text


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: maker({**SMALL, **VECTORS})(),
         {"atlas": "reads vectors", "trigrams": "reads vectors", "distillation": "reads none", "maps": "in 3 dim"}),
        (lambda: maker({**SMALL, "d_mlp": 7})(), {"circuits": "MLP", "maps": "random tokens that come twice"}),
        (lambda: maker({**SMALL, "phi": "fixed", "fixed_pattern": "random"})(), {"circuits": "writes (OV)"}),
        (lambda: aotlens.interop.to_transformer_lens(maker(SMALL)()),
         {"circuits": "this one is of TransformerLens", "maps": "random tokens", "card": "no card"}),
    ],
    ids=["vectors", "MLPs", "fixed pattern", "bridge"],
)  # fmt: skip
def test_what_a_model_cannot_show_is_said(model: Any, says: dict[str, str]) -> None:
    report = make_report(model())
    texts = {section.name: repr(section.parts) for section in report.sections}
    for name, words in says.items():
        assert words in texts[name]
    assert len(report.to_html().encode()) < MAX_BYTES


def test_a_view_stands_in_a_report_as_pages_and_commands_show_it() -> None:
    asked = ["circuits.map kind=ov", 'lens.stream text="a cat"', "circuits.top biases=maybe"]
    model = trained()
    ours, stream, refused_one = make_report(model, heads=["1.2"], text="the cat", views=asked).sections
    about = family("circuits").view("map").about
    explanation, figure, table, python = ours.parts
    assert about.startswith(explanation.text) and "Point at" in about and "Point at" not in explanation.text
    assert figure.caption.startswith("16 of 270 rows") and table.columns[-1] == "logits"
    rows, columns = (torch.tensor([int(row[place]) for row in table.rows]) for place in (0, 2))
    entries = aotlens.circuits.ov_circuit(model, (1, 2)).entries(rows, columns)
    assert [float(row[-1]) for row in table.rows] == pytest.approx(entries.tolist(), rel=1e-3)
    assert figure.make("light").data[0].z.size == len(table.rows) == 256
    assert "ov_circuit(model, (1, 2)" in python.text and "logit_lens(model, 'a cat')" in stream.parts[-1].text
    says(refused_one.parts[0].text, "biases", "'maybe'")


def test_views_that_are_none_are_refused_before_anything_is_computed() -> None:
    for view, words in (
        ("mops", "expected one of"), ("circuits.mops", "expected a view of circuits"), ("denoising", "takes no model"),
        ("circuits.map heads=1", "no parameter heads"), ("circuits.map head", "FAMILY.VIEW"),
    ):  # fmt: skip
        with refused(words):
            make_report(trained(), views=[view])


@pytest.mark.parametrize(("metrics", "n_parts"), [({}, 1), ({"validation_loss": 2.5}, 2)])
def test_a_damaged_training_log_costs_itself_alone_and_names_no_folder(
    metrics: dict[str, float], n_parts: int, tmp_path: Path
) -> None:
    folder = tmp_path / "secret" / "small"
    model = trained()
    model.unigram_counts = None
    save_checkpoint(folder, model, CheckpointInfo(name="small", description="", metrics=metrics), history=[])
    (folder / "metrics.jsonl").write_text('{"step": "a"}\n', encoding="utf-8")
    (losses,) = make_report(folder, sections=["losses"]).sections
    assert len(losses.parts) == n_parts
    said = losses.parts[0].text
    assert said.startswith("The training log cannot be read: metrics.jsonl, line 1: step: expected a number")


def test_attention_that_is_not_finite_is_said() -> None:
    model = trained()
    with torch.no_grad():
        model.blocks[1].attn.W_Q[2] = 3e38  # finite, and its scores are not
    html = (report := make_report(model, sections=["maps", "card"])).to_html()
    (said,) = report.sections[0].parts
    assert said.text.startswith("The attention of head 1.2 is not finite on this prompt") and "<canvas" not in html


def test_images_are_shown_patch_by_patch() -> None:
    header, _ = payload(make_report("fashion-mhsa", sections=["maps", "atlas"]).to_html())
    (maps,) = header["maps"]
    assert maps["strip"]["columns"] == 4 and maps["strip"]["n_before"] == 1 and maps["tokens"][1] == "0,0"
    assert maps["strip"]["picture"].startswith("data:image/png;base64,")


def test_images_that_are_given_are_shown_as_the_model_sees_them(tmp_path: Path) -> None:
    """A photograph of another size, in colours, and a square of the model's own size."""
    from PIL import Image

    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (40, 64, 3), dtype=np.uint8)).save(tmp_path / "wide.png")
    square = rng.integers(0, 256, (28, 28), dtype=np.uint8)
    Image.fromarray(square).save(tmp_path / "<b>.png")
    files = [str(tmp_path / "wide.png"), tmp_path / "<b>.png"]
    model = aotlens.load("fashion-mhsa")
    html = make_report(model, images=files, sections=["maps"]).to_html()
    assert "<b>" not in html and str(tmp_path) not in html
    header, arrays = payload(html)
    wide, own = header["maps"]
    shown = np.asarray(Image.open(io.BytesIO(b64decode(own["strip"]["picture"].partition(",")[2]))))
    assert (shown == square).all()
    assert Image.open(io.BytesIO(b64decode(wide["strip"]["picture"].partition(",")[2]))).size == (28, 28)

    patterns = attention_patterns(model, torch.from_numpy(square)[None])
    n_bytes = patterns.pattern.size
    second = arrays[n_bytes + 17 * 17 :]  # behind the first image's maps and mask
    values, half = decoded(own, np.frombuffer(second, dtype=np.uint8)[:n_bytes])
    assert (np.abs(values - patterns.pattern) <= half).all()
    with torch.no_grad():
        shares = model(torch.from_numpy(square)[None])[0].softmax(-1)
    name = model.image_processor.classes[int(shares.argmax())]
    says(html, "&lt;b&gt;.png, its middle square", "(row, column)", f"{name} ({float(shares.max()):.1%})")


def test_images_that_are_none_and_models_that_read_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    model = aotlens.load("fashion-mhsa")
    for file, words in (
        ("a.png", "expected a whole image"),
        ("b.png", "does not exist"),
        (".", "expected a whole image"),
    ):
        with pytest.raises(ValueError, match=words):
            make_report(model, images=[tmp_path / file], sections=["maps"])
    with pytest.raises(ValueError, match="reads tokens, not images"):
        make_report(trained(), images=[tmp_path / "a.png"])
    with pytest.raises(ValueError, match="reads vectors, not images"):
        make_report(maker({**SMALL, **VECTORS})(), images=[tmp_path / "a.png"])
    with refused("at most 12", 13):
        make_report(model, images=[tmp_path / "a.png"] * 13)
    model.image_processor = None
    with refused("pixels"):
        make_report(model, images=[tmp_path / "a.png"])


def test_more_maps_of_images_than_a_file_carries_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    Image.new("L", (28, 28)).save(tmp_path / "a.png")
    monkeypatch.setattr("aotlens.report.maps.MAX_MAP_BYTES", 24 * 17**2)
    one, two = (
        make_report("fashion-mhsa", images=[tmp_path / "a.png"] * n, sections=["maps"]).sections[0] for n in (1, 2)
    )
    assert len(one.parts) == 2
    says(repr(two.parts), "13,872 entries", "at most 6,936", "fewer images")


def test_a_report_that_is_too_large_and_names_that_are_none_are_refused() -> None:
    words = "".join(map(str, np.random.default_rng(0).integers(0, 10**9, 700_000)))
    section = Section(name="card", title="Card", parts=(Text(text=words),))
    with pytest.raises(ValueError, match=r"at most 5 MB"):
        Report(name="large", sections=(section,)).to_html()
    with refused("sections", "maps", "'map'"):
        make_report(trained(), sections=["map"])


# ── in a browser, from disk, with the network off ───────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Maps and a figure of a bundled model."""
    from aotlens.checkpoints import bundled_folder

    path = tmp_path_factory.mktemp("report") / "report.html"
    make_report(str(bundled_folder() / "novels-2l-mhsa"), sections=["maps", "losses", "card"]).save(path)
    assert path.stat().st_size < MAX_BYTES
    return path


@pytest.fixture
def page(chromium: Browser, file: Path) -> Iterator[Page]:
    trouble: list[str] = []
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_offline(True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    own = (file.as_uri(), "blob:", "data:")
    page.on("request", lambda request: None if request.url.startswith(own) else trouble.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_function("() => document.documentElement.dataset.drawn === 'light'")
    yield page
    context.close()
    assert trouble == []


def test_hover_is_linked_and_a_click_locks(page: Page) -> None:
    host, said = page.locator(".maps"), page.locator(".said")
    page.locator(".chip").nth(7).hover()
    expect(said).to_contain_text("(7) attends to")
    expect(host).to_have_attribute("data-query", "7")
    large = page.locator("canvas.map")
    large.hover(position={"x": 150, "y": 350})
    expect(said).to_contain_text("→")
    query, key = host.get_attribute("data-query"), host.get_attribute("data-key")
    assert query not in ("", "7") and key != ""
    assert re.search(rf"\({query}\) → .*\({key}\), attention \d", said.inner_text())
    assert page.locator(".chip-here").get_attribute("data-position") == query
    large.click(position={"x": 150, "y": 350})
    page.locator(".chip").nth(3).hover()
    expect(host).to_have_attribute("data-held", "true")
    assert host.get_attribute("data-query") == query
    page.keyboard.press("Escape")
    expect(host).to_have_attribute("data-held", "false")


def test_a_head_is_chosen_by_click_and_by_key_and_the_first_key_left_out(page: Page) -> None:
    host, grid = page.locator(".maps"), page.locator(".cell")
    grid.nth(0).click()
    expect(host).to_have_attribute("data-head", "0.0")
    grid.nth(0).press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(host).to_have_attribute("data-head", "1.1")
    page.locator(".chip").nth(9).hover()
    expect(page.locator(".said")).to_contain_text("<|endoftext|> (0)")
    page.locator("input[type=checkbox]").first.check()
    page.locator(".chip").nth(9).hover()
    expect(page.locator(".said")).to_contain_text("(9) attends to")
    expect(page.locator(".said")).not_to_contain_text("(0)")


def test_no_figure_offers_to_be_sent_to_a_cloud(page: Page) -> None:
    page.locator(".figure").first.hover()
    buttons = page.locator(".figure .modebar-btn")
    titles = buttons.evaluate_all("all => all.map(each => each.dataset.title ?? each.ariaLabel)")
    assert "Zoom" in titles and not any(re.search("cloud|share|plotly", title or "", re.I) for title in titles)


def test_the_theme_is_the_readers_and_changes_with_it(page: Page) -> None:
    ink = "() => getComputedStyle(document.querySelector('.figure .ytick text')).fill"
    light = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => document.documentElement.dataset.drawn === 'dark'")
    assert light == "rgb(37, 40, 44)" and page.evaluate(ink) == "rgb(213, 215, 218)"
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(36, 36, 36)"


@pytest.mark.parametrize("width", [800, 1440])
def test_nothing_is_wider_than_the_page(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
