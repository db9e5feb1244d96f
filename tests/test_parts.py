"""Problems split into parts that are solved apart: what a part holds, and what a merged plan keeps to."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from brute import tiny
from problems import EVERYTHING, HOUR, job, make, node, random_problem

from solvers import dump, greedy, parts, solve
from solvers.check import objective, violations
from solvers.child import End, Ending, Heard
from solvers.facts import Facts
from solvers.parts import load_part, local, loss, merge, save_part, solve_parts, split
from solvers.problem import Budget, Limits, Solution, Status

ONE_PASS = Limits(wall_s=0)
VARIANTS = {
    "plain": {},
    "running": {"residents": 0.4},
    "everything": EVERYTHING,
}
variants = pytest.mark.parametrize("variant", VARIANTS)
seeds = pytest.mark.parametrize("seed", range(4))


def drawn(seed, variant, jobs=60, gpus=32):
    return random_problem(seed, jobs, gpus, nodes_of=4, **VARIANTS[variant])


def by_greedy(problems, limits):
    """Solves in this process; one pass is enough for plans that differ."""
    return [greedy.solve(p, ONE_PASS, None, lambda *_: None) for p in problems]


def keep_base(problems, limits):
    return [Solution("none", Status.NO_ANSWER) for _ in problems]


# ---- what a part holds ----


@seeds
@variants
@pytest.mark.parametrize("k", [2, 3, 4])
def test_every_job_gpu_and_node_is_in_one_part(seed, variant, k):
    problem = drawn(seed, variant)
    dealt = split(problem, k, seed)
    for name, count in (("jobs", problem.jobs), ("gpus", problem.gpus), ("nodes", problem.nodes)):
        assert sorted(i for part in dealt for i in getattr(part, name)) == list(range(count))
    for part in dealt:
        assert part.nodes
        assert set(part.gpus) == set(np.flatnonzero(np.isin(problem.gpu_node, part.nodes)).tolist())
        assert violations(part.problem, part.problem.base) == ()


@seeds
@variants
def test_one_part_is_the_problem_itself(seed, variant):
    problem = drawn(seed, variant)
    (part,) = split(problem, 1, seed)
    assert dump.digest(part.problem) == dump.digest(problem)
    assert part.jobs == tuple(range(problem.jobs))


def test_equal_seeds_give_equal_parts_and_others_do_not():
    problem = drawn(0, "everything")
    first, again, other = (split(problem, 3, seed) for seed in (1, 1, 2))
    assert [dump.digest(part.problem) for part in first] == [dump.digest(part.problem) for part in again]
    assert [part.jobs for part in first] != [part.jobs for part in other]


@pytest.mark.parametrize("k", [2, 4, 8])
def test_parts_look_alike(k):
    """As many nodes of each kind, and as many GPUs asked for, by gangs of each size."""
    problem = random_problem(0, 1000, 512)
    dealt = split(problem, k, 0)
    for kind in range(4):
        count = [int((part.problem.gpu_kind == kind).sum()) for part in dealt]
        assert max(count) - min(count) <= 8
    size = np.array([len(part.gpus) for part in dealt]) / problem.gpus
    for n in (1, 2, 4, 8):
        asked = np.array([int((problem.job_gpus[list(part.jobs)] == n).sum()) for part in dealt])
        assert np.abs(asked - size * asked.sum()).max() <= 0.15 * asked.sum() / k + 2


def test_a_gang_that_runs_across_nodes_keeps_them_together():
    """Jobs 0 and 1 tie nodes 0, 1 and 3 together, so that two groups are left."""
    nodes = [node(1) for _ in range(4)]
    problem = make(nodes, [job(2, home=(0, 3), max_nodes=2), job(2, home=(1, 3), max_nodes=2), job(1)])
    assert sorted(part.nodes for part in split(problem, 2, 0)) == [(0, 1, 3), (2,)]
    with pytest.raises(
        ValueError, match="cannot split 4 nodes, which running gangs tie into 2 groups, into 3 parts"
    ):
        split(problem, 3, 0)


@pytest.mark.parametrize("k", [0, 3])
def test_each_part_needs_a_node(k):
    with pytest.raises(ValueError, match=f"cannot split 2 nodes into {k} parts: each part needs one"):
        solve_parts(make([node(1), node(1)], [job()]), ONE_PASS, k)


@pytest.mark.parametrize("seed", range(5))
def test_a_part_of_each_node_even_of_those_without_gpus(seed):
    nodes = [node(0), node(8), node(0), node(1)]
    assert sorted(len(part.nodes) for part in split(make(nodes, [job()]), 4, seed)) == [1] * 4


@pytest.mark.parametrize("seed", range(5))
def test_a_queued_job_goes_where_it_fits(seed):
    """Each of four jobs fits on one node only: by node set, kind, host, and number of GPUs."""
    nodes = [node(1), node(1, kind=1), node(1, cpu_milli=90_000), node(4)]
    nodes[0]["cpu_milli"] = nodes[1]["cpu_milli"] = nodes[3]["cpu_milli"] = 8_000
    jobs = [job(node_set=1), job(speed_milli=(0, 1000)), job(cpu_milli=80_000), job(3)]
    for only in jobs[:1] + jobs[2:]:
        only["speed_milli"] = (1000, 0)
    sets = [[True] * 4, [True, False, False, False]]
    dealt = split(make(nodes, jobs, kinds=2, node_sets=sets), 4, seed)
    assert sorted((part.nodes, part.jobs) for part in dealt) == [((v,), (v,)) for v in range(4)]


@pytest.mark.parametrize("seed", range(5))
def test_a_queued_job_goes_where_it_fits_even_if_that_part_has_its_due(seed):
    """Whoever has the gang has had more than its share, and still gets the job that fits nowhere else."""
    sets = [[True, True], [True, False], [False, True]]
    problem = make([node(8), node(8)], [job(8), job(node_set=1), job(node_set=2)], node_sets=sets)
    dealt = {part.nodes: part.jobs for part in split(problem, 2, seed)}
    assert 1 in dealt[(0,)]
    assert 2 in dealt[(1,)]


@pytest.mark.parametrize("seed", range(5))
def test_a_gang_too_wide_for_some_parts_goes_to_the_others(seed):
    """16 GPUs on two nodes are only where the large ones are, which a running gang ties together; the other part has six
    nodes of four, of two shapes."""
    nodes = [node(8), node(8), *[node(4)] * 6, *[node(4, cpu_milli=10**6)] * 6]
    tie = job(2, home=(0, 8), max_nodes=2)
    problem = make(nodes, [tie, *[job(16, max_nodes=2) for _ in range(4)]])
    both = [part for part in split(problem, 2, seed) if 0 in part.nodes]
    assert [(len(part.nodes), part.jobs) for part in both] == [(8, (0, 1, 2, 3, 4))]


@seeds
def test_rules_about_jobs_apart_are_dropped_and_others_kept(seed):
    problem = drawn(seed, "everything")
    for part in split(problem, 3, seed):
        kept = {(part.jobs[a], part.jobs[b]) for a, b in part.problem.never}
        assert kept == {(a, b) for a, b in problem.never if a in part.jobs and b in part.jobs}


@pytest.mark.parametrize("seed", range(5))
def test_reserved_gpus_are_held_in_the_part_with_most_of_them(seed):
    """Three of the four are on the first node: there job 1 holds them, on the second nobody does."""
    nodes = [node(3, until_s=60, holder=1), node(3, until_s=(60, -1, -1), holder=(1, -1, -1))]
    jobs = [job(home=(0,)), job(2), job(home=(3,))]
    first, second = sorted(split(make(nodes, jobs), 2, seed), key=lambda part: part.nodes)
    assert first.jobs == (0, 1)
    assert first.problem.gpu_holder.tolist() == [1, 1, 1]
    assert second.problem.gpu_holder.tolist() == [-1, -1, -1]
    assert second.problem.gpu_until_s.tolist() == [60, -1, -1]


@seeds
def test_moves_and_budgets_are_divided_and_never_more_than_the_whole(seed):
    problem = replace(drawn(seed, "everything"), max_moves=7)
    dealt = split(problem, 3, seed)
    assert sum(part.problem.max_moves for part in dealt) == 7
    for b, budget in enumerate(problem.budgets):
        own = [part.problem.budgets[b] for part in dealt]
        assert sum(budget.capacity for budget in own) == budget.capacity
        asked = {j: a for j, a in zip(budget.jobs, budget.amounts, strict=True)}
        for part, mine in zip(dealt, own, strict=True):
            assert {part.jobs[j]: a for j, a in zip(mine.jobs, mine.amounts, strict=True)} == {
                j: a for j, a in asked.items() if j in part.jobs
            }


def test_a_budget_goes_by_what_the_parts_queued_jobs_ask_for():
    """The running job of the second node asks for nothing; 8 are divided as 3 to 1."""
    nodes = [node(2), node(2)]
    sets = [[True, True], [True, False], [False, True]]
    jobs = [job(node_set=1), job(node_set=2), job(home=(2,))]
    budget = Budget("quota", "team", 8, (0, 1, 2), (3, 1, 50))
    dealt = split(make(nodes, jobs, node_sets=sets, budgets=(budget,)), 2, 0)
    shares = {part.nodes: part.problem.budgets[0].capacity for part in dealt}
    assert shares == {(0,): 6, (1,): 2}


@seeds
def test_no_part_pays_for_ends_that_cost_the_whole_nothing(seed):
    problem = random_problem(seed, 60, 32, nodes_of=4)
    floor = Facts(problem).earliest_makespan
    dealt = split(problem, 4, seed)
    assert [Facts(part.problem).earliest_makespan >= floor for part in dealt] == [True] * 4
    assert any(part.problem.jobs > len(part.jobs) for part in dealt)
    free = split(replace(problem, makespan_cost=0), 4, seed)
    assert all(part.problem.jobs == len(part.jobs) for part in free)


# ---- what a merged plan keeps to ----


@seeds
@variants
@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_referee_accepts_a_merged_plan_which_costs_what_its_parts_do(seed, variant, k):
    """But for the makespan, which is the latest end of all."""
    problem = replace(drawn(seed, variant), fragmentation_base=777)
    dealt = split(problem, k, seed)
    answers = by_greedy([part.problem for part in dealt], ONE_PASS)
    merged = merge(problem, dealt, answers)
    assert violations(problem, merged) == ()
    terms = [objective(part.problem, answer.placed) for part, answer in zip(dealt, answers, strict=True)]
    whole = objective(problem, merged)
    assert sum(t.total - t.makespan for t in terms) == whole.total - whole.makespan
    assert whole.makespan <= max(t.makespan for t in terms)


@pytest.mark.parametrize("seed", range(40))
def test_tiny_problems_with_every_rule_merge_to_valid_plans(seed):
    problem = tiny(seed)
    try:
        found = solve_parts(problem, replace(ONE_PASS, seed=seed), 2, by_greedy)
    except ValueError:
        assert problem.nodes == 1 or any(
            home and len(set(problem.gpu_node[list(home)].tolist())) > 1
            for j, home in enumerate(problem.home)
            if problem.job_gpus[j]
        )
        return
    assert violations(problem, found.placed) == ()
    assert found.objective == objective(problem, found.placed).total
    assert found.objective <= objective(problem, problem.base).total


def test_a_part_without_a_valid_answer_keeps_its_base_plan():
    """The first part's answer breaks a rule, the second has none, the third is of another length."""
    problem = make([node(1)] * 3, [job(home=(0,)), job(home=(1,)), job(home=(2,))])
    dealt = split(problem, 3, 0)
    answers = [
        Solution("x", Status.FEASIBLE, (None,)),
        Solution("x", Status.FAILED),
        Solution("x", Status.FEASIBLE, ((0,), (0,))),
    ]
    assert merge(problem, dealt, answers) == problem.base


