"""From what pydantic finds wrong to one line: file, key, what was found, what is accepted.

Only the first fault is told, with the number of the others: a wrong file is mended from the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, RootModel, Tag, ValidationError

from planner.errors import InputError
from planner.quantities import shown
from planner.tables import nearest

M = TypeVar("M", bound=BaseModel)
Loc = tuple[str | int, ...]
#: How an error's place in a value is written after the file's name.
Key = Callable[[Loc], str]


def dotted(loc: Loc) -> str:
    """``("jobs", 3, "gpus")`` -> ``jobs[3].gpus``; names of alternatives, in angle brackets, are not shown."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not (part.startswith("<") and part.endswith(">")) and part != "[key]":
            text += f".{part}" if text else part
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


def checked(model: type[M], raw: Any, where: str, *, key: Key = dotted) -> M:
    """The raw value as a value of the model, or the first thing that is wrong with it."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise complaint(error, model, where, key) from None


def complaint(error: ValidationError, model: type[BaseModel], where: str, key: Key = dotted) -> InputError:
    """The first of pydantic's findings as an InputError."""
    first = _first(error.errors(include_url=False))
    loc: Loc = first["loc"]
    if first["type"] == "extra_forbidden":
        loc, name = loc[:-1], str(loc[-1])
        found, accepted = f"unknown key {shown(name)}{nearest(name, keys_at(model, loc))}", ""
    elif first["type"] == "invalid_key":
        loc, found, accepted = loc[:-1], f"the key {shown(first['input'])}", "keys that are text"
    else:
        found, accepted = _said(first)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    place = ": ".join(x for x in (where, key(loc)) if x)
    return InputError(place, found, accepted + more) if accepted else InputError(place, found + more)


def _first(errors: list[Any]) -> dict[str, Any]:
    """The first error; of a key that is missing, the misspelt one beside it if there is one."""
    first: dict[str, Any] = errors[0]
    if first["type"] == "missing":
        beside = [e for e in errors if e["type"] == "extra_forbidden" and e["loc"][:-1] == first["loc"][:-1]]
        return beside[0] if beside else first
    return first


def _said(error: dict[str, Any]) -> tuple[str, str]:
    """What was found and what is accepted."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        found, _, accepted = str(context["error"]).partition("; accepted: ")
        return found, accepted
    if kind == "missing":
        return "is missing", ""
    if kind in BOUNDS:
        sign, limit = BOUNDS[kind]
        return f"got {shown(value)}", f"{sign} {context[limit]:.15g}"
    if kind == "literal_error":
        return f"got {shown(value)}", context["expected"].replace("'", "")
    return f"got {shown(value)}", WORDS.get(kind) or _from_message(error["msg"])


BOUNDS = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("<=", "le"),
}
WORDS = {
    "model_type": "keys with values ({key: value})",
    "model_attributes_type": "keys with values ({key: value})",
    "dict_type": "keys with values ({key: value})",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "text (a number or a word like yes needs quotes)",
    "too_short": "at least one",
}


def _from_message(message: str) -> str:
    """What pydantic says of a fault that has no words of ours."""
    return message.removeprefix("Input should be ").removeprefix("a valid ")


def keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """The keys that may stand at a place in a model."""
    here = set(_models_in(model, loc))
    for part in loc:
        inner: set[type[BaseModel]] = set()
        for candidate in here:
            for name, field in candidate.model_fields.items():
                if part in (name, field.alias):
                    inner |= set(_models_in(field.annotation, loc))
        here = inner or here
    return sorted({field.alias or name for m in here for name, field in m.model_fields.items()})


def _models_in(annotation: Any, loc: Loc) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, at any depth, but for a table where a list stands and the reverse."""
    tags = {m.tag for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Tag)}
    if tags & {"<file>", "<list>"} and not tags & set(loc):
        return
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        yield from _models_in(annotation.model_fields["root"].annotation, loc)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument, loc)
