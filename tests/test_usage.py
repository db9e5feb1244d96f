"""Usage from a graph's features: memory and utilisation worked by hand, what must hold for any job, and the shipped model."""

from __future__ import annotations

import dataclasses

import pytest

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.predict.catalogue import architectures, find
from planner.predict.graph import Features
from planner.predict.memory import MIB, MemoryModel, horus_mib, regions_mib
from planner.predict.model_file import Training, load, parsed, text_of
from planner.predict.usage import PEAK_TFLOPS, BusyModel, Spread, UsageModel, default, logit, peaks, signature
from planner.predict.works import BANDWIDTH_GB_S

MEMORY = MemoryModel(context_mib=1000, kept=1, mixed=0.5, passing=2, scratch_mib=100, slack_mib=50)
BUSY = BusyModel(work=2, kernel_us=1, launch_us=10, wait_ms=1, sample_ms=0.5, sharpness=1)
MODEL = UsageModel(MEMORY, BUSY, Spread(memory_margins=1, utilisation_logit=1))

# 1 MiB of weights, 8 MiB kept for the gradient, no tensor beyond 4 MiB
TINY = Features(
    batch=4,
    flops=15_700_000_000,
    flops_by_operator={"MatMul": 15_700_000_000},
    parameters=MIB // 4,
    parameter_bytes=MIB,
    weight_bytes={"float32": MIB},
    activation_bytes=8 * MIB,
    largest_activation_bytes=4 * MIB,
    input_bytes=MIB,
    output_bytes=MIB,
    traffic_bytes=900_000_000,
    weight_traffic_bytes=MIB,
    operators=20,
    operator_counts={"MatMul": 20},
    depth=20,
)
CONVOLUTION = dataclasses.replace(TINY, flops_by_operator={"Conv": 1, "MatMul": 15_699_999_999})


def predicted(model, features, gpu="v100", **options):
    return model.predict(features, gpu, **options)


@pytest.mark.parametrize(
    ("training", "mixed", "need"),
    [
        ("sgd", False, 2 + 8 + 2 * 4),  # weights, gradients; kept; the largest and its gradient
        ("momentum", False, 3 + 8 + 2 * 4),
        ("adam", False, 4 + 8 + 2 * 4),
        ("sgd", True, 2.5 + 4 + 4),  # half-precision copies of the weights; half of the activations
        ("adam", True, 4.5 + 4 + 4),
        (None, False, 1 + 2 * 4),  # inference: weights, the two largest
        (None, True, 1.5 + 4),
    ],
)
def test_a_job_needs_weights_state_activations_and_what_passes_through(training, mixed, need):
    assert MEMORY.need_mib(TINY, training, mixed=mixed) == pytest.approx(need)


def test_memory_is_the_context_and_the_need_in_blocks_of_two():
    told = predicted(MODEL, TINY, training="momentum")  # 19 MiB, so 20
    assert told.memory_mib == 1000 + 20
    # upper: 50 more context, and a margin of 300 + 0.2 x 19
    assert told.memory_p95_mib == 1050 + 324


@pytest.mark.parametrize(
    ("features", "p50", "p95"),
    [
        (TINY, 30, 510),  # 2 + 4 + 8 + 16 hold 19; upper: 322.8
        (CONVOLUTION, 126, 8190),  # 119 with scratch space; upper: 322.8 + 4096
    ],
)
def test_tensorflow_takes_regions_that_double(features, p50, p95):
    told = predicted(MODEL, features, training="momentum", tensorflow=True)
    assert (told.memory_mib, told.memory_p95_mib) == (1000 + p50, 1050 + p95)


@pytest.mark.parametrize(("need", "regions"), [(1, 2), (2, 2), (3, 6), (6, 6), (6.1, 14), (1022, 1022)])
def test_regions_sum_to_a_power_of_two_less_two(need, regions):
    assert regions_mib(need) == regions


def test_dropped_attention_keeps_a_copy_and_a_mask():
    # 5 FLOPs for each of 2^20 numbers; 5 bytes are kept of each
    flops = {"Softmax": 5 * MIB, "MatMul": TINY.flops - 5 * MIB}
    attending = dataclasses.replace(TINY, flops_by_operator=flops)
    gained = MEMORY.need_mib(attending, "sgd", mixed=False) - MEMORY.need_mib(TINY, "sgd", mixed=False)
    assert gained == pytest.approx(5)
    assert MEMORY.need_mib(attending, None, mixed=False) == MEMORY.need_mib(TINY, None, mixed=False)


def test_horus_counts_the_gradients_once_a_sample():
    # 4 ((A B + P) + B G): 8 MiB of activations for the batch of 4, 1 of weights, 4 x 1 of gradients
    assert horus_mib(TINY) == pytest.approx(8 + 1 + 4)


