"""Language, translation and speech, written from the papers that introduced the architectures."""

from __future__ import annotations

from layers import INT64, Net, Tensor


def bert(length: int = 384) -> Net:
    """Devlin et al. 2019, base: 12 layers of 768, 12 heads; the head of SQuAD (start and end of the answer)."""
    net = Net("bert")
    ids, kinds = (net.input(length, kind=INT64) for _ in range(2))
    places = Tensor(net.weight(512, 768), (512, 768))
    cut = net.node(
        "Slice", [places, net.constant([0]), net.constant([length]), net.constant([0])], (length, 768)
    )
    x = net.add(
        net.embedding(ids, net.weight(30522, 768), 768), net.embedding(kinds, net.weight(2, 768), 768)
    )
    x = net.layer_norm(net.add(x, cut))
    for _ in range(12):
        x = net.layer_norm(net.add(x, net.attention(x, x, 12)))
        y = net.linear(net.act(net.linear(x, 3072), "Gelu"), 768)
        x = net.layer_norm(net.add(x, y))
    net.output(net.linear(x, 2))
    return net


def _fed(net: Net, x: Tensor, inner: int) -> Tensor:
    """The feed-forward half of a layer."""
    y = net.linear(net.act(net.linear(x, inner)), x.shape[-1])
    return net.layer_norm(net.add(x, y))


def transformer(length: int, vocabulary: int) -> Net:
    """Vaswani et al. 2017, base: 6 + 6 layers of 512, 8 heads, one table for both languages and the output."""
    net = Net("transformer")
    table = net.weight(vocabulary, 512)
    source, target = (net.embedding(net.input(length, kind=INT64), table, 512) for _ in range(2))
    for _ in range(6):
        source = net.layer_norm(net.add(source, net.attention(source, source, 8)))
        source = _fed(net, source, 2048)
    for _ in range(6):
        target = net.layer_norm(net.add(target, net.attention(target, target, 8)))
        target = net.layer_norm(net.add(target, net.attention(target, source, 8)))
        target = _fed(net, target, 2048)
    turned = net.node("Transpose", [table], (512, vocabulary), perm=[1, 0])
    net.output(net.matmul(target, turned))
    return net


def gpt2(length: int = 1024) -> Net:
    """Radford et al. 2019, the smallest: 12 layers of 768, 12 heads, the table is also the output's."""
    net = Net("gpt2")
    table = net.weight(50257, 768)
    places = Tensor(net.weight(length, 768), (length, 768))
    x = net.add(net.embedding(net.input(length, kind=INT64), table, 768), places)
    for _ in range(12):
        y = net.layer_norm(x)
        x = net.add(x, net.attention(y, y, 12))
        x = net.add(x, net.linear(net.act(net.linear(net.layer_norm(x), 3072), "Gelu"), 768))
    turned = net.node("Transpose", [table], (768, 50257), perm=[1, 0])
    net.output(net.matmul(net.layer_norm(x), turned))
    return net


def language_model() -> Net:
    """Zaremba et al. 2014, medium: two LSTM layers of 650 over 35 words; WikiText-2 has 33,278 of them."""
    net = Net("lm")
    x = net.embedding(net.input(35, kind=INT64), net.weight(33278, 650), 650)
    for _ in range(2):
        x = net.recurrent(x, 650)
    net.output(net.linear(x, 33278))
    return net


def deepspeech2(steps: int = 400) -> Net:
    """Amodei et al. 2016: two convolutions and five bidirectional GRU layers of 800; 161 bins, 29 letters."""
    net = Net("deepspeech2")
    x = net.input(1, 161, steps)
    x = net.act(net.norm(net.conv(x, 32, (41, 11), (2, 2), (20, 5))), "Clip")
    x = net.act(net.norm(net.conv(x, 32, (21, 11), (2, 1), (10, 5))), "Clip")
    channels, bins, frames = x.shape
    x = net.reshape(net.transpose(x, 3, 1, 2), frames, channels * bins)
    for number in range(5):
        if number:  # each sequence is normalised over its frames
            turned = net.transpose(x, 2, 1)
            x = net.transpose(net.norm(turned), 2, 1)
        x = net.recurrent(x, 800, op="GRU", both=True)
    net.output(net.act(net.linear(x, 29), "LogSoftmax", axis=-1))
    return net


def embedding_text(length: int = 256) -> Net:
    """Joulin et al. 2017 (fastText): the mean of 300 numbers a word, and a dense layer; 100,000 words."""
    net = Net("embedding")
    x = net.embedding(net.input(length, kind=INT64), net.weight(100_000, 300), 300)
    mean = net.node("ReduceMean", [x, net.constant([1])], (300,), keepdims=0)
    net.output(net.linear(mean, 4))
    return net
