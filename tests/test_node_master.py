"""The program over node columns and what is rounded from it: no better than the program says, and never more than there is."""

from functools import lru_cache

import numpy as np
import pytest
from boards import VARIANTS, board_of, drawn
from problems import HOUR, job, make, node, random_problem

from solvers.check import ends, objective, violations
from solvers.contents import Contents
from solvers.facts import Facts
from solvers.node_columns import Column, NodeColumns
from solvers.node_generation import Generator
from solvers.node_master import GROUPS, Dive, Master, plan_of
from solvers.node_rounding import Rounding
from solvers.patterns import Engine
from solvers.problem import Budget, Limits

variants = pytest.mark.parametrize("variant", VARIANTS)
EVER = float("inf")


@lru_cache(maxsize=20)
def generated(variant, seed):
    """A generator after a few rounds, with its program; nobody may change it."""
    return grown(drawn(variant, seed), seed)


def grown(problem, seed=0, rounds=4):
    found = Generator(Facts(problem), Contents(problem), Facts(problem).earliest_makespan, seed, 1)
    found.run(None, rounds, 0.0)
    return found


def of_columns(problem, columns):
    """The program over columns made by hand."""
    made = NodeColumns(Facts(problem), Contents(problem), Facts(problem).earliest_makespan)
    for column in columns:
        assert made.add(column)
    master = Master(made)
    master.add(range(len(columns)))
    return master


def held(master, chosen):
    """How many of each class a choice of columns holds, in whole jobs; shape (C,)."""
    total = np.zeros(master.classes)
    for number in chosen:
        for c, amount in master.coefficients(master.made.columns[number]).items():
            total[c] += amount
    return total


def value(master, chosen):
    """What the program charges for a choice of columns, less what waiting costs everybody."""
    cost = float(sum(master.made.columns[number].cost for number in chosen))
    for left, steps in zip(held(master, chosen) + 1e-9, master.steps, strict=True):
        for wait, count in steps:
            cost -= wait * min(count, left)
            left -= min(count, left)
    return cost


# ---- the program ----


@variants
def test_prices_and_rents_explain_the_program(variant):
    """Duality: no column is worth more than its node's rent, and rents and surplus of the members add up to the value."""
    master = generated(variant, 0).master
    made, room = master.made, 1e-6 * master.scale * 1e4
    assert (master.prices >= 0).all() and (master.rents >= 0).all()
    for column in made.columns:
        worth = sum(master.prices[c] * amount for c, amount in master.coefficients(column).items())
        assert worth - column.cost <= master.rents[column.shape] + room
    surplus = sum(
        count * max(0.0, wait - price)
        for price, steps in zip(master.prices, master.steps, strict=True)
        for wait, count in steps
    )
    assert -master.objective == pytest.approx(master.rents @ master.nodes + surplus, rel=1e-6)


@variants
def test_jobs_of_which_columns_hold_more_than_there_are_have_no_price(variant):
    master = generated(variant, 0).master
    supplied = np.zeros(master.classes)
    for number, count in zip(master.columns, master.value, strict=True):
        for c, amount in master.coefficients(master.made.columns[number]).items():
            supplied[c] += count * amount
    over = supplied > master.supply + 1e-6
    assert (master.prices[over] <= 1e-6 * master.scale).all()
    assert (master.prices > 0).any()


def test_a_second_job_of_which_there_is_only_one_is_worth_nothing():
    """One job, two columns with it on two nodes: the program uses one, and the job has no price any more."""
    problem = make([node(1), node(1, memory_mib=70_000)], [job()])
    master = of_columns(problem, [Column(shape, ((0, (0,)),), 0) for shape in (0, 1)])
    assert master.objective == pytest.approx(-HOUR)
    assert (master.prices.tolist(), master.rents.tolist()) == ([0.0], [0.0, 0.0])


