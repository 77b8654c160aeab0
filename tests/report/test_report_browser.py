"""The report of a clustering in a browser, and whether its colours are distinct."""

import base64
import re

import numpy as np
import pytest
from helpers.outcomes import ENDING, HOSTILE, QUOTES, simple, written

pytest.importorskip("jinja2")

from volmar.report.cluster_page import write_report

# Machado, Oliveira and Fernandes (2009), severity 1.
SIGHTS = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour):
    colour = colour if len(colour) == 7 else "#" + "".join(2 * c for c in colour[1:])
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, two):
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (high + 0.05) / (low + 0.05)


def difference(one, two, sight):
    lab = [
        TO_LAB @ np.cbrt(TO_CONES @ np.clip(SIGHTS[sight] @ linear(c), 0, 1)) for c in (one, two)
    ]
    return float(np.linalg.norm(lab[0] - lab[1]))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_read_and_told_apart(tmp_path, mode):
    html = written(simple(), tmp_path).html
    block = re.search(
        rf":root(?:\[data-theme=\"dark\"\])? {{ color-scheme: {mode};(.*?)}}", html, re.S
    )
    colour = dict(re.findall(r"--([\w-]+):(#[0-9a-f]{3,6});", block[1]))
    for back in ("card", "sunk", "page"):
        for text in ("text", "soft", "accent"):
            assert contrast(colour[text], colour[back]) >= 4.5, (text, back)
    for tone in ("good", "fair", "weak", "accent"):
        assert contrast(colour[tone], colour[f"{tone}-soft"]) >= 4.5
        assert contrast(colour["soft"], colour[f"{tone}-soft"]) >= 4.5
    marks = [colour[f"c{i}"] for i in range(8)]
    assert all(contrast(mark, colour["card"]) >= 3 for mark in marks)
    for sight in SIGHTS:
        for i in range(4):
            for j in range(i):
                assert difference(marks[i], marks[j], sight) > 0.09, (sight, i, j)


# ------------------------------------------------------------------------------ in a browser


@pytest.fixture
def page(browser, tmp_path):
    path = tmp_path / "report.html"
    ids = np.array([ENDING if i % 2 else f"flower {i}" for i in range(120)], dtype=object)
    names = [HOSTILE, "a very long name of a column " * 6, "b", "c"]
    outcome = simple(title=QUOTES, ids=ids, id_name="flower", feature_names=names)
    write_report(outcome, path)
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_opens_it_without_a_complaint(browser, page, width, theme):
    browser.open(page, width, theme)
    assert browser.run("document.title") == QUOTES
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.documentElement.scrollWidth") <= width
    # No element but those that scroll by themselves is wider than the page.
    assert browser.run("document.querySelector('main').scrollWidth") <= width
    dark = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(13, 17, 23)") == (theme == "dark")
    shot = page.with_suffix(".png")
    shot.write_bytes(base64.b64decode(browser("Page.captureScreenshot", format="png")["data"]))
    assert shot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert shot.stat().st_size > 10_000
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.run("performance.getEntriesByType('resource').length") == 0


def test_the_checks_of_the_browser_can_fail(browser, page):
    bad = page.with_name("bad.html")
    html = page.read_text(encoding="utf-8")
    bad.write_text(html.replace("</body>", "<img src='other.png'><script>x</script></body>"))
    browser.open(bad)
    # The page's own policy stops both, and reports it.
    assert len(browser.complaints()) >= 2
    assert len(browser.requests()) == 2


def test_clusters_are_hidden_and_shown_by_mouse_and_keyboard(browser, page):
    browser.open(page)

    def shown():
        return browser.run(
            "[...document.querySelectorAll('#plane g[data-cluster]')]"
            ".map(g => getComputedStyle(g).display !== 'none')"
        )

    assert shown() == [True, True]
    browser.click('[data-toggle="0"]')
    assert shown() == [False, True]
    pressed = "document.querySelector('[data-toggle=\"0\"]').getAttribute('aria-pressed')"
    assert browser.run(pressed) == "false"
    assert browser.run("document.querySelectorAll('#bins g.off').length") == 1
    browser.run("document.querySelector('[data-toggle=\"0\"]').focus()")
    browser.press("Enter")
    assert shown() == [True, True]
    assert browser.complaints() == []


def test_a_mark_tells_its_id_cluster_and_score(browser, page):
    browser.open(page)
    where = browser.run(
        "(() => { const plot = document.getElementById('plane');"
        "plot.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const b = plot.getBoundingClientRect();"
        "const p = JSON.parse(document.getElementById('data').textContent).points[1];"
        "return [b.x + p[0] / 100 * b.width, b.y + p[1] / 100 * b.height, p[3]]; })()"
    )
    browser.point(*where[:2])
    tip = browser.run("document.getElementById('tip').innerText").split("\n")
    assert tip == ["flower", ENDING, "cluster", "0", "score", where[2]]
    assert browser.run("document.images.length") == 0
    browser.run("document.getElementById('plane').focus()")
    browser.press("Escape")
    assert browser.run("document.getElementById('tip').hidden") is True
    browser.press("ArrowRight")
    first = browser.run("document.getElementById('ring').getAttribute('cx')")
    browser.press("ArrowRight")
    second = browser.run("document.getElementById('ring').getAttribute('cx')")
    assert float(first[:-1]) <= float(second[:-1])
    assert browser.run("document.getElementById('tip').hidden") is False
    assert browser.complaints() == []


def test_dark_mode_is_toggled_and_kept(browser, page):
    browser.open(page)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.click("#theme")
    dark = browser.run(colour)
    assert dark != light
    browser.open(page)
    assert browser.run(colour) == dark
    browser.click("#theme")
    assert browser.run(colour) == light
    assert browser.complaints() == []
