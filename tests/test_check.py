"""The referee: for every rule an allowed and a refused placement that differ in one fact."""

import pytest
from problems import job, make, node

from solvers.check import violations
from solvers.problem import FORBIDDEN, Budget


def broken(problem, *placed):
    """Names of the broken rules."""
    return [violation.rule for violation in violations(problem, placed)]


def test_the_base_plan_breaks_nothing_however_bad_it_is():
    residents = [
        job(memory_mib=90_000, home=(0,), alone=True, share_group=i, cpu_milli=9_000) for i in range(4)
    ]
    bad = make([node(1, closed=True, node_closed=True, cpu_milli=1)], residents, slowdown=FORBIDDEN)
    assert violations(bad, bad.base) == ()


def test_a_violation_says_where_and_how_much():
    [found] = violations(make([node(1)], [job(memory_mib=80_001)]), ((0,),))
    assert (found.rule, found.job, found.gpu, found.node) == ("memory", None, 0, None)
    assert found.text == "tenants need 80001 MiB, GPU 0 offers 80000 MiB"


@pytest.mark.parametrize(
    "placed",
    [
        None,
        [],
        (),
        (None,),
        (None, None, None),
        ((0,), "0"),
        ((0,), [1]),
        ((0,), (1.0,)),
        ((0,), (True,)),
        ((0,), ()),
        ((0,), (4,)),
        ((0,), (-1,)),
        ((0,), 1),
    ],
)
def test_a_malformed_placement_is_a_violation_and_no_traceback(placed):
    problem = make([node(4)], [job(), job()])
    assert {violation.rule for violation in violations(problem, placed)} == {"placement"}


def test_gpus_are_ascending_and_distinct():
    gang = make([node(2)], [job(2)])
    assert broken(gang, (0, 1)) == []
    assert broken(gang, (1, 0)) == ["gang"]
    assert broken(gang, (1, 1)) == ["gang"]


def test_a_gang_gets_all_its_gpus_or_none():
    gang = make([node(3)], [job(2)])
    assert broken(gang, (0, 1)) == []
    assert broken(gang, None) == []
    assert broken(gang, (0,)) == ["gang"]
    assert broken(gang, (0, 1, 2)) == ["gang"]


def test_a_job_without_gpus_gets_one_node():
    cpu_only = make([node(1), node(1)], [job(0)])
    assert broken(cpu_only, (1,)) == []
    assert broken(cpu_only, (0, 1)) == ["gang", "nodes"]  # two nodes, and more than max_nodes


def test_a_gang_is_on_one_kind():
    def on(kinds):
        return make([node(2, kind=kinds)], [job(2)], kinds=2)

    assert broken(on([1, 1]), (0, 1)) == []
    assert broken(on([0, 1]), (0, 1)) == ["kind"]


def test_a_job_runs_only_where_its_speed_is_above_zero():
    assert broken(make([node(1)], [job(speed_milli=1)]), (0,)) == []
    assert broken(make([node(1)], [job(speed_milli=0)]), (0,)) == ["kind"]


