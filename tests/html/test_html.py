"""Pages: one file, no address but its own, and no text that becomes markup."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from robustpll.html.shell import Column, Details, LongTable, json_block, render_page

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

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def table_of(label: str, rows: int = 3) -> LongTable:
    columns = [Column("method", choose=True), Column("accuracy", 1)]
    details = [Details(label, {label: {label: [label]}})]
    return LongTable("runs", columns, [(label, 1.25)] * rows, details, [0] * rows)


def page_of(folder: Path) -> str:
    template = folder / "page.html.j2"
    template.write_text(TEMPLATE)
    return render_page(template, name=EVIL, table=table_of(EVIL), svg=SVG)


def test_markup_in_a_label_is_text_everywhere(tmp_path: Path) -> None:
    page = Reader(page_of(tmp_path))
    kinds = [attributes.get("type") for attributes in page.attributes("script")]
    assert kinds == ["application/json", None]  # the data, and the script of every page
    assert not page.attributes("b")
    assert page.attributes("h1") == [{"title": EVIL}]
    (data,) = (json.loads(text) for tag, text in page.texts if tag == "script" and text[0] == "{")
    assert data["rows"][0] == [EVIL, 1.25]
    assert data["facts"] == [{EVIL: [EVIL]}]


def test_the_policy_allows_the_inlined_script_and_style_and_nothing_else(tmp_path: Path) -> None:
    text = page_of(tmp_path)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)

    def hashed(code: str) -> str:
        digest = hashlib.sha256(code.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    assert ".mine" in style
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": hashed(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_page_names_no_address_and_needs_no_looser_policy(tmp_path: Path) -> None:
    text = page_of(tmp_path)
    elements = Reader(text).elements
    addresses = [
        str(attributes[name])
        for _, attributes in elements
        for name in ("src", "href")
        if name in attributes
    ]
    assert len(addresses) == 2
    assert all(address.startswith("data:") for address in addresses)
    assert "http" not in text.replace("http-equiv", "")
    names = {name for _, attributes in elements for name in attributes}
    assert "style" not in names
    assert not [name for name in names if name.startswith("on")]
    assert page_of(tmp_path) == text  # the same values give the same bytes


@settings(max_examples=50)
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


def test_what_is_not_finite_is_no_value() -> None:
    table = LongTable("runs", [Column("a", 1)], [(float("nan"),), (float("inf"),)], [], [])
    assert '"rows":[[null],[null]]' in json_block(table.data(), "runs")


def test_equal_facts_are_written_once() -> None:
    details = [
        Details(str(seed), {"Method": {"epochs": 200}, "Seed": {"seed": seed}})
        for seed in range(50)
    ]
    data = LongTable("runs", [], [], details, []).data()
    assert len(data["facts"]) == 51
    title, parts = data["details"][7]
    assert title == "7"
    assert {heading: data["facts"][at] for heading, at in parts} == details[7].parts


def test_a_value_the_page_lacks_is_an_error(tmp_path: Path) -> None:
    template = tmp_path / "page.html.j2"
    template.write_text(TEMPLATE)
    with pytest.raises(UndefinedError, match="name"):
        render_page(template, table=table_of("Proden"))
