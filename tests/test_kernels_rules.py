"""What the kernels let in is what the referee lets in: no less, so that nothing good is missed, and no more."""

from itertools import product

import numpy as np
import pytest
from boards import VARIANTS, anyhow, board_of, drawn, scattered
from brute import tiny
from problems import HOUR, job, make, node

from solvers.check import violations
from solvers.kernels import fill, neighbourhood, place, ruin, spots
from solvers.kernels import layout as o
from solvers.problem import Budget

variants = pytest.mark.parametrize("variant", VARIANTS)
ON_GPUS = {"closed", "tenants", "alone", "memory", "share", "consent", "never", "slowdown", "gate"}
ON_NODES = {"host", "whole node"}


def broken(problem, plan):
    """The GPUs and nodes on which a placement breaks a rule that the kernels check there."""
    found = violations(problem, plan)
    late = {fault.job for fault in found if fault.rule == "window"}
    gpus = {fault.gpu for fault in found if fault.rule in ON_GPUS}
    # A job that ends too late for one of its GPUs is refused on all of them.
    gpus |= {g for j in late for g in plan[j]}
    return gpus, {fault.node for fault in found if fault.rule in ON_NODES}


def entered(problem, plan, v):
    here = [j for j, spot in enumerate(plan) if spot is not None and spot != problem.home[j]]
    return any(
        v in plan[j] if problem.job_gpus[j] == 0 else v in problem.gpu_node[list(plan[j])] for j in here
    )


@pytest.mark.parametrize("seed", range(120))
def test_a_gpu_or_node_is_judged_as_the_referee_judges_it(seed):
    """Any placement at all: most of them break a rule somewhere."""
    problem = tiny(seed)
    for k in range(12):
        plan = anyhow(problem, 500 * seed + k)
        board = board_of(problem, plan, 0)
        gpus, nodes = broken(problem, plan)
        judged = {g for g in range(problem.gpus) if not place.holds(board.a, board.f, g)}
        assert judged == gpus
        for v in range(problem.nodes):
            new = entered(problem, plan, v)
            assert ruin.entered(board.a, board.f, v) == new
            if new:
                assert place.node_holds(board.a, board.f, v) == (v not in nodes)


def see(board, nodes):
    """Bring nodes into view; how many GPUs that are."""
    board.table("NODE_VIEW")[: len(nodes)] = nodes
    return neighbourhood.see(board.a, board.f, len(nodes))


def waiting(problem, plan):
    return [
        j for j in range(problem.jobs) if plan[j] is None and problem.home[j] is None and problem.job_gpus[j]
    ]


def offers(board, j, nodes):
    """The GPUs on which a job of one GPU may begin, and its cost there, as the kernels look at them one by one."""
    width, found = see(board, nodes), {}
    a, f = board.a, board.f
    for x in range(width):
        spots.look(a, f, 0, j, x)
    for x in range(width):
        others = board.table("OK")[:width] * (np.arange(width) == x)
        kept = board.table("OK")[:width].copy()
        board.table("OK")[:width] = others
        cost = spots.place_for(a, f, 0, j, len(nodes), width)
        board.table("OK")[:width] = kept
        if cost < spots.NEVER:
            found[int(board.table("VIEW")[x])] = cost
    neighbourhood.forget(a, f, width)
    return found


def plans(problem, seed, many=2):
    """Valid plans of a tiny problem, some of which leave much room."""
    drawn_ = (anyhow(problem, 1000 * seed + k) for k in range(200))
    return [problem.base, *[plan for plan in drawn_ if not violations(problem, plan)][:many]]


def offered(problem, plan, seed=0):
    """For each waiting job of one GPU: the GPUs offered to it, and those that the referee allows but for their windows."""
    board = board_of(problem, plan, seed=seed)
    for j in waiting(problem, plan):
        if problem.job_gpus[j] == 1 and fill.affords(board.a, board.f, j):
            found = offers(board, j, list(range(min(8, problem.nodes))))
            allowed, late = set(), set()
            for g in np.flatnonzero(problem.gpu_node < 8).tolist():
                rules = {fault.rule for fault in violations(problem, (*plan[:j], (g,), *plan[j + 1 :]))}
                if rules <= {"window"}:
                    (late if rules else allowed).add(g)
            yield board, j, found, allowed, late