@pytest.mark.parametrize(
    "given", [{}, {"additive": False}, {"types": 4}, {"nodes_of": 4}, {"cpu_only": True}]
)
@pytest.mark.parametrize("seed", range(3))
def test_the_program_over_a_plans_columns_costs_no_more_than_the_plan(given, seed):
    """Where no class has more members than its waiting costs have steps; ends are charged job by job."""
    problem = random_problem(seed, 50, 40, makespan=0, **given)
    board = board_of(problem, problem.base, seed=seed)
    board.sweep()
    made = NodeColumns(Facts(problem), Contents(problem), 0)
    made.learn(board.placed(), board.table("COST"))
    assert max(map(len, made.members)) <= GROUPS
    master = Master(made)
    master.add(range(len(made.columns)))
    cpu_only = problem.wait_cost[problem.job_gpus == 0].sum()
    assert master.objective + made.all_wait <= objective(problem, board.placed()).total - cpu_only + 1e-3
    assert master.objective < -0.1 * made.all_wait


# ---- plans rounded from it ----


def rounded(master, seed=0):
    """The choices of all who round."""
    rounding = Rounding(master, seed)
    dive = Dive(master).run(EVER)
    return {"dive": dive, "cp-sat": rounding.by_cpsat(5.0, dive), "highs": rounding.by_highs(5.0)}


@pytest.mark.parametrize("variant", ["plain", "odd, running, reserved", "set-wise, without GPUs, budgets"])
@pytest.mark.parametrize("seed", range(2))
def test_branch_and_bound_is_between_the_program_and_the_dive(variant, seed):
    """The two agree to the gap that HiGHS leaves open."""
    master = generated(variant, seed).master
    values = {name: value(master, chosen) for name, chosen in rounded(master).items()}
    gap = 2e-4 * abs(master.objective)
    assert master.objective - gap <= min(values.values())
    assert values["cp-sat"] == pytest.approx(values["highs"], abs=gap)
    assert max(values["cp-sat"], values["highs"]) <= values["dive"] + gap


@variants
@pytest.mark.parametrize("seed", range(3))
def test_a_choice_never_uses_more_nodes_than_there_are_and_no_part_of_a_gang(variant, seed):
    master = generated(variant, seed).master
    made = master.made
    for name, chosen in rounded(master).items():
        used = np.bincount([made.columns[number].shape for number in chosen], minlength=master.shapes)
        assert (used <= master.nodes).all(), name
        total = held(master, chosen)
        if name == "dive":
            assert (total <= master.supply + 1e-6).all()
        else:
            assert total == pytest.approx(np.rint(total))
        plan = plan_of(made, chosen)
        # A part of a gang without a partner is left out, without which a GPU's gate need not hold.
        assert {fault.rule for fault in violations(made.problem, plan)} <= {"window", "gate"}
        assert objective(made.problem, plan).total < objective(made.problem, made.problem.base).total


def holding(problem, *rows):
    """Columns that cost nothing, each from the jobs it holds and the positions of their GPUs on a node."""
    of = NodeColumns(Facts(problem), Contents(problem), 0).class_of
    return [Column(0, tuple(sorted((int(of[j]), at) for j, at in row.items())), 0) for row in rows]


def test_gangs_over_nodes_come_whole():
    """On 3 nodes, gangs of 2 nodes each and a job that is worth less than half a gang: one gang, and the job."""
    problem = make([node(2)] * 3, [job(4, max_nodes=2)] * 2 + [job(2, wait_cost=HOUR)])
    master = of_columns(problem, holding(problem, {0: (0, 1)}, {2: (0, 1)}))
    assert master.objective == pytest.approx(-6 * HOUR)  # a gang and a half
    found = rounded(master)
    assert sorted(found["highs"]) == sorted(found["cp-sat"]) == [0, 0, 1]
    for name, chosen in found.items():
        plan = plan_of(master.made, chosen)
        assert violations(problem, plan) == ()
        assert sum(spot is not None for spot in plan[:2]) == 1
        assert plan[2] is not None or name == "dive"


