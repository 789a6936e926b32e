"""Pages: one file, no address but its own, and no text that becomes markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from robustpll.html.shell import Column, Details, LongTable, allowed, json_block, render_page

EVIL = "</title></script><script>alert(1)</script><b onclick='alert(2)'>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
TEMPLATE = """{% extends "base.html.j2" %}
{% from "parts.html.j2" import figure, long_table %}
{% block title %}{{ name }}{% endblock %}
{% block style %}.mine { color: red; }{% endblock %}
{% block main %}
<h1 title="{{ name }}">{{ name }}</h1>
{{ long_table(table, name) }}
{{ figure(svg, name, name) }}
{% endblock %}
"""
TABLE = LongTable(
    "runs",
    [Column("method", choose=True), Column("accuracy", 1)],
    [(EVIL, 1.25), (EVIL, float("nan")), (EVIL, float("inf"))],
    [Details(EVIL, {EVIL: {EVIL: [EVIL]}})],
    [0] * 3,
)


class Reader(HTMLParser):
    """Elements with their attributes, and the text in each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.texts.append((self.elements[-1][0], data))


def page_of(folder: Path, **values: object) -> str:
    template = folder / "page.html.j2"
    template.write_text(TEMPLATE)
    return render_page(template, table=TABLE, **values)


def test_markup_in_a_label_is_text_everywhere_and_the_page_names_no_address(
    tmp_path: Path,
) -> None:
    text = page_of(tmp_path, name=EVIL, svg=SVG)
    page = Reader(text)
    scripts = [attributes.get("type") for tag, attributes in page.elements if tag == "script"]
    assert scripts == ["application/json", None]  # the data, and the script of every page
    assert [attributes for tag, attributes in page.elements if tag == "h1"] == [{"title": EVIL}]
    assert "b" not in [tag for tag, _ in page.elements]
    (data,) = (json.loads(text) for tag, text in page.texts if tag == "script" and text[0] == "{")
    assert data["rows"] == [[EVIL, 1.25], [EVIL, None], [EVIL, None]]  # not finite: no value
    assert data["facts"] == [{EVIL: [EVIL]}]
    attributes = [pair for _, attributes in page.elements for pair in attributes.items()]
    addresses = [str(value) for name, value in attributes if name in ("src", "href")]
    assert len(addresses) == 2
    assert all(address.startswith("data:") for address in addresses)
    assert "http" not in text.replace("http-equiv", "")
    assert not [name for name, _ in attributes if name == "style" or name.startswith("on")]
    assert page_of(tmp_path, name=EVIL, svg=SVG) == text  # the same values give the same bytes


def test_the_policy_allows_the_inlined_script_and_style_and_nothing_else(tmp_path: Path) -> None:
    text = page_of(tmp_path, name="runs", svg=SVG)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert ".mine" in style
    assert allowed("a") == "sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": f"'{allowed(script)}'",
        "style-src": f"'{allowed(style)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@settings(max_examples=30)
@given(
    st.recursive(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists)
)
@example(["<!--<script>", "</script", "<![CDATA[", "\u2028&lt;"])
def test_data_comes_out_of_its_block_as_it_went_in(value: object) -> None:
    page = Reader(f"{json_block(value, 'data')}<p>after")
    assert [tag for tag, _ in page.elements] == ["script", "p"]
    text = "".join(text for tag, text in page.texts if tag == "script")
    assert "<" not in text
    assert json.loads(text) == value


def test_equal_facts_are_written_once() -> None:
    details = [
        Details(str(seed), {"Method": {"epochs": 200}, "Seed": {"seed": seed}})
        for seed in range(50)
    ]
    data = LongTable("runs", [], [], details, []).data()
    assert len(data["facts"]) == 51
    title, parts = data["details"][7]
    assert title == "7"
    assert {heading: data["facts"][index] for heading, index in parts} == details[7].parts


def test_a_value_the_page_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UndefinedError, match="name"):
        page_of(tmp_path, svg=SVG)
