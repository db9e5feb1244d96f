"""Tables of measured pairs: what a row says, what every bad cell is told, and a job's numbers worked out by hand."""

import math

import numpy as np
import pytest
from measured import write

from planner.errors import InputError
from planner.predict.pairs import Alone, Work, read_pairs, read_profiles
from planner.predict.works import OWN, Works

ROW = {"gpu_type": "T4", "job_a": "loom", "job_b": "mill", "slowdown_a": "1.5", "slowdown_b": "1.25"}
PROFILE = {"gpu_type": "t4", "model": "loom", "batch": "8", "iso_tput": "4", "tput_unit": "steps/s"}


@pytest.fixture
def pairs(tmp_path):
    """Read a table of rows that differ from ROW in the fields given."""

    def read(*rows, profiles=None, measured=True):
        path = write(tmp_path / "pairs.csv", [{**ROW, **row} for row in rows])
        return read_pairs(path, profiles or {}, measured=measured)

    return read


@pytest.fixture
def profiles(tmp_path):
    """Read a table of rows that differ from PROFILE in the fields given."""

    def read(*rows):
        columns = dict.fromkeys([*PROFILE, *(key for row in rows for key in row)], "")
        return read_profiles(write(tmp_path / "profiles.csv", [{**columns, **PROFILE, **r} for r in rows]))

    return read


# -- pairs -------------------------------------------------------------------------------------------


def test_a_row_says_two_jobs_a_gpu_model_and_two_slowdowns(pairs):
    full = {"dataset_a": "wool", "batch_a": "16", "amp_a": "1", "gpus_a": "1", "batch_b": "32.0", "amp_b": "0.0"}  # fmt: skip
    (found,) = pairs(full)
    assert (found.a, found.b) == (Work("loom", "wool", 16, True), Work("mill", "", 32, False))
    assert (found.gpu_model, found.line) == ("t4", 2)
    assert (found.slowdown_a, found.slowdown_b, found.feasible) == (1.5, 1.25, None)
    assert found.alone_a == found.alone_b == Alone()


def test_the_key_of_a_work_says_what_is_known_of_it():
    assert Work("loom", "wool", 16, True).key == "loom/wool:16+amp"
    assert Work("loom", batch=16, mixed=False).key == "loom:16"
    assert Work("loom").key == "loom"


@pytest.mark.parametrize("cell", ["nan", "-inf", "-1", "0.19", "0", "much", "1,5"])
def test_a_slowdown_that_is_no_number_of_at_least_a_fifth_is_refused(pairs, cell):
    with pytest.raises(InputError) as error:
        pairs({}, {"slowdown_b": cell})
    assert "pairs.csv: line 3: slowdown_b: got " in str(error.value)
    assert error.value.accepted == "a number of at least 0.2"