@pytest.mark.parametrize("seed", range(45))
def test_a_job_may_begin_where_the_referee_lets_it(seed):
    """Windows are checked only when it is there: then it is taken away again."""
    problem = tiny(seed)
    for plan in plans(problem, seed):
        for _, _, found, allowed, late in offered(problem, plan):
            assert allowed <= found.keys() <= allowed | late


@variants
def test_a_job_may_begin_where_the_referee_lets_it_at_the_cost_that_it_has_there(variant):
    """To a few thousandths of a GPU-second for each tenant, as the program rounds down."""
    problem = drawn(variant, 3, 24, 12)
    for plan in (problem.base, scattered(problem, 3)):
        for board, j, found, allowed, late in offered(problem, plan):
            assert allowed <= found.keys() <= allowed | late
            for g in allowed:
                before = board.total
                board.table("SPOT")[board.table("SPOT_AT")[j]] = g
                waits = int(board.table("COST")[j])
                place.put(board.a, board.f, j)
                assert found[g] == pytest.approx(board.total - before + waits, abs=100)
                place.take(board.a, board.f, j)
                assert board.total == before


@pytest.mark.parametrize("seed", range(45))
def test_a_gang_is_offered_a_place_that_the_referee_allows(seed):
    """The rules for the gang itself: kind, nodes, set, the number and the indices on each node."""
    problem = tiny(seed)
    nodes = list(range(problem.nodes))
    for plan in plans(problem, seed):
        board = board_of(problem, plan)
        for j in waiting(problem, plan):
            n = int(problem.job_gpus[j])
            width = see(board, nodes)
            for x in range(width):
                spots.look(board.a, board.f, 0, j, x)
            cost = spots.place_for(board.a, board.f, 0, j, len(nodes), width)
            view = board.table("VIEW")
            spot = tuple(sorted(int(view[x]) for x in board.table("TRIAL")[:n]))
            neighbourhood.forget(board.a, board.f, width)
            if n > 1 and cost < spots.NEVER:
                faults = violations(problem, (*plan[:j], spot, *plan[j + 1 :]))
                # Of two GPUs each may have room, and the gang be too slow for a reservation on one.
                assert {fault.rule for fault in faults} <= {"window", "budget"}


def test_a_gang_is_offered_the_cheapest_of_the_places_on_a_node():
    """By hand: two GPUs of one link group are occupied, the others are not joined, and PCIE costs a tenth."""
    pcie = (1000, 1100, 2000)
    problem = make(
        [node(4, links=(0, 0, 1, 1)), node(4, links=(0, 1, 2, 3))],
        [job(2, link_milli=pcie), job(1), job(1, memory_mib=70_000), job(2, link_milli=pcie, max_nodes=2)],
        slowdown=1500,
    )
    board = board_of(problem, (None, (0,), None, None))
    for nodes, spot, lost in (([0], (2, 3), 0), ([1], None, 2 * (HOUR - HOUR / 1.1)), ([0, 1], (2, 3), 0)):
        width = see(board, nodes)
        for x in range(width):
            spots.look(board.a, board.f, 0, 0, x)
        cost = spots.place_for(board.a, board.f, 0, 0, len(nodes), width)
        at = {int(board.table("VIEW")[x]) for x in board.table("TRIAL")[:2]}
        assert cost == pytest.approx(lost, abs=5)
        assert spot is None or at == set(spot)
        neighbourhood.forget(board.a, board.f, width)