def test_a_job_uses_at_most_max_nodes():
    assert broken(make([node(1), node(1)], [job(2, max_nodes=2)]), (0, 1)) == []
    assert broken(make([node(1), node(1)], [job(2, max_nodes=1)]), (0, 1)) == ["nodes"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_stays_in_its_node_set(gpus):
    cluster, sets = [node(1), node(1)], [[True, True], [False, True]]
    assert broken(make(cluster, [job(gpus, node_set=0)], node_sets=sets), (0,)) == []
    assert broken(make(cluster, [job(gpus, node_set=1)], node_sets=sets), (0,)) == ["nodes"]


def test_gpus_per_node_is_exact_on_each_node():
    def spread(wanted):
        return make([node(3), node(3)], [job(4, max_nodes=2, gpus_per_node=wanted)])

    assert broken(spread(2), (0, 1, 3, 4)) == []
    assert broken(spread(0), (0, 1, 2, 3)) == []
    assert broken(spread(2), (0, 1, 2, 3)) == ["nodes"]


def test_equal_per_node_wants_the_same_number_on_each():
    def spread(equal):
        return make([node(3), node(3)], [job(4, max_nodes=2)], equal_per_node=equal)

    assert broken(spread(True), (0, 1, 3, 4)) == []
    assert broken(spread(False), (0, 1, 2, 3)) == []
    assert broken(spread(True), (0, 1, 2, 3)) == ["nodes"]


def test_same_index_wants_the_same_gpus_on_each_node():
    def spread(same):
        return make([node(2), node(2)], [job(2, max_nodes=2)], same_index=same)

    assert broken(spread(True), (0, 2)) == []
    assert broken(spread(False), (0, 3)) == []
    assert broken(spread(True), (0, 3)) == ["nodes"]


def test_a_running_job_moves_only_if_movable():
    def running(movable):
        return make([node(2)], [job(home=(0,), movable=movable)], max_moves=1)

    assert broken(running(True), (1,)) == []
    assert broken(running(False), (1,)) == ["running"]
    assert broken(running(True), None) == ["running"]  # it may move, not stop


def test_a_running_job_stops_only_if_preemptible():
    def running(preemptible):
        return make([node(2)], [job(home=(0,), preemptible=preemptible)], max_moves=1)

    assert broken(running(True), None) == []
    assert broken(running(False), None) == ["running"]
    assert broken(running(True), (1,)) == ["running"]  # it may stop, not move


def test_at_most_max_moves_running_jobs_are_moved_or_preempted():
    def two(max_moves):
        jobs = [job(home=(0,), movable=True), job(home=(1,), preemptible=True)]
        return make([node(3)], jobs, max_moves=max_moves)

    assert broken(two(2), (2,), None) == []
    assert broken(two(1), (2,), None) == ["running"]
    assert broken(two(1), (0,), None) == []


def test_no_newcomer_on_a_closed_gpu():
    assert broken(make([node(1, closed=False)], [job()]), (0,)) == []
    assert broken(make([node(1, closed=True)], [job()]), (0,)) == ["closed"]


def test_a_gpu_has_at_most_its_tenants():
    assert broken(make([node(1, max_tenants=2)], [job(), job()]), (0,), (0,)) == []
    assert broken(make([node(1, max_tenants=1)], [job(), job()]), (0,), (0,)) == ["tenants"]


def test_a_job_that_is_alone_has_no_co_tenant():
    assert broken(make([node(1)], [job(), job()]), (0,), (0,)) == []
    assert broken(make([node(1)], [job(alone=True), job()]), (0,), (0,)) == ["alone"]
    assert broken(make([node(1)], [job(alone=True, home=(0,)), job()]), (0,), (0,)) == ["alone"]


def test_a_job_that_is_alone_does_not_enter_where_outsiders_are():
    def shared(outside, home=None):
        return make([node(1, shared_outside=outside)], [job(alone=True, home=home)])

    assert broken(shared(False), (0,)) == []
    assert broken(shared(True), (0,)) == ["alone"]
    assert broken(shared(True, home=(0,)), (0,)) == []


def test_memory_keeps_a_margin_only_when_shared():
    def pair(memory_mib):
        return make([node(1, margin_mib=500)], [job(memory_mib=40_000), job(memory_mib=memory_mib)])

    assert broken(pair(39_500), (0,), (0,)) == []
    assert broken(pair(39_501), (0,), (0,)) == ["memory"]
    assert broken(make([node(1, margin_mib=500)], [job(memory_mib=80_000)]), (0,)) == []


def test_memory_is_that_of_the_kind():
    assert broken(make([node(1, kind=1)], [job(memory_mib=[90_000, 1])], kinds=2), (0,)) == []
    assert broken(make([node(1, kind=1)], [job(memory_mib=[1, 90_000])], kinds=2), (0,)) == ["memory"]


def test_residents_that_break_a_rule_are_left_alone_but_take_nobody_in():
    full = make([node(1)], [job(memory_mib=50_000, home=(0,)), job(memory_mib=50_000, home=(0,)), job()])
    assert broken(full, (0,), (0,), None) == []
    assert broken(full, (0,), (0,), (0,)) == ["memory"]


def test_a_moved_job_is_a_newcomer_also_on_a_gpu_that_it_keeps():
    def gang(memory_mib):
        return make([node(3)], [job(2, memory_mib=memory_mib, home=(0, 1), movable=True)], max_moves=1)

    assert broken(gang(80_000), (1, 2)) == []
    assert broken(gang(80_001), (0, 1)) == []
    assert broken(gang(80_001), (1, 2)) == ["memory", "memory"]


def test_shares_on_a_gpu_are_at_most_its_own():
    assert broken(make([node(1)], [job(share=500), job(share=500)]), (0,), (0,)) == []
    assert broken(make([node(1)], [job(share=500), job(share=501)]), (0,), (0,)) == ["share"]


def test_only_jobs_of_one_share_group_share():
    assert broken(make([node(1)], [job(share_group=4), job(share_group=4)]), (0,), (0,)) == []
    assert broken(make([node(1)], [job(share_group=4), job(share_group=5)]), (0,), (0,)) == ["consent"]


def test_a_never_pair_does_not_share():
    def pair(never):
        return make([node(2)], [job(), job()], never=never)

    assert broken(pair(()), (0,), (0,)) == []
    assert broken(pair(((0, 1),)), (0,), (1,)) == []
    assert broken(pair(((0, 1),)), (0,), (0,)) == ["never"]


def test_a_never_pair_of_a_gpu_and_a_node_with_one_number_is_no_pair():
    mixed = make([node(1)], [job(0), job()], never=((0, 1),))
    assert broken(mixed, (0,), (0,)) == []


def test_nobody_is_slower_than_its_cap():
    def pair(cap):
        return make([node(1)], [job(cap_milli=cap), job()], slowdown=1500)

    assert broken(pair(1500), (0,), (0,)) == []
    assert broken(pair(1499), (0,), (0,)) == ["slowdown"]


def test_a_forbidden_slowdown_passes_every_cap():
    found = broken(make([node(1)], [job(), job()], slowdown=FORBIDDEN, gate=False), (0,), (0,))
    assert found == ["slowdown", "slowdown"]


def test_two_equal_jobs_share_if_their_speeds_sum_to_more_than_one():
    def pair(slowdown, gate=True):
        return make([node(1)], [job(), job()], slowdown=slowdown, gate=gate)

    assert broken(pair(1900), (0,), (0,)) == []
    assert broken(pair(2100, gate=False), (0,), (0,)) == []
    assert broken(pair(2100), (0,), (0,)) == [
        "gate",
        "gate",
        "gate",
    ]  # worse than one, and than without either
    # 1.2 and 2.5: 0.83 + 0.4 > 1.
    uneven = make([node(1)], [job(type=0), job(type=1)], slowdown={(0, 1): 1200, (1, 0): 2500})
    assert broken(uneven, (0,), (0,)) == []


def test_a_newcomer_must_not_cost_the_others_more_than_it_gains():
    # Two run at 1 / 1.25 each (1.6 together); the third takes all three to 1 / 1.9 (1.58) or 1 / 1.8 (1.67).
    def third(slowdown):
        return make(
            [node(1)], [job(), job(), job()], slowdown=lambda m, a, co: {1: 1250, 2: slowdown}[len(co)]
        )

    assert broken(third(1800), (0,), (0,), (0,)) == []
    assert broken(third(1900), (0,), (0,), (0,)) == ["gate", "gate", "gate"]


def test_residents_are_exempt_from_the_gates_second_test():
    # With everybody 1 + 1/2.5 = 1.4 > 1, without the resident 1, without the newcomer 1: nobody is a loss.
    # Make the resident a loss: the newcomer alone 1, both 1/1.1 + 1/11 = 1.0000, just over 1.
    def pair(home):
        jobs = [job(type=0, home=home), job(type=1), job(type=1)]
        return make(
            [node(1)], jobs, slowdown=lambda m, a, co: 3000 if a == 0 else (1800 if 0 in co else 1250)
        )

    # All three: 1/3 + 2/1.8 = 1.44; without job 0: 2/1.25 = 1.6. As a newcomer it is refused, at home it is not.
    assert broken(pair((0,)), (0,), (0,), (0,)) == []
    assert broken(pair(None), (0,), (0,), (0,)) == ["gate"]


def test_a_newcomer_ends_before_the_reservation():
    def until(until_s, **facts):
        return make([node(1, until_s=until_s, holder=7)], [job(remaining_p90_s=1000, **facts)])

    assert broken(until(1000), (0,)) == []
    assert broken(until(999), (0,)) == ["window"]
    assert broken(until(-1), (0,)) == []
    assert broken(until(999, home=(0,)), (0,)) == []
    assert broken(until(2000, speed_milli=500), (0,)) == []
    assert broken(until(1999, speed_milli=500), (0,)) == ["window"]


def test_a_job_whose_end_nobody_knows_does_not_enter_a_reserved_gpu_but_its_own():
    def held_by(holder):
        return make([node(1, until_s=10**6, holder=holder)], [job(remaining_p90_s=-1)])

    assert broken(held_by(0), (0,)) == []
    assert broken(held_by(1), (0,)) == ["window"]


def test_a_window_counts_the_slowest_gpu_and_the_links_of_the_gang():
    # GPU 1 is shared at 1.5, the gang is split over two nodes at 1.2: 1000 * 1.5 * 1.2 = 1800 s on GPU 0.
    def gang(until_s):
        nodes = [node(1, until_s=until_s, holder=9), node(1)]
        jobs = [job(2, max_nodes=2, remaining_p90_s=1000, link_milli=(1000, 1000, 1200)), job()]
        return make(nodes, jobs, slowdown=1500, gate=False)

    assert broken(gang(1800), (0, 1), (1,)) == []
    assert broken(gang(1799), (0, 1), (1,)) == ["window"]


def test_host_cores_are_split_by_gpus_and_rounded_up():
    # 10 milli-CPUs over 3 GPUs: two of them take ceil(20 / 3) = 7.
    def gang(cpu_milli):
        return make([node(2, cpu_milli=cpu_milli), node(1)], [job(3, cpu_milli=10, max_nodes=2)])

    assert broken(gang(7), (0, 1, 2)) == []
    assert broken(gang(6), (0, 1, 2)) == ["host"]


def test_host_memory_counts_residents_and_jobs_without_gpus_whole():
    def three(host_memory_mib):
        jobs = [job(host_memory_mib=5, home=(0,)), job(host_memory_mib=6), job(0, host_memory_mib=7)]
        return make([node(2, host_memory_mib=host_memory_mib)], jobs)

    assert broken(three(18), (0,), (1,), (0,)) == []
    assert broken(three(17), (0,), (1,), (0,)) == ["host"]
    assert broken(three(17), (0,), (1,), None) == []


def test_an_overfull_node_is_left_alone_but_takes_nobody_in():
    full = make([node(2, cpu_milli=5)], [job(cpu_milli=9, home=(0,)), job(cpu_milli=0)])
    assert broken(full, (0,), None) == []
    assert broken(full, (0,), (1,)) == ["host"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_no_newcomer_on_a_closed_node(gpus):
    assert broken(make([node(1, node_closed=False)], [job(gpus)]), (0,)) == []
    assert broken(make([node(1, node_closed=True)], [job(gpus)]), (0,)) == ["closed node"]
    assert broken(make([node(1, node_closed=True)], [job(gpus, home=(0,))]), (0,)) == []


def test_a_job_that_wants_whole_nodes_shares_none():
    def pair(node_alone, home=None):
        return make([node(2), node(1)], [job(node_alone=node_alone, home=home), job()])

    assert broken(pair(False), (0,), (1,)) == []
    assert broken(pair(True), (0,), (2,)) == []
    assert broken(pair(True), (0,), (1,)) == ["whole node"]
    assert broken(pair(True, home=(0,)), (0,), (1,)) == ["whole node"]


def test_a_budget_counts_only_queued_jobs_that_are_placed():
    def three(capacity):
        jobs = [job(), job(), job(home=(2,))]
        return make([node(3)], jobs, budgets=(Budget("quota", "team", capacity, (0, 1, 2), (2, 3, 100)),))

    assert broken(three(5), (0,), (1,), (2,)) == []
    assert broken(three(4), (0,), (1,), (2,)) == ["budget"]
    assert broken(three(4), (0,), None, (2,)) == []