BAD_CELLS = [
    ("batch_a", "1.5", "line 2: batch_a: got 1.5; accepted: a whole number"),
    ("batch_b", "0", "line 2: batch_b: got '0'; accepted: a number of at least 1"),
    ("batch_a", "nan", "line 2: batch_a: got 'nan'; accepted: a number of at least 1"),
    ("amp_a", "2", "line 2: amp_a: got '2'; accepted: 0 or 1"),
    ("sharing", "mig", "line 2: sharing: got 'mig'; accepted: time-slice or mps"),
    ("amp_b", "yes", "line 2: amp_b: got 'yes'; accepted: a number of at least 0"),
    ("gpus_a", "2", "line 2: gpus_a: got 2; accepted: 1: pairs are on one GPU"),
    ("gpus_b", "0.5", "line 2: gpus_b: got '0.5'; accepted: a number of at least 1"),
    ("feasible", "0.5", "line 2: feasible: got '0.5'; accepted: 0 or 1"),
    ("iso_tput_a", "-2", "line 2: iso_tput_a: got '-2'; accepted: a number of at least 0"),
    ("iso_tput_b", "fast", "line 2: iso_tput_b: got 'fast'; accepted: a number of at least 0"),
    ("col_tput_b", "inf", "line 2: col_tput_b: got 'inf'; accepted: a number of at least 0, at most 1e+12"),
    ("slowdown_a", "inf", "line 2: slowdown_a: got 'inf'; accepted: a number of at least 0.2, at most 1e+12"),
    (
        "slowdown_b",
        "1e13",
        "line 2: slowdown_b: got '1e13'; accepted: a number of at least 0.2, at most 1e+12",
    ),
    ("iso_tput_a", "1e-320", "line 2: iso_tput_a: got '1e-320'; accepted: 0, or at least 1e-09"),
    ("gpu_type", " ", "line 2: gpu_type: the cell is empty; accepted: a name"),
    ("job_a", "", "line 2: job_a: the cell is empty; accepted: a name"),
    ("job_b", "", "line 2: job_b: the cell is empty; accepted: a name"),
]


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize(("key", "cell", "message"), BAD_CELLS, ids=[f"{k}={c}" for k, c, _ in BAD_CELLS])
def test_a_bad_cell_is_refused_with_its_line_and_column(pairs, key, cell, message, measured):
    said = {"slowdown_b": ""} if key == "col_tput_b" else {}  # read only where no slowdown is said
    with pytest.raises(InputError) as error:
        pairs({**said, key: cell}, measured=measured)
    assert str(error.value).endswith(message)


@pytest.mark.parametrize("column", ["gpu_type", "job_a", "job_b"])
def test_a_table_without_a_needed_column_is_refused(tmp_path, column):
    path = write(tmp_path / "p.csv", [{k: v for k, v in ROW.items() if k != column}])
    with pytest.raises(
        InputError, match=rf"p\.csv: line 1: no column {column}; accepted: the columns gpu_type"
    ):
        read_pairs(path, {}, measured=False)