@pytest.mark.parametrize(
    ("options", "busy_ms", "host_ms"),
    [
        # a pass: 1 ms of arithmetic and 1 ms of traffic, twice that by ``work``; 20 + 20 x 3.5 kernels; 1 + 4 x 0.5 ms
        ({"training": "sgd"}, 3 * 4 + 0.09, 0.9 + 3),
        ({"training": "adam"}, 3 * 4 + 0.12, 1.2 + 3),
        ({"training": None}, 4 + 0.04, 0.4 + 3),
        # tensor cores: 15.7 / 125 ms; 0.6 of the traffic; 20 + 20 x (4.8 + 0.5) kernels
        ({"training": "sgd", "mixed": True}, 6 * (0.1256 + 0.6) + 0.126, 1.26 + 3),
    ],
)
def test_utilisation_is_the_gpus_share_of_the_step(options, busy_ms, host_ms):
    told = predicted(MODEL, TINY, **options)
    assert told.utilisation_pct == pytest.approx(100 * busy_ms / (busy_ms + host_ms))


def test_the_longer_of_gpu_and_host_decides_where_they_overlap():
    sharp = dataclasses.replace(MODEL, busy=dataclasses.replace(BUSY, sharpness=2000))
    assert predicted(sharp, TINY).utilisation_pct == pytest.approx(100, abs=0.1)  # the GPU's 12 ms
    idle = dataclasses.replace(TINY, flops=0, traffic_bytes=0)
    # the host's 4 ms: 20 + 20 x 4 kernels, of which the GPU's share is 0.1 ms
    assert predicted(sharp, idle).utilisation_pct == pytest.approx(100 * 0.1 / 4, abs=0.1)


GPUS = ("k80", "Tesla V100-SXM2-16GB", "a100-40gb", "h100", "rtx3090")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("training", ["sgd", "momentum", "adam", None])
def test_p95_is_never_below_the_middle_and_more_samples_never_need_less(gpu, training):
    for architecture in architectures().values():
        for mixed in (False, True):
            told = [
                default().predict(architecture.at(b), gpu, training=training, mixed=mixed)
                for b in (1, 8, 64, 512)
            ]
            for u in told:
                assert 0 < u.utilisation_pct <= u.utilisation_p95_pct <= 100
                assert 0 < u.memory_mib <= u.memory_p95_mib
            for measure in ("memory_mib", "memory_p95_mib"):
                values = [getattr(u, measure) for u in told]
                assert values == sorted(values)


def test_a_faster_gpu_is_less_busy_with_the_same_job():
    f = find("resnet50", "imagenet").at(16)
    busy = [default().predict(f, gpu).utilisation_pct for gpu in ("k80", "p100", "v100", "h100")]
    assert busy == sorted(busy, reverse=True)
    assert busy[0] > busy[-1] + 5


def test_without_a_gpu_model_memory_alone_is_told():
    told = MODEL.predict(TINY, None)
    assert (told.utilisation_pct, told.utilisation_p95_pct) == (None, None)
    assert told.memory_mib == predicted(MODEL, TINY).memory_mib


def test_a_gpu_model_without_peaks_is_refused_with_those_that_have_them():
    with pytest.raises(InputError) as refused:
        MODEL.predict(TINY, "riva-128")
    assert "riva-128" in refused.value.found
    assert all(model in refused.value.accepted for model in PEAK_TFLOPS)


@pytest.mark.parametrize(
    ("instance", "card", "part"),
    [("a100-40gb:3g.20gb", "a100-40gb", 3 / 7), ("A30-MIG-1g.6gb", "a30", 1 / 4), ("h100", "h100", 1)],
)
def test_a_mig_instance_has_its_part_of_the_cards_peaks(instance, card, part):
    (plain, half), bandwidth = peaks(instance)
    assert (plain, half) == pytest.approx([part * peak for peak in PEAK_TFLOPS[card]])
    assert bandwidth == pytest.approx(part * BANDWIDTH_GB_S[card])


def test_a_job_too_large_for_a_mig_instance_is_told():
    big = dataclasses.replace(TINY, activation_bytes=9000 * MIB)
    assert "more than the 4864 MiB of a100-40gb:1g.5gb" in predicted(MODEL, big, "a100-40gb:1g.5gb").notes[0]


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(InputError, match="sgd, momentum, adam"):
        MODEL.predict(TINY, None, training="adagrad")


def test_every_gpu_model_has_one_name_and_a_bandwidth():
    assert all(canonical_model(model) == model for model in PEAK_TFLOPS)
    assert set(PEAK_TFLOPS) == set(BANDWIDTH_GB_S)
    assert all(plain <= half for plain, half in PEAK_TFLOPS.values())


