"""From a YAML or JSON file to plain values: dicts, lists, text, numbers, true, false, null.

YAML is read in its 1.2 core: ``yes``, ``4:00``, ``2024-01-01`` and ``0012`` are text, ``1e3`` is a number. A key
that comes twice is an error in both, because the second would silently win.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InputError
from planner.quantities import shown
from planner.tables import read_text

MAX_DEPTH = 64
MAX_VALUES = 5_000_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
#: https://yaml.org/spec/1.2.2/#103-core-schema, without the octal and hexadecimal integers.
CORE = {
    "tag:yaml.org,2002:null": (r"~|null|Null|NULL|", "~nN\0"),
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "tag:yaml.org,2002:merge": (r"<<", "<"),
}


class Loader(_Loader):  # type: ignore[misc]  # chosen at run time
    """Safe loading with YAML 1.2's words and without keys that come twice."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  # PyYAML's own name and kind

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, each key once; keys that are merged in do not count."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {shown(key.value)} comes twice", key.start_mark
                    )
                seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
Loader.yaml_constructors = {
    tag: maker
    for tag, maker in Loader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in _PLAIN
}


class Dumper(_Dumper):  # type: ignore[misc]  # chosen at run time
    """Safe dumping that quotes what YAML 1.1 or 1.2 would not read back as text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values out."""
        return True


for _tag, (_pattern, _first) in CORE.items():
    for _class in (Loader, Dumper):
        _class.add_implicit_resolver(
            _tag, re.compile(rf"^(?:{_pattern})$"), list(_first.replace("\0", "")) + [""] * ("\0" in _first)
        )


def read_plain(path: Path, text: str | None = None) -> Any:
    """The values in a YAML or JSON file, or in its text where that was read already."""
    text = read_text(path) if text is None else text
    if not text.strip():
        raise InputError(str(path), "the file is empty", "a scenario or snapshot in YAML or JSON")
    if path.suffix.lower() == ".json" or text.lstrip()[0] == "{":
        return parse_json(text, str(path))
    return parse_yaml(text, str(path))


def parse_json(text: str, where: str) -> Any:
    """JSON; a key that comes twice is an error."""
    try:
        values = json.loads(text, object_pairs_hook=_once)
        if r"\ud" in text.lower():
            json.dumps(values, ensure_ascii=False).encode()
        return values
    except UnicodeEncodeError:
        raise InputError(where, "half of a surrogate pair", "characters") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: line {error.lineno}", f"not JSON: {error.msg.lower()}", "JSON") from None
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:  # a key twice, or an int of more than 4300 digits
        raise InputError(where, str(error).partition(";")[0]) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [k for k, _ in pairs]
        raise ValueError(f"the key {shown(next(k for k in keys if keys.count(k) > 1))} comes twice")
    return made


def parse_yaml(text: str, where: str) -> Any:
    """YAML's first and only document."""
    try:
        _check_depth(text, where)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if "*" in text:
                _check_size(node, where)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f": line {mark.line + 1}" if mark else ""
        no_syntax = isinstance(error, yaml.constructor.ConstructorError)
        found = str(error.problem) if no_syntax else f"not YAML: {error.problem or error.context}"
        raise InputError(f"{where}{line}", found, "" if no_syntax else "YAML") from None
    except yaml.YAMLError as error:
        raise InputError(
            where, f"not YAML: {getattr(error, 'reason', None) or 'unreadable'}", "YAML"
        ) from None
    except RecursionError:
        raise _too_deep(where) from None
    except (ValueError, KeyError, IndexError) as error:  # an int of more than 4300 digits, or "!!bool maybe"
        raise InputError(where, f"not YAML: {str(error).partition(';')[0]}", "YAML") from None


def _too_deep(where: str) -> InputError:
    return InputError(where, "the values are nested too deeply", f"at most {MAX_DEPTH} levels")


def _check_depth(text: str, where: str) -> None:
    """Refuse text so deeply nested that the parser would run out of stack."""
    depth = 0
    for bracket in re.findall(r"[\[{\]}]", text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        # Brackets in quoted text count too, hence the slack.
        if depth > 4 * MAX_DEPTH:
            raise _too_deep(where)
    if re.search(rf"(?:[-?:][ \t]+){{{MAX_DEPTH}}}", text) or re.search(
        rf"^ {{{8 * MAX_DEPTH}}}", text, re.MULTILINE
    ):
        raise _too_deep(where)


def _check_size(node: yaml.Node, where: str) -> None:
    """Refuse aliases that would multiply into too many values, or lead back to themselves."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known == 0:
            raise InputError(where, "an alias leads back to itself", "values that end")
        if known is None:
            sizes[id(node)] = 0
            children = node.value if isinstance(node, yaml.CollectionNode) else ()
            inner = (x for child in children for x in (child if isinstance(child, tuple) else (child,)))
            known = sizes[id(node)] = 1 + sum(map(size, inner))
            if known > MAX_VALUES:
                raise InputError(where, "the aliases multiply into too many values", f"at most {MAX_VALUES}")
        return known

    size(node)
