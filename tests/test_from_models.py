"""What fitted models say of jobs that declare nothing, and what is made of it."""

import json
from pathlib import Path

import pytest
from builders import job, node, policy, snapshot

from planner import cli, predict
from planner.epoch import plan_epoch
from planner.errors import InputError
from planner.policy import FittedSpec, PredictorSpec, UsageSpec
from planner.predict import duration, history, usage_history
from planner.predict.model_file import text_of

SHIPPED = PredictorSpec(usage=UsageSpec(path="shipped"))
BARE = {"gpu_memory_mib": None, "gpu_utilisation_pct": None, "duration_s": None}


def forecast(state, spec=SHIPPED, **rules):
    return predict.forecast(state, policy(**rules), spec)


def test_a_known_architecture_gives_memory_and_utilisation_to_a_job_that_declares_none():
    found = forecast(snapshot([node(1)], [job(id="a", profile="resnet50:32", **BARE)]))
    (a,) = found.jobs
    assert 4000 < a.gpu_memory_mib < 16000
    assert 80 < a.gpu_utilisation_pct <= 100
    assert (a.memory_source, a.utilisation_source) == ("predicted", "predicted")
    assert found.predictor.usage.path is None and found.predictor.predicted["a"].usage_from.startswith(
        "graph of"
    )


def test_what_is_declared_stands_and_what_nothing_is_known_of_stays_unknown():
    declared = job(id="d", profile="resnet50:32", gpu_memory_mib=5, gpu_utilisation_pct=6)
    unknown = [job(id=i, profile=p, **BARE) for i, p in (("n", "resnet50"), ("m", "mystery:8"), ("o", None))]
    found = forecast(snapshot([node(1)], [declared, *unknown]))
    assert [f.gpu_memory_mib for f in found.jobs] == [5, None, None, None]
    assert [f.gpu_utilisation_pct for f in found.jobs] == [6, None, None, None]
    assert found.warnings == ("the usage model knows nothing of 3 jobs (n, m, o)",)


@pytest.mark.parametrize(
    ("memory_mib", "says"), [(None, "do not say their memory"), (3000, "is more than any GPU has")]
)
def test_a_predicted_memory_never_keeps_a_job_from_running_alone(memory_mib, says):
    state = snapshot(
        [node(1, model="v100", memory_mib=memory_mib)], [job(id="a", profile="resnet50:32", **BARE)]
    )
    plan = plan_epoch(state, policy(), SHIPPED, fixes=False)
    assert [a.job_id for a in plan.assignments] == ["a"]
    assert [w for w in plan.warnings if says in w]


def test_a_gpu_model_that_a_job_cannot_get_says_nothing_about_it():
    drained = node(1, name="new", model="b200", schedulable=False)
    one = job(id="a", profile="resnet50:32", **BARE)
    use = [
        forecast(snapshot(nodes, [one])).jobs[0].gpu_utilisation_pct
        for nodes in ([node(1)], [node(1), drained], [node(1), node(1, name="b", model="b200")])
    ]
    assert use[0] == use[1] is not None
    assert use[2] is None  # there it would be on the b200, of which no peaks are known
    held = job(id="a", profile="resnet50:32", gpu_models="a100-40gb", **BARE)
    assert forecast(snapshot([node(1), node(1, name="b", model="b200")], [held])).jobs[0].gpu_utilisation_pct


@pytest.fixture
def past(tmp_path):
    """A history in which u's train runs 1,000 s and takes 4,000 MiB."""
    rows = [f"u,train-{i},1,{i * 10},{i * 10},{1000 + i},{4000 + i},30" for i in range(12)]
    head = "user,name,gpus,submitted_s,started_s,duration_s,gpu_memory_peak_mib,gpu_utilisation_pct"
    path = tmp_path / "h.csv"
    path.write_text("\n".join([head, *rows]))
    read = history.read(path)
    (tmp_path / "d.json").write_text(text_of(duration.fit(read).to_file((), read.training("test"))))
    (tmp_path / "u.json").write_text(text_of(usage_history.fit(read).to_file((), read.training("test"))))
    return tmp_path


