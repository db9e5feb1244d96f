"""``planner fit interference`` and ``planner predict interference``: what they print and write, and bad input as one line."""

import csv
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from measured import NAMES, made_up, write

from planner.predict.fit_pairs import fit_files
from planner.predict.model_file import text_of

#: What is asked: the measured columns are there and empty, jobs known and not, on a GPU model known and not.
ASKED = [
    {"gpu_type": "v100", "job_a": "kiln", "batch_a": 16, "amp_a": 0, "job_b": "loom", "batch_b": 64, "amp_b": 0},
    {"gpu_type": "Tesla K80", "job_a": "saw", "batch_a": "", "amp_a": "", "job_b": "loom", "batch_b": 16, "amp_b": 0},
    {"gpu_type": "t4", "job_a": "kiln", "batch_a": 16, "amp_a": 0, "job_b": "kiln", "batch_b": 16, "amp_b": 0},
    {"gpu_type": "v100", "job_a": "loom", "batch_a": 64, "amp_a": 0, "job_b": "kiln", "batch_b": 16, "amp_b": 0},
]  # fmt: skip
EMPTY = {"slowdown_a": "", "slowdown_b": "", "feasible": ""}
NO_TREES = find_spec("sklearn") is None
METHODS = ("similarity", pytest.param("blend", marks=pytest.mark.skipif(NO_TREES, reason="no scikit-learn")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of pairs and profiles, and a model of each method fitted to them."""
    folder = tmp_path_factory.mktemp("fit")
    made = made_up(folder, names=NAMES[:4])
    for method in ("similarity",) if NO_TREES else ("similarity", "blend"):
        (folder / f"{method}.json").write_text(text_of(fit_files(made.pairs, made.profiles, method)))
    return folder


@pytest.fixture(autouse=True)
def here(folder, tmp_path, monkeypatch):
    """A folder of the test's own that holds copies of them, and a table of questions."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    write(tmp_path / "asked.csv", [{**row, **EMPTY} for row in ASKED])
    monkeypatch.chdir(tmp_path)


# -- fit ---------------------------------------------------------------------------------------------

FIT = ("fit", "interference", "pairs.csv", "--profiles", "profiles.csv", "--method", "similarity", "--out", "m.json")  # fmt: skip


def test_a_fit_prints_its_errors_on_unseen_rows_and_writes_the_model(ran):
    code, out, err = ran(*FIT)
    assert code == 0
    assert Path("m.json").read_text() == Path("similarity.json").read_text()
    assert "interference, similarity" in out
    assert "72 rows of pairs.csv, profiles.csv" in out
    for split in ("random", "leave one model out"):
        assert f"errors on unseen rows, {split}\n" in out
        assert f"planner: {split}, fold 1: " in err
    lines = [line.split() for line in out.splitlines()]
    scores = json.loads(Path("m.json").read_text())["scores"]
    (found,) = [s for s in scores if (s["split"], s["group"], s["method"]) == ("random", "GPU k80", "hinge")]
    shown = [f"{found['values'][k]:.3f}" for k in ("mae_speed", "bias", "rank", "auc")]
    assert ["GPU", "k80", "hinge", "72", *shown] in [line[:8] for line in lines]


def test_a_fit_prints_its_scores_as_json(ran):
    code, out, _ = ran(*FIT, "--json")
    assert code == 0
    assert json.loads(out) == json.loads(Path("m.json").read_text())["scores"]


WRONG_FITS = [
    (["none.csv", "--out", "m.json"], "none.csv: no such file"),
    (["pairs.csv", "--profiles", "none.csv", "--out", "m.json"], "none.csv: no such file"),
    (["pairs.csv", "--out", "-"], "--out -: the table of errors goes to standard output; accepted: a file"),
    (["pairs.csv", "--out", "no/m.json"], "--out no/m.json: there is no directory 'no'; accepted: a file in a directory that exists"),
    (["pairs.csv", "--out", "m.json", "--method", "oracle"], "--method: oracle; accepted: blend, learned, similarity"),
    (["pairs.csv"], "Missing option '--out'. (planner --help tells more)"),
    (["profiles.csv", "--out", "m.json"], "profiles.csv: line 1: no column job_a; accepted: the columns gpu_type, job_a, job_b"),
    (["pairs.csv", "--profiles", "pairs.csv", "--out", "m.json"], "pairs.csv: line 1: no column model; accepted: the columns gpu_type, model"),
    (["asked.csv", "--out", "m.json"], "asked.csv: line 2: slowdown_a: the pair is not measured; accepted: a slowdown of at least 0.2, the throughputs iso_tput and col_tput, or feasible = 0"),
    (["few.csv", "--out", "m.json"], "pairs: 3 pairs measured and feasible; accepted: at least 20"),
    (["empty.csv", "--out", "m.json"], "empty.csv: the file is empty; accepted: CSV with a header line gpu_type, job_a, job_b"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), WRONG_FITS, ids=[" ".join(a) for a, _ in WRONG_FITS])
def test_a_wrong_fit_is_one_line_and_exit_2_and_writes_nothing(ran, args, message):
    Path("few.csv").write_text("".join(Path("pairs.csv").read_text().splitlines(keepends=True)[:4]))
    Path("empty.csv").write_text("")
    assert ran("fit", "interference", *args) == (2, "", f"planner: {message}\n")
    assert not Path("m.json").exists()


# -- predict -----------------------------------------------------------------------------------------


def ask(model="similarity.json", pairs="asked.csv", *more):
    return ("predict", "interference", "--model", model, "--pairs", pairs, *more)


@pytest.mark.parametrize("method", METHODS)
def test_predictions_are_a_list_in_the_order_of_the_file(ran, method):
    code, out, err = ran(*ask(f"{method}.json"), "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [(f["line"], f["gpu_type"], f["job_a"], f["job_b"], f["basis"]) for f in found] == [
        (2, "v100", "kiln:16", "loom:64", "known"),
        (3, "k80", "saw", "loom:16", "unknown"),
        (4, "t4", "kiln:16", "kiln:16", "unknown GPU model"),
        (5, "v100", "loom:64", "kiln:16", "known"),
    ]
    for row in found:
        for side in "ab":
            assert 1 <= row[f"slowdown_{side}"] <= row[f"slowdown_{side}_p90"] <= 20
    first, last = found[0], found[-1]
    assert first["slowdown_a_p90"] > first["slowdown_a"] > 1
    assert (first["slowdown_a"], first["slowdown_b_p90"]) == (last["slowdown_b"], last["slowdown_a_p90"])


@pytest.mark.parametrize("method", METHODS)
def test_predictions_are_near_what_was_measured_and_mostly_below_their_p90(ran, method):
    """Of the rows of the fit itself, whose noise is 0.01."""
    found = json.loads(ran(*ask(f"{method}.json", "pairs.csv"), "--json")[1])
    with Path("pairs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(found) == len(rows) == 72
    keys = ("slowdown_a", "slowdown_b")
    errors = [abs(f[k] - float(r[k])) for f, r in zip(found, rows, strict=True) for k in keys]
    above = [float(r[k]) > f[f"{k}_p90"] for f, r in zip(found, rows, strict=True) for k in keys]
    assert sum(errors) / len(errors) < 0.03
    assert sum(above) / len(above) < 0.1


def test_measured_columns_may_be_left_out_and_change_nothing(ran):
    write(Path("bare.csv"), ASKED)
    write(Path("told.csv"), [{**row, "slowdown_a": 3, "slowdown_b": 4, "feasible": 1} for row in ASKED])
    assert ran(*ask(), "--json") == ran(*ask(pairs="bare.csv"), "--json") == ran(*ask(pairs="told.csv"), "--json")  # fmt: skip


def test_predictions_for_people_are_a_table(ran):
    code, out, _ = ran(*ask())
    rows = [line.split() for line in out.splitlines()]
    found = json.loads(ran(*ask(), "--json")[1])[0]
    shown = [f"{found[k]:.2f}" for k in ("slowdown_a", "slowdown_a_p90", "slowdown_b", "slowdown_b_p90")]
    assert code == 0
    assert [row for row in rows if row[:8] == ["2", "v100", "kiln:16", "loom:64", *shown]]


def damaged(change):
    """The model's text after a change of its plain JSON."""
    whole = json.loads(Path("similarity.json").read_text())
    change(whole)
    return json.dumps(whole)


WRONG_MODELS = {
    "no JSON": (lambda: "{", "bad.json: it is not JSON; accepted: a model written by planner fit interference"),
    "no model": (lambda: "{}", "bad.json: schema: got null; accepted: a model written by planner fit interference"),
    "newer": (lambda: damaged(lambda m: m.update(schema="planner.model/9")), "bad.json: schema: version 9, made by a newer planner; accepted: up to planner.model/1"),
    "another kind": (lambda: damaged(lambda m: m.update(kind="usage")), "bad.json: kind: got 'usage'; accepted: interference"),
    "another method": (lambda: damaged(lambda m: m.update(method="ridge")), "bad.json: method: got 'ridge'; accepted: blend or learned or similarity"),
    "no parameters": (lambda: damaged(lambda m: m.update(parameters={})), "bad.json: parameters: KeyError: 'works'; accepted: what planner fit interference wrote"),
    "words for numbers": (lambda: damaged(lambda m: m["parameters"].update(mean=["x"])), "bad.json: parameters: ValueError: could not convert string to float: 'x'; accepted: what planner fit interference wrote"),
    "null for a likeness": (lambda: damaged(lambda m: m["parameters"]["similarity"].update(kernel=None)), "bad.json: parameters: TypeError: "),
    "another kernel": (lambda: damaged(lambda m: m["parameters"]["similarity"]["kernel"].update(warp=1)), "bad.json: parameters: TypeError: "),
    "too few means": (lambda: damaged(lambda m: m["parameters"].update(mean=[1.0, 2.0])), "bad.json: parameters: ValueError: "),
    "a job that is not there": (lambda: damaged(lambda m: m["parameters"]["similarity"]["cells"][1].__setitem__(0, 999)), "bad.json: parameters: IndexError: "),
    "no spread": (lambda: damaged(lambda m: m["parameters"].update(spread={})), "bad.json: parameters: KeyError: 'known'"),
    "no share": (lambda: damaged(lambda m: m["parameters"].update(share={"known": 0})), "bad.json: parameters: KeyError: 'unknown'"),
    "works that are none": (lambda: damaged(lambda m: m["parameters"].update(works=[])), "bad.json: parameters: TypeError: "),
    "half a memory model": (lambda: damaged(lambda m: m["parameters"].update(feasibility={})), "bad.json: parameters: KeyError: 'factors'; accepted: "),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_MODELS.values(), ids=list(WRONG_MODELS))
def test_a_wrong_model_is_one_line_and_exit_2(ran, text, message):
    Path("bad.json").write_text(text())
    code, out, err = ran(*ask("bad.json"))
    assert (code, out) == (2, "")
    assert err.startswith(f"planner: {message}")
    assert err.count("\n") == 1


WRONG_QUESTIONS = {
    "a missing model": (ask("none.json"), "none.json: no such file"),
    "missing pairs": (ask(pairs="none.csv"), "none.csv: no such file"),
    "no model": (("predict", "interference", "--pairs", "asked.csv"), "Missing option '--model'. (planner --help tells more)"),
    "no pairs": (("predict", "interference", "--model", "similarity.json"), "Missing option '--pairs'. (planner --help tells more)"),
    "a table as a model": (ask("pairs.csv"), "pairs.csv: it is not JSON; accepted: a model written by planner fit interference"),
    "a model as a table": (ask(pairs="similarity.json"), "similarity.json: line 1: "),
    "no rows": (ask(pairs="header.csv"), "header.csv: it has no rows; accepted: a header line and at least one pair"),
    "a bad cell": (ask(pairs="bad.csv"), "bad.csv: line 5: batch_b: got '-1'; accepted: a number of at least 1"),
}  # fmt: skip


@pytest.mark.parametrize(("args", "message"), WRONG_QUESTIONS.values(), ids=list(WRONG_QUESTIONS))
def test_a_wrong_question_is_one_line_and_exit_2(ran, args, message):
    Path("header.csv").write_text("gpu_type,job_a,job_b\n")
    write(Path("bad.csv"), [*ASKED[:3], {**ASKED[3], "batch_b": -1}])
    code, out, err = ran(*args)
    assert (code, out) == (2, "")
    assert err.startswith(f"planner: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_command_of_commands_alone_says_what_there_is(ran, command):
    code, out, _ = ran(command)
    assert code == 0
    assert "interference" in out
