"""The page itself: content poured into the template. Knows jinja2, and loads it when asked."""

from __future__ import annotations

from importlib.resources import files

from explorer.report.content import content
from explorer.story import Story
from ir.errors import MissingTarget, UsageError


def render(story: Story) -> str:
    """The whole page as HTML that needs nothing else; raises MissingTarget without jinja2.

    Raises UsageError for a job without a trial, as one is that compares schedules of a range.
    """
    if not story.trials:
        raise UsageError(
            f"job {story.job.id} has no trials of a search, so there is nothing to report; name "
            "another one of `tilewright jobs`"
        )
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingTarget(
            "reports need jinja2, which this install lacks: pip install jinja2"
        ) from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = (files("explorer.report") / "page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(content(story)) + "\n"