def test_history_tells_duration_and_usage_by_user_and_name_and_the_graph_the_rest(past):
    spec = PredictorSpec(
        duration=FittedSpec(path=str(past / "d.json")), usage=UsageSpec(path=str(past / "u.json"))
    )
    mine = job(id="a", user="u", name="train-99", **BARE)
    graph = job(id="g", user="v", name="other", profile="resnet50:32", **BARE)
    found = forecast(snapshot([node(1)], [mine, graph]), spec)
    a, g = found.jobs
    assert 990 < a.remaining_s < 1020 and a.remaining_p90_s >= a.remaining_s
    assert 4000 < a.gpu_memory_mib < 4020 and a.gpu_utilisation_pct == pytest.approx(30)
    assert g.remaining_s is None and g.gpu_memory_mib is not None
    said = found.predictor.predicted
    assert (said["a"].duration_from, said["a"].usage_from) == ("user+name+gpus", "user+name+gpus")
    assert said["g"].usage_from == "graph of resnet50/imagenet"
    again = predict.forecast(snapshot([node(1)], [mine, graph]), policy(), found.predictor)
    assert again.jobs == found.jobs  # a plan needs the models no more


def test_a_running_job_is_never_foretold_less_than_it_has_run(past):
    spec = PredictorSpec(duration=FittedSpec(path=str(past / "d.json")))
    left = []
    for elapsed in (0, 500, 990, 5000, 50_000):
        run = job(id="a", user="u", name="train", running_on=["n0/0"], started_s=-elapsed, **BARE)
        left.append(forecast(snapshot([node(1, name="n0")], [run]), spec, epoch_s=1).jobs[0].remaining_s)
    assert left[0] > left[1] > left[2] >= 1
    assert 0 < left[3] < left[4]


@pytest.mark.parametrize("key", ["duration", "usage"])
def test_a_model_with_numbers_that_no_fit_gives_is_refused_in_one_line(past, key):
    path = past / f"{key[0]}.json"
    whole = json.loads(path.read_text())

    def damaged(value):
        if isinstance(value, dict):
            return {k: damaged(v) for k, v in value.items()}
        if isinstance(value, list):
            return [damaged(v) for v in value]
        return 10**400 if isinstance(value, int | float) and not isinstance(value, bool) else value

    path.write_text(json.dumps(whole | {"parameters": damaged(whole["parameters"])}))
    spec = PredictorSpec(**{key: {"path": str(path)}})
    with pytest.raises(InputError):
        forecast(snapshot([node(1)], [job(id="a", user="u", name="train", **BARE)]), spec)


@pytest.mark.parametrize(("kind", "rows"), [("duration", 0), ("duration", 4), ("usage", 4)])
def test_a_fit_to_hardly_any_rows_is_refused_and_the_old_model_stays(
    tmp_path, monkeypatch, capsys, kind, rows
):
    monkeypatch.chdir(tmp_path)
    head = "user,gpus,duration_s,gpu_memory_peak_mib"
    Path("h.csv").write_text("\n".join([head, *["u,1,100,2000"] * rows]) + "\n")
    Path("m.json").write_text("old")
    assert cli.run(["fit", kind, "h.csv", "--out", "m.json"]) == 2
    assert "at least 5" in capsys.readouterr().err
    assert Path("m.json").read_text() == "old"


def test_an_architecture_by_name_keeps_its_precision_and_an_unknown_one_is_told_the_known(capsys):
    def memory(*args):
        assert cli.run(["predict", "usage", *args, "--gpu-model", "a100-40gb", "--json"]) == 0
        return capsys.readouterr().out

    assert memory("resnet50:32+amp").replace("+amp", "") == memory("resnet50:32", "--mixed")
    assert cli.run(["predict", "usage", "llama:1", "--gpu-model", "v100"]) == 2
    assert "resnet50" in capsys.readouterr().err


def test_dimensions_of_an_architecture_by_name_are_refused(capsys):
    assert cli.run(["predict", "usage", "resnet50:32", "--gpu-model", "v100", "--dim", "seq=3"]) == 2
    assert "--dim: resnet50:32 is an architecture" in capsys.readouterr().err