def test_an_empty_table_is_refused(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("")
    with pytest.raises(InputError, match=r"p\.csv: the file is empty"):
        read_pairs(path, {}, measured=False)
    path.write_text(",".join(ROW) + "\n")
    with pytest.raises(InputError, match=r"p\.csv: it has no rows"):
        read_pairs(path, {}, measured=False)
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        read_pairs(tmp_path / "none.csv", {}, measured=False)


def test_a_fit_refuses_a_pair_that_is_not_measured_and_a_question_may_be_one(pairs):
    with pytest.raises(InputError, match=r"line 3: slowdown_b: the pair is not measured"):
        pairs({}, {"slowdown_b": ""})
    with pytest.raises(InputError, match=r"line 2: slowdown_a: the pair is not measured"):
        pairs({"slowdown_a": "", "iso_tput_a": "3"})
    asked = pairs({"slowdown_a": "", "slowdown_b": ""}, measured=False)[0]
    assert (asked.slowdown_a, asked.slowdown_b) == (None, None)


def test_a_pair_that_does_not_fit_has_no_slowdown_even_if_one_is_said(pairs):
    found = pairs({"feasible": "0"}, {"feasible": "1"})
    assert [p.slowdown_a for p in found] == [None, 1.5]
    assert [p.feasible for p in found] == [False, True]


def test_slowdowns_are_made_of_the_throughputs_where_none_is_said(pairs):
    said = {"slowdown_a": "", "slowdown_b": "", "iso_tput_a": "6", "iso_tput_b": "9"}
    found = pairs({**said, "col_tput_a": "4", "col_tput_b": "3"})[0]
    assert (found.slowdown_a, found.slowdown_b) == (1.5, 3)
    with pytest.raises(InputError, match="slowdown_b: the pair is not measured"):
        pairs({**said, "col_tput_a": "4", "col_tput_b": "0"})


def test_a_speed_above_the_speed_alone_counts_as_the_speed_alone(pairs):
    made = {"slowdown_b": "", "iso_tput_b": "3", "col_tput_b": "3.5"}
    found = pairs({"slowdown_a": "0.9", **made})[0]
    assert (found.slowdown_a, found.slowdown_b) == (1, 1)


def test_a_pair_carries_what_is_known_of_its_jobs_alone(pairs):
    known = Alone(utilisation_pct=70, memory_mib=900)
    found = pairs({"iso_tput_a": "4", "iso_tput_b": "5"}, profiles={("t4", Work("loom")): known})[0]
    assert found.alone_a == Alone(utilisation_pct=70, memory_mib=900, step_s=0.25)
    assert found.alone_b == Alone(step_s=0.2)


def test_two_spellings_of_a_gpu_model_are_one(pairs):
    assert {p.gpu_model for p in pairs({"gpu_type": "Tesla T4"}, {"gpu_type": "NVIDIA-T4"})} == {"t4"}


# -- profiles ----------------------------------------------------------------------------------------


def test_a_profile_says_what_a_job_uses_alone(profiles):
    found = profiles({"gpu_util_pct": "80", "gmem_util_pct": "35.5", "gmem_mib": "2000", "amp": "1"})
    assert found == {("t4", Work("loom", "", 8, True)): Alone(80, 35.5, 2000, 0.25)}


def test_samples_a_second_and_steps_a_second_of_the_same_job_are_the_same_step(profiles):
    steps = profiles({"iso_tput": "4", "tput_unit": "steps/s"})
    assert steps == profiles({"iso_tput": "32", "tput_unit": "samples/s"})
    assert steps == profiles({"iso_tput": "4", "tput_unit": ""})
    assert steps == {("t4", Work("loom", "", 8)): Alone(step_s=0.25)}


def test_several_rows_of_one_profile_fill_each_other_in_and_the_first_counts(profiles):
    found = profiles(
        {"iso_tput": "", "gpu_util_pct": "0"},
        {"iso_tput": "2", "gpu_util_pct": "50", "gmem_mib": "7"},
        {"iso_tput": "9", "gpus": "2", "gmem_util_pct": "9"},
    )
    assert found == {("t4", Work("loom", "", 8)): Alone(0, None, 7, 0.5)}


def test_unknown_cells_of_a_profile_stay_unknown(profiles):
    assert profiles({"batch": "", "iso_tput": ""}) == {("t4", Work("loom")): Alone()}
    assert profiles({"iso_tput": "0"}) == {("t4", Work("loom", "", 8)): Alone()}


@pytest.mark.parametrize(
    ("key", "cell", "accepted"),
    [
        ("gpu_util_pct", "101", "a number of at least 0, at most 100"),
        ("gpu_util_pct", "nan", "a number of at least 0, at most 100"),
        ("gmem_util_pct", "-1", "a number of at least 0, at most 100"),
        ("gmem_mib", "1e308", "a number of at least 0, at most 1e+12"),
        ("iso_tput", "1e-10", "0, or at least 1e-09"),
        ("iso_tput", "-3", "a number of at least 0"),
        ("batch", "2.5", "a whole number"),
        ("amp", "3", "0 or 1"),
        ("gpus", "none", "a number of at least 1"),
        ("model", "", "a name"),
    ],
)
def test_a_bad_cell_of_a_profile_is_refused(profiles, key, cell, accepted):
    with pytest.raises(InputError) as error:
        profiles({}, {key: cell})
    assert error.value.where.endswith(f"profiles.csv: line 3: {key}")
    assert error.value.accepted == accepted


# -- works -------------------------------------------------------------------------------------------


def works_of(**steps):
    """Four jobs that take a step of one second, and loom:8, loom:16, loom:64, on each of the GPU models."""
    known = {(gpu, Work(f"other{i}", batch=8)): Alone(step_s=1.0) for gpu in ("k80", "t4") for i in range(4)}
    known |= {
        (gpu, Work("loom", batch=int(size[1:]))): Alone(step_s=s)
        for gpu, sizes in steps.items()
        for size, s in sizes.items()
    }
    return Works.of(known)


def number(works, column, gpu, batch, alone=None):
    alone = alone or Alone()
    return works.vector(gpu, Work("loom", batch=batch), alone)[works.columns.index(column)]


def test_scaling_is_the_slope_between_the_neighbouring_batch_sizes():
    works = works_of(t4={"b8": 1.0, "b16": 1.5, "b64": 4.0})
    # Samples a second are 8, 10.67 and 16: from 8 to 64 they double; from 16 to 64 they grow by half.
    assert number(works, "scaling", "t4", 16) == pytest.approx(math.log(2) / math.log(8))
    assert number(works, "scaling", "t4", 64) == pytest.approx(math.log(1.5) / math.log(4))
    assert number(works, "scaling", "t4", 8) == pytest.approx(math.log(4 / 3) / math.log(2))
    assert number(works, "scaling:t4", "k80", 16) == pytest.approx(math.log(2) / math.log(8))
    assert np.isnan(number(works, "scaling", "k80", 16))
    assert np.isnan(number(works, "scaling", "t4", None))


def test_one_batch_size_tells_no_scaling():
    assert np.isnan(number(works_of(t4={"b8": 1.0}), "scaling", "t4", 8))


def test_gain_is_how_much_faster_a_job_is_than_its_mean_over_gpu_models():
    works = works_of(t4={"b8": 0.5}, k80={"b8": 2.0})
    # In logarithms the mean step is that of one second.
    assert number(works, "gain:t4", "t4", 8) == pytest.approx(math.log(2))
    assert number(works, "gain:k80", "t4", 8) == pytest.approx(-math.log(2))


def test_a_job_known_on_one_gpu_model_has_no_gain():
    works = works_of(t4={"b8": 0.5})
    assert np.isnan(number(works, "gain:t4", "t4", 8))
    assert number(works, "gain:t4", "k80", 8, Alone(step_s=2.0)) == pytest.approx(math.log(2))


def test_gpu_models_with_few_profiles_say_nothing_about_others():
    few = {("v100", Work(f"w{i}")): Alone(step_s=1.0) for i in range(3)}
    many = {("t4", Work(f"w{i}")): Alone(step_s=1.0) for i in range(4)}
    idle = {("p4", Work(f"w{i}")): Alone(utilisation_pct=3) for i in range(9)}
    assert Works.of(few | many | idle).models == ("t4",)


def test_a_vector_holds_what_is_known_alone_and_nan_for_the_rest():
    works = works_of()
    known = works.vector("t4", Work("loom", "", 8, True), Alone(50, 20, 1000, math.e))
    assert dict(zip(OWN, known[:6].tolist(), strict=False)) == {
        "utilisation_pct": 50,
        "bandwidth_pct": 20,
        "memory_mib": 1000,
        "log2_batch": 3,
        "mixed": 1,
        "log_step_s": pytest.approx(1),
    }
    assert np.isnan(works.vector("t4", Work("loom"), Alone())).all()


def test_works_read_from_their_json_are_the_same():
    works = works_of(t4={"b8": 0.5, "b16": 0.7})
    assert Works.of_json(works.as_json()) == works


@pytest.fixture
def named():
    """Two sizes of loom, one mill, a press with and without its batch, and a kiln of two unsaid precisions."""
    kinds = [
        Work("Big-Loom", "wool", 16, False),
        Work("Big-Loom", "wool", 32, True),
        Work("mill", "", 8),
        Work("press"),
        Work("press", batch=8),
        Work("kiln", batch=8),
        Work("kiln", batch=8, mixed=False),
    ]
    return Works.of({("t4", k): Alone() for k in kinds} | {("k80", kinds[2]): Alone()})


def test_a_profile_names_a_work_by_its_key_or_its_name_where_one_has_it(named):
    assert named.by_name("Big-Loom/wool:16") == Work("Big-Loom", "wool", 16, False)
    assert named.by_name("bigloom/wool:32+AMP") == Work("Big-Loom", "wool", 32, True)
    assert named.by_name("MILL") == named.by_name("mill:8") == Work("mill", "", 8)
    assert named.by_name("press") == Work("press")


@pytest.mark.parametrize("name", ["Big-Loom", "big loom/wool", "kiln:8", "kiln", "mil", "mill:16", ""])
def test_a_profile_that_names_none_or_several_is_unknown(named, name):
    assert named.by_name(name) is None
