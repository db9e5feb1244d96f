"""Recommendation, reinforcement learning and graphs: small dense networks, mostly."""

from __future__ import annotations

from layers import INT64, Net, Tensor


def neumf() -> Net:
    """He et al. 2017: factors of 8, and layers of 64, 32, 16, 8; MovieLens-1M has 6,040 users and 3,706 films."""
    net = Net("neumf")
    user, item = (net.input(kind=INT64) for _ in range(2))

    def looked_up(width: int) -> tuple[Tensor, Tensor]:
        return net.embedding(user, net.weight(6040, width), width), net.embedding(
            item, net.weight(3706, width), width
        )

    product = net.mul(*looked_up(8))
    x = net.join(*looked_up(32))
    for width in (32, 16, 8):
        x = net.act(net.linear(x, width))
    net.output(net.act(net.linear(net.join(product, x), 1), "Sigmoid"))
    return net


def autoencoder() -> Net:
    """Liang et al. 2018 (Mult-VAE), MovieLens-20M: 20,108 films - 600 - 200 - 600 - 20,108."""
    net = Net("recommendation")
    x = net.act(net.linear(net.input(20108), 600), "Tanh")
    mean, spread = net.split(net.linear(x, 400), 200, 200)
    noise = net.node("RandomNormalLike", [spread], (200,))
    x = net.add(mean, net.mul(net.act(spread, "Exp"), noise))
    x = net.act(net.linear(x, 600), "Tanh")
    net.output(net.act(net.linear(x, 20108), "LogSoftmax", axis=-1))
    return net


def a3c(steps: int = 20) -> Net:
    """Mnih et al. 2016, recurrent form: four convolutions of 32 on 42 x 42 screens, then an LSTM of 256.

    A sample is a run of ``steps`` screens.
    """
    net = Net("a3c")
    x = net.input(steps, 1, 42, 42)
    x = net.reshape(x, 1, 42, 42)  # every screen by itself
    for _ in range(4):
        x = net.act(net.conv(x, 32, 3, 2, 1, bias=True), "Elu")
    x = net.recurrent(net.reshape(x, steps, 288), 256)
    net.output(net.linear(x, 6))
    net.output(net.linear(x, 1))
    return net


def _dense(net: Net, x: Tensor, *widths: int, act: str) -> Tensor:
    for width in widths[:-1]:
        x = net.act(net.linear(x, width), act)
    return net.linear(x, widths[-1])


def ppo() -> Net:
    """Schulman et al. 2017: policy and value, each of two layers of 64; LunarLander has 8 numbers and 4 actions."""
    net = Net("ppo")
    x = net.input(8)
    net.output(net.act(_dense(net, x, 64, 64, 4, act="Tanh"), "Softmax", axis=-1))
    net.output(_dense(net, x, 64, 64, 1, act="Tanh"))
    return net


def td3() -> Net:
    """Fujimoto et al. 2018: an actor and two critics of 400 and 300; BipedalWalker has 24 numbers and 4 joints."""
    net = Net("td3")
    state = net.input(24)
    action = net.act(_dense(net, state, 400, 300, 4, act="Relu"), "Tanh")
    both = net.join(state, action)
    for _ in range(2):
        net.output(_dense(net, both, 400, 300, 1, act="Relu"))
    return net


def dqn(actions: int = 6) -> Net:
    """Mnih et al. 2015, extended data table 1: four screens of 84 x 84."""
    net = Net("dqn")
    x = net.input(4, 84, 84)
    for width, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        x = net.act(net.conv(x, width, kernel, stride, 0, bias=True))
    net.output(_dense(net, net.flat(x), 512, actions, act="Relu"))
    return net


def a2c(actions: int = 6) -> Net:
    """Mnih et al. 2016 with all workers in step: the network of DQN with a policy and a value."""
    net = Net("a2c")
    x = net.input(4, 84, 84)
    for width, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        x = net.act(net.conv(x, width, kernel, stride, 0, bias=True))
    x = net.act(net.linear(net.flat(x), 512))
    net.output(net.linear(x, actions))
    net.output(net.linear(x, 1))
    return net


def graph_network(nodes: int = 32, width: int = 128) -> Net:
    """Kipf and Welling 2017: three graph convolutions on small dense graphs, then their mean; a sample is a graph."""
    net = Net("gnn")
    neighbours, x = net.input(nodes, nodes), net.input(nodes, 64)
    for _ in range(3):
        x = net.act(net.linear(net.matmul(neighbours, x), width))
    mean = net.node("ReduceMean", [x, net.constant([1])], (width,), keepdims=0)
    net.output(net.linear(mean, 10))
    return net