def test_what_waits_in_a_part_starts_where_the_whole_has_room():
    """Two jobs and two GPUs, but whoever solves the parts starts nothing."""
    problem = make([node(1), node(1)], [job(alone=True), job(alone=True)])
    found = solve_parts(problem, ONE_PASS, 2, keep_base)
    assert sorted(spot for spot in found.placed if spot) == [(0,), (1,)]
    assert found.note == "2 parts, 2 started in the last fill"


def test_one_part_solved_is_the_problem_solved():
    problem = random_problem(3, 40, 24, nodes_of=4, residents=0.3)
    limits = Limits(wall_s=3, deterministic=True)
    assert solve_parts(problem, limits, 1).placed == solve(problem, limits, bound=False).placed


@pytest.mark.parametrize("k", [2, 3])
def test_a_deterministic_split_gives_one_answer(k):
    problem = drawn(1, "running")
    limits = Limits(wall_s=4, deterministic=True)
    first, again = (solve_parts(problem, limits, k) for _ in range(2))
    assert first.placed == again.placed
    assert violations(problem, first.placed) == ()


def test_the_bound_is_the_wholes_or_none_and_the_loss_is_told():
    """An idle GPU-hour is all there is to lose: 4 hours against 3 and a bound of 2."""
    nodes, jobs = [node(1), node(1)], [job() for _ in range(6)]
    problem = make(nodes, [{**one, "cap_milli": 1000} for one in jobs], slowdown=3000)
    alone = solve_parts(problem, ONE_PASS, 2, by_greedy)
    assert alone.objective == 4 * HOUR
    assert alone.bound is None
    assert [attempt.bound for attempt in alone.attempts] == [None, None]
    whole = Solution("x", Status.FEASIBLE, problem.base, 3 * HOUR, 2 * HOUR)
    told = solve_parts(problem, ONE_PASS, 2, by_greedy, whole=whole)
    assert told.bound == 2 * HOUR
    assert told.note.endswith("50.00% off the bound, 33.33% above the unsplit plan")
    assert loss(told, Solution("x", Status.NO_ANSWER)) == parts.Loss(None, None)


