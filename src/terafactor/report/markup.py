"""HTML from templates in which every value is escaped."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from terafactor import _format
from terafactor.data.sources.formats import require


def fragment(template: str, **values: Any) -> str:
    """Return HTML from a Jinja template, safe to insert into another fragment.

    Values are escaped unless they are fragments themselves. Filters format numbers: ``count``, ``number``, ``percent``,
    ``data_size``, ``duration``, and ``setting`` for the value of a parameter.

    Examples
    --------
    >>> from terafactor.report import fragment
    >>> print(fragment("<b>{{ name }}</b> {{ n | count }}", name="<i>", n=1234))
    <b>&lt;i&gt;</b> 1,234
    """
    from markupsafe import Markup

    return Markup(_template(template).render(**values))


def embed_json(value: Any) -> str:
    """Return a value as JSON for a ``<script type="application/json">``, without any ``<`` that could end it.

    NaN and infinity are refused: JSON cannot represent them.
    """
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


@cache
def static(name: str) -> str:
    """Return a file of ``static/`` as text; only these files enter a page unescaped."""
    from markupsafe import Markup

    return Markup(files("terafactor.report").joinpath("static", name).read_text(encoding="utf-8"))


@cache
def _template(text: str) -> Any:
    return _environment().from_string(text)


@cache
def _environment() -> Any:
    jinja2 = require("jinja2", extra="report", purpose="the report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {name: getattr(_format, name) for name in _format.__all__}
    return environment