def test_a_gang_spans_nodes_only_if_it_fits_on_none():
    problem = make([node(1), node(1), node(2)], [job(2, max_nodes=2), job(2, alone=True)])
    for plan, view, spot in (
        ((None, None), [0, 1, 2], (2, 3)),
        ((None, (2, 3)), [0, 1, 2], (0, 1)),
        ((None, None), [0], None),
    ):
        board = board_of(problem, plan)
        width = see(board, view)
        for x in range(width):
            spots.look(board.a, board.f, 0, 0, x)
        cost = spots.place_for(board.a, board.f, 0, 0, len(view), width)
        at = tuple(sorted(int(board.table("VIEW")[x]) for x in board.table("TRIAL")[:2]))
        assert (at if cost < spots.NEVER else None) == spot


@pytest.mark.parametrize(("facts", "whole", "over"), [
    ({}, {}, True),
    ({"gpus_per_node": 2}, {}, True),
    ({"gpus_per_node": 4}, {}, False),
    ({"max_nodes": 1}, {}, False),
    ({"node_set": 1}, {}, False),
    ({}, {"same_index": True}, False),
    ({"cpu_milli": 20}, {}, True),
    ({"cpu_milli": 21}, {}, False),
    ({"host_memory_mib": 21}, {}, False),
    ({"node_alone": True}, {}, False),
])  # fmt: skip
def test_a_gang_over_two_nodes_keeps_to_its_rules(facts, whole, over):
    """Four GPUs, two on each node; only GPUs 0 and 1 of the first, and 1 and 2 of the second are free."""
    nodes = [node(3, cpu_milli=10, host_memory_mib=10) for _ in range(2)]
    sitting = [job(home=(2,), alone=True), job(home=(3,), alone=True)]
    gang = job(4, **{"max_nodes": 2, **facts})
    sets = [[True, True], [True, False]]
    problem = make(nodes, [gang, *sitting], node_sets=sets, **whole)
    board = board_of(problem, problem.base)
    for _ in range(10):
        board.improve(80, 1.0)
    assert (board.placed()[0] is not None) == over
    assert violations(problem, board.placed()) == ()


def test_a_gang_spans_no_more_nodes_than_it_may():
    for most, over in ((2, False), (3, True)):
        problem = make([node(1) for _ in range(3)], [job(3, max_nodes=most)])
        board = board_of(problem, (None,))
        view = [0, 1, 2]
        width = see(board, view)
        for x in range(width):
            spots.look(board.a, board.f, 0, 0, x)
        assert (spots.place_for(board.a, board.f, 0, 0, len(view), width) < spots.NEVER) == over


@pytest.mark.parametrize("running", list(product([False, True], repeat=3)))
def test_nobody_new_may_make_the_others_get_less_done_together(running):
    """Two at 0.95 each get 1.9 done, three at 0.6 each 1.8: more than any of them alone, and less than any two."""
    jobs = [job(type=t, home=(0,) if at_home else None) for t, at_home in enumerate(running)]
    slowdown = {0: 1000, 1: 1052, 2: 1666}
    problem = make([node(1)], jobs, slowdown=lambda kind, victim, co: slowdown[len(co)])
    board = board_of(problem, ((0,),) * 3)
    assert place.holds(board.a, board.f, 0) == all(running)
    assert (violations(problem, board.placed()) == ()) == all(running)
    for j, at_home in enumerate(running):
        if not at_home:
            plan = tuple(None if i == j else (0,) for i in range(3))
            assert offers(board_of(problem, plan), j, [0]) == {}


def test_a_gang_takes_its_part_of_each_node_rounded_up():
    """Ten milli-CPUs for three GPUs: seven for two of them, four for the other; as many MiB."""
    gang = job(3, cpu_milli=10, host_memory_mib=10, max_nodes=2)
    for cores, memory, good in (((7, 4), (7, 4), True), ((6, 4), (7, 4), False), ((7, 4), (7, 3), False)):
        nodes = [
            node(n, cpu_milli=c, host_memory_mib=m) for n, c, m in zip((2, 1), cores, memory, strict=True)
        ]
        problem = make(nodes, [gang])
        board = board_of(problem, ((0, 1, 2),))
        assert board.table("CPU_USED").tolist() == board.table("HOST_USED").tolist() == [7, 4]
        judged = [place.node_holds(board.a, board.f, v) for v in range(2)]
        assert all(judged) == good == (violations(problem, board.placed()) == ())
        empty = board_of(problem, (None,))
        assert all(spots.fits(empty.a, empty.f, 0, v, n) for v, n in ((0, 2), (1, 1))) == good