# ---- who solves the parts ----


def test_whoever_solves_them_gets_the_problems_alone_and_time_for_them():
    problem, heard = drawn(0, "plain"), []

    def run(problems, limits):
        heard.append((problems, limits))
        return by_greedy(problems, limits)

    solve_parts(problem, Limits(wall_s=5, seed=3), 4, run)
    ((problems, limits),) = heard
    assert [p.nodes for p in problems] == [2] * 4
    assert 4 < limits.wall_s < 4.5
    assert limits.seed == 3


@variants
def test_a_part_travels_as_a_file(variant, tmp_path):
    problem = random_problem(2, 60, 32, nodes_of=4, **VARIANTS[variant])
    dealt = split(problem, 3, 2)
    for p, part in enumerate(dealt):
        save_part(part, tmp_path / f"{p}.npz")
    back = [load_part(tmp_path / f"{p}.npz") for p in range(3)]
    for part, again in zip(dealt, back, strict=True):
        assert (again.jobs, again.gpus, again.nodes) == (part.jobs, part.gpus, part.nodes)
        assert dump.digest(again.problem) == dump.digest(part.problem)
    here, there = (by_greedy([part.problem for part in some], ONE_PASS) for some in (dealt, back))
    assert merge(problem, dealt, here) == merge(problem, back, there)


