"""The catalogue of architectures, computed from the definitions in tests/architectures.

    python tests/benchmarks/architectures.py [--write]

Run by hand after a change of a definition or of the graph reader. Prints what each architecture costs for one sample;
``--write`` writes planner/predict/architectures.json anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "architectures"))

import adversarial  # noqa: E402  (a folder of its own, because only this program needs it)
import agents  # noqa: E402
import convolutional as cnn  # noqa: E402
import sequences  # noqa: E402
from layers import Net  # noqa: E402

from planner.predict.catalogue import FILE  # noqa: E402
from planner.predict.graph import Features, features  # noqa: E402

IMAGENET = "imagenet ilsvrc2012 imagenet1k"
CIFAR = "cifar10 cifar100 cifar"
SMALL = "3 x 32 x 32, 10 classes"
LARGE = "3 x 224 x 224, 1,000 classes"
#: Features that a batch of one gives by itself.
IMPLIED = ("batch", "flops", "unknown_operators", "notes")


@dataclass(frozen=True)
class Entry:
    """A definition and what it is called; the words of a name are its aliases, the first one its key's."""

    name: str
    aliases: str
    family: str
    datasets: str
    input: str
    build: Callable[[], Net]
    default: bool = True

    @property
    def key(self) -> str:
        """Architecture and data set."""
        return f"{self.aliases.split()[0]}/{self.datasets.split()[0]}"


def _image(name: str, aliases: str, build: Callable[..., Net], input: str = LARGE) -> Entry:
    return Entry(name, aliases, "cnn", IMAGENET, input, build)


def _both(name: str, aliases: str, build: Callable[[int], Net]) -> list[Entry]:
    """At the sizes of ImageNet and of CIFAR-10."""
    return [
        _image(name, aliases, lambda: build(224)),
        Entry(name, aliases, "cnn", CIFAR, SMALL, lambda: build(32), default=False),
    ]


