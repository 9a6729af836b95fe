"""The page itself: content poured into templates, with the library that draws its figures.

Knows jinja2, and loads it when asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from explorer.report.content import Content, content
from explorer.report.disassembly import Listing
from explorer.report.figures import Option
from explorer.report.overview import Overview, overview
from explorer.story import Story
from ir.errors import MissingTarget, UsageError

LIBRARY = "vendor/echarts.min.js"
DRAW = "draw.js"


@dataclass(frozen=True, slots=True)
class Script:
    """A script that a page carries, and the digest by which the page's policy knows it."""

    text: str

    @property
    def digest(self) -> str:
        return base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()


@cache
def asset(name: str) -> str:
    """The text of a file beside this module."""
    return (files("explorer.report") / name).read_text(encoding="utf-8")


def as_data(value: object) -> str:
    """JSON that no browser takes for markup, wherever it stands in a page."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def render(story: Story, listing: Listing | None = None) -> str:
    """The page about a job, which needs nothing else; raises MissingTarget without jinja2,
    NothingValid for a job without a valid trial, UsageError for one that compares schedules."""
    if not story.trials:
        raise UsageError(
            f"job {story.job.id} has no trials of a search, so there is nothing to report; name "
            "another one of `tilewright jobs`"
        )
    found = content(story, listing)
    part = _part(found, "", "job0")
    return _page(found.values["title"], found.values["facts"], [part], found.figures)


def render_run(stories: Sequence[tuple[Story, Listing | None]]) -> str:
    """The page about all jobs of a run: what came of each, side by side, then each in full.

    Raises as `render` does; NothingValid only where no job has a valid trial.
    """
    whole = overview([story for story, _ in stories])
    parts, drawn = [], dict(whole.figures)
    for number, (story, listing) in enumerate(stories):
        if whole.jobs[number].anchor:
            found = content(story, listing)
            drawn |= {f"job{number}-{name}": figure for name, figure in found.figures.items()}
            parts.append(_part(found, f"job{number}-", whole.jobs[number].anchor))
    return _page(whole.title, whole.facts, parts, drawn, whole)


def _part(found: Content, prefix: str, anchor: str) -> dict[str, Any]:
    """A job's sections, with what stands above them on a page of several."""
    from markupsafe import Markup

    body = _environment(found.figures, prefix).from_string(asset("job.html"))
    told = {"title": found.values["title"], "facts": found.values["facts"], "anchor": anchor}
    return told | {"body": Markup(body.render(found.values))}


def _page(
    title: str,
    facts: Sequence[tuple[str, str]],
    parts: Sequence[Mapping[str, Any]],
    drawn: Mapping[str, Option],
    whole: Overview | None = None,
) -> str:
    from markupsafe import Markup

    template = _environment(drawn, "").from_string(asset("page.html"))
    scripts = [Script(Markup(asset(name))) for name in (LIBRARY, DRAW)]
    jobs = () if whole is None else whole.jobs
    text: str = template.render(
        title=title, facts=facts, parts=parts, jobs=jobs, scripts=scripts,
        summary="" if whole is None else whole.summary, figures=Markup(as_data(drawn)),
    )  # fmt: skip
    return text + "\n"


def _environment(drawn: Mapping[str, Option], prefix: str) -> Any:
    """Templates with `has` and `chart`, which place figures; raises MissingTarget."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingTarget(
            "reports need jinja2, which this install lacks: pip install jinja2"
        ) from None

    def chart(name: str) -> Any:
        label = drawn[name]["option"]["aria"]["label"]["description"]
        place = '<div data-figure="{}" role="img" aria-label="{}"></div>'
        return Markup(place).format(prefix + name, label)

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals |= {"chart": chart, "has": drawn.__contains__}
    return environment