@pytest.mark.parametrize("facts", [
    {"gpus": 2, "size_milli": 1000, "wait_cost": HOUR, "unit_speed": HOUR},
    {"size_milli": 2000},
    {"type": 1},
    {"cpu_milli": 1},
    {"host_memory_mib": 1},
    {"max_nodes": 2},
    {"gpus_per_node": 1},
    {"node_set": 1},
    {"alone": True},
    {"node_alone": True},
    {"share_group": 1},
    {"link_milli": (1000, 1000, 1001)},
    {"speed_milli": 999},
    {"memory_mib": 1},
    {"share": 1},
    {"cap_milli": 1999},
])  # fmt: skip
def test_jobs_that_differ_in_what_a_place_depends_on_are_of_two_kins(facts):
    """The first two and the last are alike but for what waiting costs and how long they take."""
    jobs = [job(), job(wait_cost=3 * HOUR, remaining_p90_s=9), job(**facts), job(wait_cost=2 * HOUR)]
    problem = make([node(4)], jobs, types=2, node_sets=[[True], [True]])
    board = board_of(problem, (None,) * 4)
    assert sorted(sorted(one) for one in classes(board).values()) == [[(1, 3, 0)], [(2,)]]


def test_jobs_apart_by_a_budget_or_a_pair_are_of_two_kins_and_by_costs_of_two_classes():
    jobs = [job(), job(), job(), job(), job(unit_locality=1), job(home=(0,)), job(0)]
    budgets = (Budget("quota", "a", 9, (0,), (1,)), Budget("quota", "b", 9, (5,), (1,)))
    board = board_of(make([node(4)], jobs, budgets=budgets, never=((1, 5),)), (None,) * 5 + ((0,), None))
    assert sorted(sorted(one) for one in classes(board).values()) == [[(0,)], [(1,)], [(2, 3), (4,)]]
    assert board.table("CLASS")[5:].tolist() == [-1, -1]


def classes(board):
    """The members of each class, in the order in which they are taken, by kin."""
    at, member, kin = (board.table(name).tolist() for name in ("CLASS_AT", "CLASS_JOB", "KIN"))
    found = {}
    for c, k in enumerate(kin):
        found.setdefault(k, set()).add(tuple(member[at[c] : at[c + 1]]))
    own, which = board.table("KIN_AT").tolist(), board.table("KIN_CLASS").tolist()
    for k, members in found.items():
        assert {tuple(member[at[c] : at[c + 1]]) for c in which[own[k] : own[k + 1]]} == members
        assert any(board.table("KIN_JOB")[k] in some for some in members)
    return found


def test_a_budget_that_one_of_two_draws_on_is_kept_and_used_up():
    """Amounts of 3, 2 and 2 of 4: the two smaller ones are worth more together."""
    jobs = [job(wait_cost=5 * HOUR), *[job(type=1, wait_cost=3 * HOUR) for _ in range(2)], job()]
    budget = Budget("quota", "a", 4, (0, 1, 2), (3, 2, 2))
    board = board_of(make([node(4, max_tenants=1)], jobs, budgets=(budget,)), (None,) * 4)
    assert [bool(fill.affords(board.a, board.f, j)) for j in range(4)] == [True] * 4
    board.improve(400, 0.0)
    assert [spot is not None for spot in board.placed()] == [False, True, True, True]
    assert board.a[board.a[o.ROOM]] == 0
    assert [bool(fill.affords(board.a, board.f, j)) for j in (0, 3)] == [False, True]