def entries() -> list[Entry]:
    """The whole catalogue."""
    return [
        *(_image(f"VGG{n}", f"vgg{n}" + (" vgg" if n == 16 else ""), lambda n=n: cnn.vgg(n)) for n in cnn.VGG),
        _image("AlexNet", "alexnet", cnn.alexnet),
        _image("OverFeat", "overfeat", cnn.overfeat, "3 x 231 x 231, 1,000 classes"),
        _image("GoogLeNet", "googlenet inceptionv1 inception1", cnn.googlenet),
        _image("Inception-v3", "inception3 inceptionv3", cnn.inception3, "3 x 299 x 299, 1,000 classes"),
        _image("Inception-v4", "inception4 inceptionv4", cnn.inception4, "3 x 299 x 299, 1,000 classes"),
        *_both("ResNet-18", "resnet18", lambda side: cnn.resnet(18, side)),
        *_both("ResNet-50", "resnet50 resnet", lambda side: cnn.resnet(50, side)),
        _image("ResNet-101", "resnet101", lambda: cnn.resnet(101)),
        _image("ResNet-152", "resnet152", lambda: cnn.resnet(152)),
        _image("ResNeXt-50 32x4d", "resnext50 resnext5032x4d resnext", lambda: cnn.resnet(50, groups=32, per_group=4)),
        *_both("MobileNetV2", "mobilenetv2 mobilenet2 mobilenet", cnn.mobilenet2),
        *_both("MobileNetV3-Large", "mobilenetv3 mobilenet3 mobilenetv3large", cnn.mobilenet3),
        *_both("EfficientNet-B0", "efficientnetb0 efficientnet", cnn.efficientnet),
        _image("DenseNet-121", "densenet121 densenet", cnn.densenet),
        _image("SqueezeNet 1.1", "squeezenet squeezenet11", cnn.squeezenet),
        _image("ShuffleNetV2 1.0x", "shufflenetv2 shufflenetv2x10 shufflenet shufflenetv210", cnn.shufflenet2),
        _image("MNASNet 1.0", "mnasnet mnasnet10 mnasnetb1", cnn.mnasnet),
        _image("DPN-92", "dpn92 dpn", cnn.dpn92),
        Entry("PyramidNet-110 (48)", "pyramidnet pyramidnet110", "cnn", CIFAR, SMALL, cnn.pyramidnet),
        Entry("DCGAN", "dcgan", "gan", "lsun celeba", "noise of 100, images of 3 x 64 x 64", adversarial.dcgan),
        Entry(
            "CycleGAN", "cyclegan", "gan", "monet2photo horse2zebra", "two images of 3 x 256 x 256",
            adversarial.cyclegan,
        ),
        Entry("BERT base", "bert bertbase", "transformer", "squad", "384 tokens", sequences.bert),
        Entry(
            "Transformer base", "transformer transformerbase", "transformer", "multi30k",
            "30 + 30 tokens, vocabulary 10,000", lambda: sequences.transformer(30, 10_000),
        ),
        Entry(
            "Transformer base", "transformer transformerbase", "transformer", "wmt14 wmt16 wmt19 wmt",
            "30 + 30 tokens, vocabulary 37,000", lambda: sequences.transformer(30, 37_000), default=False,
        ),
        Entry("GPT-2 small", "gpt2 gpt2small", "transformer", "webtext", "1,024 tokens", sequences.gpt2),
        Entry(
            "LSTM language model", "lm lstm lmlstm lstmlm languagemodel", "recurrent", "wikitext2 wikitext",
            "35 words, vocabulary 33,278", sequences.language_model,
        ),
        Entry(
            "DeepSpeech2", "deepspeech2 deepspeech", "recurrent", "librispeech",
            "161 x 400 spectrogram (4 s)", sequences.deepspeech2,
        ),
        Entry(
            "Embedding and linear", "embedding fasttext", "embedding", "agnews", "256 words, vocabulary 100,000",
            sequences.embedding_text,
        ),
        Entry(
            "NeuMF", "neumf ncf", "recommendation", "movielens ml1m movielens1m", "a user and a film", agents.neumf
        ),
        Entry(
            "Autoencoder (Mult-VAE)", "recommendation autoencoder multvae recoder", "recommendation", "ml20m movielens20m",
            "a user's 20,108 films", agents.autoencoder,
        ),
        Entry("A3C", "a3c", "reinforcement", "pong atari", "20 screens of 42 x 42", agents.a3c),
        Entry("A2C", "a2c", "reinforcement", "pong atari", "4 screens of 84 x 84", agents.a2c),
        Entry("DQN", "dqn", "reinforcement", "pong atari", "4 screens of 84 x 84", agents.dqn),
        Entry("PPO", "ppo", "reinforcement", "lunarlander", "8 numbers, 4 actions", agents.ppo),
        Entry("TD3", "td3", "reinforcement", "bipedalwalker", "24 numbers, 4 joints", agents.td3),
        Entry("GCN", "gnn gcn graphnetwork", "graph", "graphs", "a graph of 32 nodes of 64", agents.graph_network),
    ]  # fmt: skip


def computed(entry: Entry, batch: int = 1) -> Features:
    """What the graph reader gives for a definition."""
    return features(entry.build().model(), batch=batch, where=entry.key)


def row(entry: Entry) -> dict[str, Any]:
    """What the catalogue holds of an architecture."""
    found = computed(entry)
    if found.unknown_operators or found.notes:
        raise SystemExit(f"{entry.key}: {found.unknown_operators} {found.notes}")
    return {
        "name": entry.name,
        "aliases": entry.aliases.split(),
        "family": entry.family,
        "datasets": entry.datasets.split(),
        "default": entry.default,
        "input": entry.input,
        **{key: value for key, value in asdict(found).items() if key not in IMPLIED},
    }


def text() -> str:
    """The catalogue's file: an entry a line, in the order of the keys."""
    rows = {entry.key: row(entry) for entry in entries()}
    lines = (f"{json.dumps(key)}:{json.dumps(rows[key], separators=(',', ':'))}" for key in sorted(rows))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Print, and write if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"write planner/predict/{FILE}")
    write = parser.parse_args().write
    for entry in entries():
        found = computed(entry)
        print(
            f"{entry.key:24} {found.parameters / 1e6:9.3f} M parameters {found.flops / 1e9:9.3f} GFLOP"
            f" {found.activation_bytes / 2**20:8.1f} MiB kept {found.operators:4} operators, {found.depth:3} deep"
        )
    if write:
        (ROOT / "planner" / "predict" / FILE).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