def test_what_the_graph_could_not_tell_is_carried_on():
    odd = dataclasses.replace(TINY, notes=("batch fixed",), unknown_operators={"Fft": 2, "Custom": 1})
    assert predicted(MODEL, odd).notes == (
        "batch fixed",
        "operators whose arithmetic is unknown count nothing: Custom, Fft",
    )


@pytest.mark.parametrize(
    ("activation_mib", "words"),
    [
        (9_000, None),
        (12_000, "may need 15764 MiB, more than the 15360 MiB of T4"),
        (20_000, "needs 21012 MiB, more than the 15360 MiB of T4"),
    ],
)
def test_a_job_larger_than_the_gpu_is_told_and_never_clipped(activation_mib, words):
    big = dataclasses.replace(TINY, activation_bytes=activation_mib * MIB)
    told = predicted(MODEL, big, "T4")
    assert told.memory_mib == 1000 + activation_mib + 12 - activation_mib % 2
    assert told.notes == (() if words is None else (f"it {words}",))


def test_a_measured_graph_is_moved_by_its_own_deviation_and_others_are_not():
    model = dataclasses.replace(MODEL, known={signature(TINY): 0.5})
    other = dataclasses.replace(TINY, parameters=TINY.parameters + 1)
    before = predicted(MODEL, TINY).utilisation_pct
    assert logit(predicted(model, TINY).utilisation_pct) == pytest.approx(logit(before) + 0.5)
    assert predicted(model, other) == predicted(MODEL, other)
    assert signature(TINY.scaled(64)) == signature(TINY)


def test_the_context_of_a_site_replaces_the_fitted_one():
    told = predicted(MODEL.with_context(400), TINY, training="momentum")
    assert (told.memory_mib, told.memory_p95_mib) == (400 + 20, 600 + 324)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Features)])
def test_a_remembered_prediction_is_for_the_same_features_only(field):
    """Whatever differs, a model that has seen the one tells the other what a fresh model tells it."""
    value = getattr(CONVOLUTION, field)
    changed = {"flops_by_operator": {"Conv": 0}, "notes": ("x",), "unknown_operators": {"Fft": 1}}
    other = changed.get(field, {"x": 1} if isinstance(value, dict) else value * 3)
    features = dataclasses.replace(CONVOLUTION, **{field: other})
    model, options = dataclasses.replace(MODEL), {"training": "adam", "tensorflow": True}
    predicted(model, CONVOLUTION, **options)
    assert predicted(model, features, **options) == predicted(dataclasses.replace(MODEL), features, **options)


def test_jobs_that_are_alike_are_computed_once(monkeypatch):
    asked = []
    physics = BusyModel.utilisation_pct
    monkeypatch.setattr(BusyModel, "utilisation_pct", lambda *a, **k: asked.append(1) or physics(*a, **k))
    model = dataclasses.replace(MODEL)
    told = {model.predict(TINY.scaled(1 + n % 50), "a100", mixed=n % 2 == 0).memory_mib for n in range(5_000)}
    assert len(asked) == 50  # the parity of the batch tells the precision here
    assert len(told) > 10


FITTED = Training(digest="sha256:0", rows=9, files=("a.csv",), about="a test")


def test_a_file_gives_the_same_model_back():
    model = dataclasses.replace(MODEL, known={"a graph": -0.25})
    text = text_of(model.to_file((), FITTED))
    back = UsageModel.of_file(parsed(text, "m.json", "usage", ("graph",)))
    assert back == model
    assert predicted(back, TINY) == predicted(model, TINY)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("memory", {"context_mib": -1.0}, "context_mib is -1.0, not above 0"),
        ("memory", {"colour": 1.0}, "colour"),
        ("busy", {"work": "fast"}, "fast"),
        ("spread", None, "None"),
        ("known", {"g": "x"}, "x"),
    ],
)
def test_a_file_with_other_parameters_is_refused(part, value, words):
    file = MODEL.to_file((), FITTED)
    wrong = file.model_copy(update={"parameters": {**file.parameters, part: value}})
    with pytest.raises(InputError, match="written by planner fit usage") as refused:
        UsageModel.of_file(wrong)
    assert words in refused.value.found


def test_a_file_without_a_part_is_refused():
    file = MODEL.to_file((), FITTED)
    with pytest.raises(InputError, match="busy"):
        UsageModel.of_file(file.model_copy(update={"parameters": {"memory": {}}}))


def test_a_model_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(text_of(MODEL.to_file((), FITTED)), encoding="utf-8")
    assert UsageModel.of_file(load(path, "usage", ("graph",))) == MODEL
    with pytest.raises(InputError, match="kind"):
        load(path, "interference", ("graph",))
