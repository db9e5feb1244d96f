"""A value as JSON in ASCII, so that no character of a job's name reaches a terminal as it is."""

from __future__ import annotations

import re

from planner.model import Noun


def json_text(noun: Noun, *, without: set[str] | None = None) -> str:
    """The noun as indented JSON, but for the keys in ``without``."""
    text = noun.model_dump_json(indent=1, exclude=without)
    return text if text.isascii() else re.sub(r"[^\x00-\x7e]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
