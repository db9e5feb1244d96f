"""Model files: the same model gives the same bytes, and what is no model of this kind is refused with file and key."""

import json

import pytest

from planner.errors import InputError
from planner.predict import model_file
from planner.predict.model_file import ModelFile, Score, Training, digest, load, parsed, text_of

METHODS = ("blend", "learned")


def model(**fields):
    known = {
        "kind": "interference",
        "method": "blend",
        "columns": ("a", "b"),
        "training": Training(digest=digest(["x"]), rows=3, files=("pairs.csv",)),
        "scores": (Score(split="random", method="blend", rows=3, values={"mae_speed": 0.1, "auc": None}),),
        "parameters": {"weights": [0.1, 1 / 3], "deep": {"z": 1, "a": None}},
    }
    return ModelFile(**known | fields)


def read(text):
    return parsed(text, "m.json", "interference", METHODS)


def test_a_model_read_from_its_file_is_the_same_to_the_byte(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(text_of(model()))
    found = load(path, "interference", METHODS)
    assert found == model()
    assert text_of(found) == path.read_text()


def test_the_order_in_which_parameters_were_made_does_not_change_the_text():
    assert text_of(model(parameters={"a": 1, "b": 2})) == text_of(model(parameters={"b": 2, "a": 1}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_not_written(value):
    with pytest.raises(ValueError, match="JSON compliant"):
        text_of(model(parameters={"x": value}))


def test_the_digest_follows_the_rows_and_not_their_order():
    assert digest(["a", "b"]) == digest(["b", "a"])
    assert len({digest(["a", "b"]), digest(["a"]), digest(["ab"]), digest(["a", "b", "b"])}) == 4


def changed(**fields):
    return json.dumps({**json.loads(text_of(model())), **fields})


def without(key):
    return json.dumps({k: v for k, v in json.loads(text_of(model())).items() if k != key})


REFUSED = {
    "not JSON": ("{", "m.json: it is not JSON"),
    "an empty file": ("", "m.json: it is not JSON"),
    "deep in itself": ("[" * 100_000, "m.json: it is not JSON"),
    "a list": ("[]", "m.json: it holds no JSON object"),
    "an empty object": ("{}", "m.json: schema: got null"),
    "another schema": (changed(schema="planner.plan/1"), "m.json: schema: got 'planner.plan/1'"),
    "a schema without a version": (changed(schema="planner.model"), "m.json: schema: got 'planner.model'"),
    "a schema of a negative version": (
        changed(schema="planner.model/-1"),
        "m.json: schema: got 'planner.model/-1'",
    ),
    "a newer version": (
        changed(schema="planner.model/2"),
        "m.json: schema: version 2, made by a newer planner; accepted: up to planner.model/1",
    ),
    "another kind": (changed(kind="usage"), "m.json: kind: got 'usage'; accepted: interference"),
    "a kind that is a list": (changed(kind=["interference"]), "m.json: kind: got ['interference']"),
    "no kind": (without("kind"), "m.json: kind: got null"),
    "another method": (changed(method="oracle"), "m.json: method: got 'oracle'; accepted: blend or learned"),
    "other units": (changed(units=model_file.UNITS | {"memory": "GB"}), "m.json: units: got {"),
    "no training": (without("training"), "m.json: training: Field required"),
    "a bad count of rows": (
        changed(training={"digest": "", "rows": -1}),
        "m.json: training.rows: Input should be greater",
    ),
    "an unknown key": (changed(more=1), "m.json: more: Extra inputs are not permitted"),
    "parameters that are none": (changed(parameters=[]), "m.json: parameters: Input should be a valid dict"),
    "a score that is no number": (
        changed(scores=[{"split": "s", "method": "m", "rows": 1, "values": {"auc": 1}}]).replace(
            '"auc": 1', '"auc": 1e999'
        ),
        "m.json: scores.0.values.auc: Input should be a finite number",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_model_of_this_kind_is_refused_with_file_and_key(text, message):
    with pytest.raises(InputError) as error:
        read(text)
    assert str(error.value).startswith(message)
    assert "accepted: " in str(error.value)


def test_a_model_without_a_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: no such file"):
        load(tmp_path / "none.json", "interference", METHODS)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_refused_anywhere(number):
    with pytest.raises(InputError, match="it is not JSON"):
        read(changed(parameters={"x": 1.5}).replace("1.5", number))
