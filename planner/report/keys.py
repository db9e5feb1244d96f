"""Every key that a file may have, as a table made from the JSON Schema of its model.

The models hold type, unit, default and meaning once; this only lays them out, so that the table cannot drift.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from planner.report.page import Grid, aligned, columns

Schema = Mapping[str, Any]
HEADINGS = ("key", "type", "unit", "default", "meaning")
Row = tuple[str, str, str, str, str]
LIMITS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
WORDS = {"integer": "whole number", "string": "text", "boolean": "true or false", "null": "null"}
HOLDERS = {"array": ("list", "items"), "object": ("mapping", "additionalProperties")}

#: What stands above the table.
ABOUT = (
    "Made by `planner schema --table --out docs/keys.md`; a test keeps it true. A key without a default may be left out "
    "unless it is required. Quantities may be written with a unit (`16GiB`, `90m`); without one, they count in the "
    "unit of the table. `policy` and `predictor` may also stand in a file of their own, for `--config`. In a table of jobs "
    "(`jobs: {path: jobs.csv}`, or `.parquet`), a cell of a list column holds values with `;` between them, or a JSON list; a "
    "mapping is JSON; an empty cell leaves the key out."
)

#: pydantic leaves a limit under its own name where a validator runs before it.
STANDARD = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON Schema, with every limit under its standard name."""
    schema: dict[str, Any] = _standard(model.model_json_schema(by_alias=True))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _standard(value: Any) -> Any:
    if isinstance(value, list):
        return [_standard(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {STANDARD.get(k, k) if isinstance(v, int | float) else k: _standard(v) for k, v in value.items()}


def key_rows(schema: Schema, prefix: str = "") -> Iterator[Row]:
    """One row a key: an object's key is followed by the keys inside it, a list's by those of one item."""
    rows = _rows(schema, schema.get("$defs", {}), prefix, ())
    seen: set[str] = set()
    for row in rows:
        if row[0] not in seen:  # forms of one value may have keys in common
            seen.add(row[0])
            yield row


def _rows(schema: Schema, defs: Schema, prefix: str, inside: tuple[str, ...]) -> Iterator[Row]:
    needed = set(schema.get("required", ()))
    for name, entry in schema.get("properties", {}).items():
        key = f"{prefix}{name}"
        default = "required" if name in needed else _default(entry)
        yield key, _type(entry, defs), _unit(entry), default, _meaning(entry, defs)
        for suffix, target in _objects(entry, defs):
            if target not in inside:
                yield from _rows(defs[target], defs, f"{key}{suffix}.", (*inside, target))


def _objects(entry: Schema, defs: Schema) -> list[tuple[str, str]]:
    """The named objects under a key: ``""`` for the value itself, ``[]`` for a list's items, ``.NAME`` for a mapping's.

    What may be one object or a list of them comes once.
    """
    found: dict[str, str] = {}
    for suffix, target in _all_objects(entry, defs):
        found[target] = min(suffix, found.get(target, suffix), key=len)
    return [(suffix, target) for target, suffix in found.items()]


def _all_objects(entry: Schema, defs: Schema) -> Iterator[tuple[str, str]]:
    if "$ref" in entry:
        target = entry["$ref"].rpartition("/")[2]
        if "properties" in defs[target]:
            yield "", target
    for variant in _variants(entry):
        yield from _all_objects(variant, defs)
    for inner, mark in ((entry.get("items"), "[]"), (entry.get("additionalProperties"), ".NAME")):
        if isinstance(inner, Mapping):
            yield from ((f"{mark}{suffix}", target) for suffix, target in _all_objects(inner, defs))


def _variants(entry: Schema) -> list[Schema]:
    """The forms that a value may have, if there are several."""
    return [*entry.get("anyOf", ()), *entry.get("oneOf", ())]


def _type(entry: Schema, defs: Schema) -> str:
    """The type in words, with its limits or its accepted values."""
    if "$ref" in entry:
        target = defs[entry["$ref"].rpartition("/")[2]]
        return "mapping" if "properties" in target else _type(target, defs)
    if _variants(entry):
        return " or ".join(dict.fromkeys(_type(variant, defs) for variant in _variants(entry)))
    if "const" in entry or "enum" in entry:
        return " or ".join(map(str, entry.get("enum", (entry.get("const"),))))
    if entry.get("type") in HOLDERS:
        word, key = HOLDERS[entry["type"]]
        inner = _type(entry[key], defs) if isinstance(entry.get(key), Mapping) else ""
        return f"{word} of ({inner})" if " or " in inner else f"{word} of {inner}" if inner else word
    return f"{WORDS.get(entry.get('type', ''), 'number')} {_limits(entry)}".strip()


def _limits(entry: Schema) -> str:
    limits = [f"{sign} {entry[name]}" for name, sign in LIMITS if name in entry]
    if "exclusiveMinimum" in entry:
        limits = [text for text in limits if not text.startswith(">=")]  # the stricter says it all
    return ", ".join(limits)


def _unit(entry: Schema) -> str:
    """The unit of the value, or of what is in it."""
    if "unit" in entry:
        return str(entry["unit"])
    within = [*_variants(entry), entry.get("items"), entry.get("additionalProperties")]
    return next((unit for part in within if isinstance(part, Mapping) and (unit := _unit(part))), "")


def _default(entry: Schema) -> str:
    if "default" not in entry:
        return ""
    value = entry["default"]
    return "" if isinstance(value, dict | list) and value else json.dumps(value, ensure_ascii=False)


def _meaning(entry: Schema, defs: Schema) -> str:
    """The key's own description, else the first line of what it holds."""
    text = str(entry.get("description", ""))
    if not text:
        held = [defs[target].get("description", "") for _, target in _objects(entry, defs)]
        text = held[0].partition("\n\n")[0] if len(held) == 1 else ""
    return " ".join(text.split()).replace("None: ", "null: ")


def as_markdown(title: str, about: str, rows: list[Row]) -> str:
    """The table as a page of the docs."""
    lines = [f"# {title}", "", about, "", _markdown_row(HEADINGS), _markdown_row(("---",) * len(HEADINGS))]
    lines += [_markdown_row((f"`{row[0]}`", *row[1:])) for row in rows]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def as_aligned(rows: list[Row]) -> str:
    """The table for a terminal or a pipe."""
    return "\n".join(aligned(Grid("", columns(*HEADINGS), tuple(rows)))) + "\n"