def test_branch_and_bound_counts_gangs_and_not_their_parts():
    """Two gangs on four nodes save 8 HOUR; one, and two jobs, would save a little less."""
    jobs = [job(4, max_nodes=2)] * 2 + [job(2, wait_cost=2 * HOUR - 1)] * 2
    master = of_columns(
        make([node(2)] * 4, jobs), holding(make([node(2)] * 4, jobs), {0: (0, 1)}, {2: (0, 1)})
    )
    assert Rounding(master, 0).by_cpsat(5.0, []) == Rounding(master, 0).by_highs(5.0) == [0, 0, 0, 0]


def test_branch_and_bound_makes_no_gang_of_parts_on_gpus_of_two_kinds():
    problem = make([node(2), node(2, kind=1)], [job(4, max_nodes=2)])
    master = of_columns(problem, [Column(shape, ((0, (0, 1)),), 1) for shape in (0, 1)])
    assert Rounding(master, 0).by_cpsat(5.0, []) == Rounding(master, 0).by_highs(5.0) == []


def test_a_gang_that_got_one_part_gets_the_others():
    """One part beside a job that is worth a node; the other is worth less than the job that fills the second node."""
    jobs = [job(4, max_nodes=2, wait_cost=HOUR), job(1, type=1, wait_cost=9 * HOUR), job(2, wait_cost=HOUR)]
    problem = make([node(2)] * 2, jobs)
    master = of_columns(problem, holding(problem, {0: (0, 1), 1: (0,)}, {0: (0, 1)}, {2: (0, 1)}))
    dive = Dive(master)
    dive._solve()
    dive._take(0)
    dive._complete()
    plan = plan_of(master.made, dive.chosen)
    assert dive.chosen == [0, 1] and plan == ((0, 1, 2, 3), (0,), None)


def test_a_gang_is_not_completed_on_gpus_of_another_kind():
    problem = make([node(2), node(2, kind=1)], [job(4, max_nodes=2)])
    dive = Dive(of_columns(problem, [Column(shape, ((0, (0, 1)),), 0) for shape in (0, 1)]))
    dive._solve()
    dive._take(0)
    dive._complete()
    assert dive.chosen == [0]


def test_a_column_is_not_taken_without_a_node_or_without_its_jobs():
    for nodes, jobs in ((1, 2), (2, 1)):
        dive = Dive(of_columns(make([node(1)] * nodes, [job()] * jobs), [Column(0, ((0, (0,)),), 0)]))
        assert dive._fits(0)
        dive._take(0)
        assert not dive._fits(0)


def test_a_dive_that_is_late_takes_what_it_can_at_once():
    master = generated("plain", 0).master
    hurried = Dive(master).run(0.0)
    used = np.bincount([master.made.columns[i].shape for i in hurried], minlength=master.shapes)
    assert (used <= master.nodes).all() and (held(master, hurried) <= master.supply + 1e-6).all()
    assert violations(master.made.problem, plan_of(master.made, hurried)) == ()
    assert master.objective * 1.0001 <= value(master, hurried) < 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_made_on_the_way_down_are_of_jobs_that_are_left(variant):
    found = grown(drawn(variant, 1), 1)
    master, made = found.master, found.columns
    chosen = found.dive(EVER)
    used = np.bincount([made.columns[i].shape for i in chosen], minlength=master.shapes)
    assert (used <= master.nodes).all() and (held(master, chosen) <= master.supply + 1e-6).all()
    for board in found.boards:
        queued = made.class_of >= 0
        assert not board.table("PLACED")[: len(queued)][queued].any()


def test_a_dive_that_makes_columns_ends_lower_than_one_that_does_not():
    gained = []
    for seed in range(4):
        found = grown(drawn("plain", seed), seed)
        plain = value(found.master, Dive(found.master).run(EVER))
        gained.append(plain - value(found.master, found.dive(EVER)))
    assert sum(gained) > 0


def test_members_that_are_used_are_not_taken_again():
    made = NodeColumns(Facts(problem := make([node(2)], [job()] * 3)), Contents(problem), 0)
    made.charge(made.board, np.array([1e9]))
    for used, most in ((1.0, 2), (2.0, 1), (3.0, 0)):
        made.block(made.board, np.array([used]))
        assert len(made.price(made.board, 0, 20, None).holds) == most
    made.block(made.board, None)
    assert len(made.price(made.board, 0, 20, None).holds) == 3


