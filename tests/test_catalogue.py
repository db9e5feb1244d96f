"""The catalogue of architectures: published figures, names, and that it is what the definitions give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from planner.predict.catalogue import FILE, architectures, find, plain

ROOT = Path(__file__).resolve().parent.parent

# Million parameters, and thousand million multiply-adds of convolutions and dense layers for one sample.
PUBLISHED = {
    # documentation of torchvision's models, table of classification weights
    "alexnet/imagenet": (61.10, 0.71),
    "densenet121/imagenet": (7.98, 2.83),
    "efficientnetb0/imagenet": (5.29, 0.39),
    "mnasnet/imagenet": (4.38, 0.31),
    "mobilenetv2/imagenet": (3.50, 0.30),
    "mobilenetv3/imagenet": (5.48, 0.22),
    "resnet18/imagenet": (11.69, 1.81),
    "resnet50/imagenet": (25.56, 4.09),
    "resnet101/imagenet": (44.55, 7.80),
    "resnet152/imagenet": (60.19, 11.51),
    "resnext50/imagenet": (25.03, 4.23),
    "shufflenetv2/imagenet": (2.28, 0.14),
    "squeezenet/imagenet": (1.24, 0.35),
    "vgg11/imagenet": (132.86, 7.61),
    "vgg16/imagenet": (138.36, 15.47),
    "vgg19/imagenet": (143.67, 19.63),
    "inception3/imagenet": (23.83, 5.71),  # as there, less the auxiliary classifier's 3.33 M
    # Sermanet et al. 2014, table 4: 145 M parameters, 2,810 M connections
    "overfeat/imagenet": (145, 2.81),
    # Szegedy et al. 2015: 1.5 G multiply-adds; table 1's column of parameters sums to 6.8 M
    "googlenet/imagenet": (6.8, 1.5),
    # timm's table of results
    "dpn92/imagenet": (37.67, 6.54),
    "inception4/imagenet": (42.68, 12.28),
    # Han et al. 2017, table 4: 1.7 M
    "pyramidnet/cifar10": (1.7, None),
    # Devlin et al. 2019: 110 M
    "bert/squad": (110, None),
    # Vaswani et al. 2017, table 3: 65 M
    "transformer/wmt14": (65, None),
    # Radford et al. 2019: 124.4 M by the released weights
    "gpt2/webtext": (124.4, None),
    # Zaremba et al. 2014's network over WikiText-2's words: 2 x 33,278 x 650 + 33,278 + 2 x (8 x 650 x 650 + 8 x 650)
    "lm/wikitext2": (50.07, None),
}
TOLERANCE = {
    "googlenet/imagenet": 0.06,
    "pyramidnet/cifar10": 0.03,
    "shufflenetv2/imagenet": 0.05,
    "transformer/wmt14": 0.04,
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_parameters_and_multiply_adds_are_those_published(key):
    """Within 2 %, which is what rounding and counting biases leave; wider where the source itself is rounded."""
    parameters, products = PUBLISHED[key]
    one = architectures()[key].one
    within = TOLERANCE.get(key, 0.02)
    assert one.parameters / 1e6 == pytest.approx(parameters, rel=within)
    if products is not None:
        counted = (one.flop_shares["conv"] + one.flop_shares["matmul"]) * one.flops / 2e9
        assert counted == pytest.approx(products, rel=within)


def test_two_generators_and_two_discriminators_train_together():
    """He's 9-block generator has 11.38 M parameters, the 70 x 70 PatchGAN 2.76 M."""
    assert find("CycleGAN").one.parameters / 1e6 == pytest.approx(2 * (11.38 + 2.76), rel=0.002)


@pytest.mark.parametrize(
    ("name", "dataset", "key"),
    [
        ("ResNet-18", "CIFAR-10", "resnet18/cifar10"),
        ("resnet18", "ImageNet", "resnet18/imagenet"),
        ("ResNet 18", None, "resnet18/imagenet"),
        ("ResNet-18", "flowers", "resnet18/imagenet"),  # a data set nobody has heard of: the usual input
        ("resnet", None, "resnet50/imagenet"),
        ("MobileNetV2", "cifar10", "mobilenetv2/cifar10"),
        ("EfficientNet", "CIFAR-10", "efficientnetb0/cifar10"),
        ("shufflenet_v2_x1_0", None, "shufflenetv2/imagenet"),
        ("LM", None, "lm/wikitext2"),
        ("Transformer", "Multi30k", "transformer/multi30k"),
        ("Transformer", "WMT16", "transformer/wmt14"),
        ("Recommendation", None, "recommendation/ml20m"),
    ],
)
def test_names_are_found_however_they_are_written(name, dataset, key):
    assert find(name, dataset).key == key


@pytest.mark.parametrize("name", ["", "resnet1", "my-model", "--"])
def test_an_unknown_name_is_none(name):
    assert find(name, "ImageNet") is None


def test_a_name_means_one_architecture_with_one_usual_input():
    meant = {}
    for architecture in architectures().values():
        for alias in architecture.aliases:
            meant.setdefault(alias, []).append(architecture)
    assert {alias for alias, found in meant.items() if len({a.name for a in found}) > 1} == set()
    assert {alias for alias, found in meant.items() if sum(a.default for a in found) != 1} == set()
    for architecture in architectures().values():
        words = (*architecture.aliases, *architecture.datasets)
        assert words == tuple(plain(word) for word in words)


def test_a_batch_scales_all_but_the_weights():
    one, ten = find("resnet50").one, find("resnet50").at(10)
    assert (ten.batch, ten.flops, ten.activation_bytes) == (10, 10 * one.flops, 10 * one.activation_bytes)
    assert (ten.parameters, ten.operators, ten.depth) == (one.parameters, one.operators, one.depth)
    assert ten.traffic_bytes == 10 * one.traffic_bytes - 9 * one.weight_traffic_bytes


def test_the_file_is_small_with_an_entry_a_line_in_order():
    text = (ROOT / "planner" / "predict" / FILE).read_text(encoding="utf-8")
    assert len(text) < 60_000
    assert len(text.splitlines()) == len(architectures()) + 2
    assert list(json.loads(text)) == sorted(architectures())


def test_the_package_onnx_is_not_needed():
    program = (
        "import sys; sys.modules['onnx'] = None; from planner.predict.catalogue import find; "
        "print(find('ResNet-50').at(4).batch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "4\n"


@pytest.fixture
def definitions():
    """The program that writes the catalogue."""
    pytest.importorskip("onnx")
    import architectures as program

    return program


@pytest.mark.parametrize(
    "key", ["dcgan/lsun", "lm/wikitext2", "mobilenetv2/cifar10", "ppo/lunarlander", "vgg11/imagenet"]
)
@pytest.mark.parametrize("batch", [1, 7])
def test_an_entry_is_what_its_definition_gives_at_any_batch(definitions, key, batch):
    (entry,) = [entry for entry in definitions.entries() if entry.key == key]
    assert architectures()[key].at(batch) == definitions.computed(entry, batch)


@pytest.mark.slow
def test_the_catalogue_is_what_the_definitions_give(definitions):
    assert (ROOT / "planner" / "predict" / FILE).read_text(encoding="utf-8") == definitions.text()


@pytest.mark.slow
def test_every_definition_is_proportional_to_its_batch(definitions):
    for entry in definitions.entries():
        assert architectures()[entry.key].at(640) == definitions.computed(entry, 640), entry.key