def test_a_problem_that_is_no_part_is_refused(tmp_path):
    dump.save(drawn(0, "plain"), tmp_path / "whole.npz")
    with pytest.raises(ValueError, match="no part of one: it lacks 'jobs'"):
        load_part(tmp_path / "whole.npz")


def test_children_solve_the_parts():
    problem = drawn(0, "everything")
    dealt = split(problem, 3, 0)
    answers = local([part.problem for part in dealt], Limits(wall_s=0.3, workers=2))
    assert [violations(part.problem, a.placed) for part, a in zip(dealt, answers, strict=True)] == [()] * 3
    base = [objective(part.problem, part.problem.base).total for part in dealt]
    assert all(a.objective < b for a, b in zip(answers, base, strict=True))


def test_a_child_that_fails_costs_its_part_only(monkeypatch):
    problem = make([node(1), node(1)], [job(), job()])
    dealt = split(problem, 2, 0)

    def fails(problem_, limits, hint, report):
        if problem_ is dealt[0].problem:
            raise RuntimeError("no luck")
        return solve(problem_, limits, bound=False)

    monkeypatch.setattr(parts, "_solve", fails)
    answers = local([part.problem for part in dealt], Limits(wall_s=0.2, workers=2))
    assert [a.status is Status.FAILED for a in answers] == [True, False]
    assert "no luck" in answers[0].note
    assert sum(spot is not None for spot in merge(problem, dealt, answers)) == 1


@pytest.mark.parametrize(("given", "at_once", "shares_s", "each"), [
    ({"workers": 2}, 2, [2, 2, 3, 3, 6], 1),  # three turns, of which none takes its time
    ({"workers": 8}, 5, [6] * 5, 1),
    ({"workers": 10}, 5, [6] * 5, 2),
    ({"deterministic": True, "workers": 4}, 1, [1.2] * 5, 1),
])  # fmt: skip
def test_no_more_children_than_workers_share_the_time(given, at_once, shares_s, each, monkeypatch):
    """Five parts in 6 s."""
    lock, now, most, seen = threading.Lock(), [0], [0], []

    def apart(solve_, problem, limits, hint, *, ends_at, stop):
        assert not stop()  # as the child's listener does first
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            seen.append(limits)
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return Ending(End.LATE, Heard())

    monkeypatch.setattr(parts, "apart", apart)
    problems = [make([node(1)], [job()])] * 5
    answers = local(problems, Limits(wall_s=6, **given))
    assert most[0] == at_once
    assert sorted(limits.wall_s for limits in seen) == pytest.approx(shares_s, rel=0.2)
    assert {limits.workers for limits in seen} == {each}
    assert [(a.status, a.note) for a in answers] == [(Status.FAILED, "late")] * 5