def test_nothing_is_chosen_where_there_is_nothing():
    for problem in (make(), make([node(1)]), make([], [job()]), make([node(1, closed=True)], [job()])):
        master = grown(problem).master
        assert plan_of(master.made, Dive(master).run(EVER)) == problem.base
        assert master.objective == 0


# ---- who gets the places ----


def test_those_whose_waiting_costs_most_are_placed_first():
    waits = [3 * HOUR, 5 * HOUR, 4 * HOUR]
    problem = make([node(1)] * 2, [job(wait_cost=wait) for wait in waits])
    master = of_columns(problem, [Column(0, ((0, (0,)),), 0)])
    assert master.objective == pytest.approx(-9 * HOUR)
    assert plan_of(master.made, [0, 0]) == (None, (0,), (1,))
    assert plan_of(master.made, [0, 0, 0]) == (None, (0,), (1,))


def test_the_next_in_line_is_placed_where_a_budget_is_used_up():
    waits = [5 * HOUR, 4 * HOUR, 3 * HOUR, 2 * HOUR]
    budgets = (Budget("quota", "team", 3, (0, 1, 2), (2, 2, 1)), Budget("quota", "other", 9, (3,), (10,)))
    problem = make([node(1)] * 4, [job(wait_cost=wait) for wait in waits], budgets=budgets)
    master = of_columns(problem, [Column(0, ((0, (0,)),), 0)])
    plan = plan_of(master.made, [0, 0, 0, 0])
    assert plan == ((0,), None, (1,), None)
    assert violations(problem, plan) == ()


def test_who_runs_stays_and_who_needs_no_gpu_waits():
    problem = make([node(2)] * 2, [job(home=(0,)), job(0), job(0, home=(1,))], max_moves=3)
    found = grown(problem)
    assert plan_of(found.columns, Dive(found.master).run(EVER)) == problem.base


def test_more_rounds_make_the_program_better():
    few, many = (grown(drawn("plain", 1), rounds=rounds).master for rounds in (1, 6))
    assert many.objective < few.objective


def test_the_first_columns_are_made_at_the_prices_given():
    """Jobs that cost more than waiting does are in no column; a price that is not known is none."""
    problem = drawn("plain", 1)
    found = Generator(Facts(problem), Contents(problem), Facts(problem).earliest_makespan, 0, 1)
    free = {c for c, members in enumerate(found.columns.members) if members[0] % 2}
    prices = np.where(np.arange(problem.jobs) % 2, 1e12, np.nan)
    found.run(prices, 1, 0.0)
    held = {c for column in found.columns.columns for c, _ in column.holds}
    assert held and held <= free


def test_two_generators_with_one_seed_find_the_same_columns():
    problem = drawn("everything", 1)
    one, two = grown(problem, 3), grown(problem, 3)
    assert one.columns.columns == two.columns.columns
    assert Dive(one.master).run(EVER) == Dive(two.master).run(EVER)


@variants
def test_the_plan_of_a_dive_ends_in_time(variant):
    """Unless who waits or runs does not."""
    found = generated(variant, 0)
    problem = found.columns.problem
    last = Facts(problem).earliest_makespan
    plan = plan_of(found.columns, Dive(found.master).run(EVER))
    late = [j for j, end in enumerate(ends(problem, plan)) if end is not None and end > last]
    if problem.makespan_cost:
        assert all(plan[j] is None or problem.home[j] is not None for j in late)


# ---- what the engine makes of such a plan ----


@pytest.mark.parametrize(
    "variant", ["odd, running, reserved", "set-wise, without GPUs, budgets", "everything"]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_from_columns_is_mended_and_filled(variant, seed):
    problem = drawn(variant, seed)
    engine = Engine(problem, Limits(wall_s=60.0, deterministic=True), lambda *_: None)
    (board,) = engine._from_columns(engine._first(None), 3)
    assert violations(problem, board.placed()) == ()
    assert board.objective() == objective(problem, board.placed()).total
