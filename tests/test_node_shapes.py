"""Nodes of one shape are those that nothing tells apart; what tells them apart for newcomers, ``test_node_columns`` has too."""

import numpy as np
import pytest
from problems import job, make, node

from solvers.node_shapes import inhabited, shapes


def told_apart(problem, apart=(), open_to=None, nodes=None):
    """Shape of each node and nodes of each shape."""
    alone = np.isin(np.arange(problem.nodes), apart)
    some = range(problem.nodes) if nodes is None else nodes
    shape, alike = shapes(problem, some, problem.node_sets if open_to is None else open_to, alone)
    return shape.tolist(), alike


@pytest.mark.parametrize(
    ("fact", "same"),
    [
        ({"until_s": 60}, False),
        ({"until_s": 60, "holder": 0}, False),
        ({"holder": 0}, True),  # of no reservation
    ],
)
def test_reserved_nodes_are_alike_by_their_reservation(fact, same):
    problem = make([node(2), node(2, **fact), node(2, **fact)], [job()])
    assert told_apart(problem) == (([0, 0, 0], [[0, 1, 2]]) if same else ([0, 1, 1], [[0], [1, 2]]))


def test_nodes_reserved_for_others_are_of_other_shapes():
    problem = make([node(1, until_s=60, holder=j) for j in (0, 1, 0)], [job(), job()])
    assert told_apart(problem) == ([0, 1, 0], [[0, 2], [1]])


def test_a_node_apart_is_alone_and_one_that_is_not_asked_for_has_no_shape():
    problem = make([node(1)] * 5, [job()])
    assert told_apart(problem, apart=(1, 2), nodes=(0, 1, 2, 4)) == ([0, 1, 2, -1, 0], [[0, 4], [1], [2]])


def test_nodes_that_take_others_are_of_other_shapes_even_without_gpus():
    problem = make([node(0), node(0), node(1)], [job(0)])
    assert told_apart(problem)[0] == [0, 0, 1]
    assert told_apart(problem, open_to=np.array([[1, 0, 0]]))[0] == [0, 1, 2]


def test_a_node_is_inhabited_by_jobs_with_and_without_gpus():
    jobs = [job(2, home=(2, 4), max_nodes=2), job(0, home=(4,)), job(), job(0)]
    assert inhabited(make([node(2)] * 5, jobs)).tolist() == [False, True, True, False, True]
