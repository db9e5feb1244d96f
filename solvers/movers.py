"""Prices of running jobs that may leave their homes, from what their GPUs would be worth without them.

A running job should stay where its home is worth least without it, so these prices need no linear program: a row's price is
raised until all its jobs stay, or until one would rather run elsewhere; the price of a move rises until no more jobs
than may move would. Like all prices they only decide how tight the bound is.
"""

from __future__ import annotations

import numpy as np

from solvers.relaxation import Duals, Pricing, Relaxation


def settle(relaxed: Relaxation, duals: Duals, pricing: Pricing) -> Duals:
    """The duals with new prices for running jobs and moves, as the pricing at the old ones suggests."""
    rows = relaxed.kin.rows
    if not rows.runs.any():
        return duals
    need, jobs, of, slack = _examined(relaxed, duals, pricing)
    host = _elsewhere(relaxed, pricing, slack)
    gain = rows.gpus[of] * (need - host[of])
    order = np.argsort(-gain, kind="stable")
    beyond = np.flatnonzero(np.cumsum(jobs[order]) > relaxed.problem.max_moves)
    move = max(float(gain[order[beyond[0]]]), 0.0) if len(beyond) else 0.0
    stay = np.zeros(len(rows))
    np.maximum.at(stay, of, need)
    price = np.maximum(np.minimum(stay, host + move / np.maximum(rows.gpus, 1)), 0.0)
    return Duals(np.where(rows.runs, price, duals.row), duals.budget, move)


def _examined(
    relaxed: Relaxation, duals: Duals, pricing: Pricing
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pool by pool: the price per GPU at which each resident stays, of how many jobs and which row; each slot's slack.

    The slack of a slot is what the best content with it is worth less than the best content at all.
    """
    t, kin = relaxed.table, relaxed.kin
    slack = np.full(len(t.first), np.inf)
    found: list[tuple[float, float, int]] = []
    for k, pool in enumerate(kin.pools):
        blocks, worth = relaxed.blocks[k], pricing.pools[k]
        nets = []
        for low, high in zip(blocks.lows, blocks.highs, strict=True):
            here = slice(low, high)
            nets.append(
                pricing.content[here]
                - worth.host[0] * pricing.cpu[here]
                - worth.host[1] * pricing.memory[here]
            )
        tops = np.array([net.max() for net in nets])
        least = np.full(len(nets), np.inf)
        for i, count in enumerate(pool.counts):
            own = blocks.members[blocks.starts[i] : blocks.starts[i + 1]]
            least[own] = np.minimum(least[own], tops[own].max())
            found += _needs(relaxed, duals, k, own, tops, count * pool.nodes)
        for b, net in enumerate(nets):
            slots = t.slots[blocks.lows[b] : blocks.highs[b]]
            np.minimum.at(slack, slots.ravel(), np.repeat(least[b] - net, slots.shape[1]))
    table = np.array(found, float).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2].astype(np.int64), slack[:-1]


def _needs(
    relaxed: Relaxation, duals: Duals, k: int, own: np.ndarray, tops: np.ndarray, count: int
) -> list[tuple[float, float, int]]:
    """For each resident that may leave: the price that keeps it, jobs, and row."""
    kin, blocks = relaxed.kin, relaxed.blocks[k]
    stay = [relaxed.table.stay[blocks.block[b]] for b in own]
    found = []
    for s in sorted(set(stay[0])):
        row = int(kin.stays.row[s])
        kept = np.array([there.count(s) == stay[0].count(s) for there in stay])
        if row < 0 or kept.all():
            continue
        gain = kin.rows.gpus[row] / kin.stays.gpus[s]
        lost = tops[own[~kept]].max() - tops[own[kept]].max()
        found.append((float(duals.row[row] + lost / gain), count * stay[0].count(s) / kin.stays.gpus[s], row))
    return found


def _elsewhere(relaxed: Relaxation, pricing: Pricing, slack: np.ndarray) -> np.ndarray:
    """The price per GPU from which a job of each row would be worth moving somewhere, inf if it cannot."""
    t = relaxed.table
    host = np.full(len(relaxed.kin.rows), np.inf)
    slot = np.repeat(np.arange(len(t.first) - 1), np.diff(t.first))
    new = t.move > 0
    np.minimum.at(host, t.row[new], (pricing.slot[:-1] + slack)[slot[new]] + t.cost[new])
    return host
