"""The report page and its small form for notebooks: jinja2 places the view model; nothing is computed in a template."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from interpreter.profile.overview import overview
from interpreter.profile.view import page_view

if TYPE_CHECKING:
    from interpreter.profile.profile import Profile


INLINE_COLOURS = {
    "--tensor": "#6f5fe6",
    "--vector": "#159a91",
    "--scalar": "#e07f1f",
    "--gpsimd": "#4f9d40",
    "--sync": "#73808f",
    "--dma": "#2f86d6",
    "--wait-data": "#d98d9b",
    "--wait-dma": "#8fb7da",
    "--wait-engine": "#c4b083",
    "--wait-resource": "#a996d0",
    "--wait-idle": "#aab0ba",
}
"""The colours of `page.css` for a page that is not ours, chosen to be seen on white and on black."""


@cache
def environment() -> jinja2.Environment:
    """Templates of this folder: undefined names are errors, every value is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["marked"] = _marked
    made.globals["inline_colour"] = INLINE_COLOURS.__getitem__
    return made


def _marked(line: int) -> Markup:
    """The attribute that ties an element to a source line."""
    return Markup(' data-line="{}"').format(line) if line >= 0 else Markup()


def page_text(profile: Profile) -> str:
    """The whole page, one file."""
    return environment().get_template("page.html.j2").render(page=page_view(profile))


def inline_text(profile: Profile) -> str:
    """Figures, engines and notes without a script, for the output of a notebook cell."""
    return environment().get_template("inline.html.j2").render(head=overview(profile))
