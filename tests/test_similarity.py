"""Likeness: its weights solve a system worked by hand, and leaving a pair out in closed form is refitting without it."""

from dataclasses import replace

import numpy as np
import pytest

from planner.predict import similarity
from planner.predict.pairs import Work
from planner.predict.similarity import Cells, Jobs, Kernel, Similarity, fit

KINDS = tuple(
    Work(name, batch=size, mixed=mixed)
    for name, size, mixed in [
        ("loom", 8, False), ("loom", 32, True), ("mill", 8, None), ("mill", 64, False), ("kiln", None, None),
    ]
)  # fmt: skip


def some(n=40, *, gpus=2, seed=0, kinds=KINDS, columns=3):
    """Jobs, cells of pairs (two each, directed), speeds and the number of each cell's pair."""
    rng = np.random.default_rng(seed)
    jobs = Jobs(kinds, rng.normal(size=(len(kinds), columns)))
    a, b, g = rng.integers(len(kinds), size=n), rng.integers(len(kinds), size=n), rng.integers(gpus, size=n)
    cells = Cells(np.repeat(g, 2), np.stack([a, b], 1).ravel(), np.stack([b, a], 1).ravel())
    return jobs, cells, rng.uniform(0.4, 1, size=2 * n), np.repeat(np.arange(n), 2)


def model(**fields):
    jobs, cells, speed, _ = some(**fields)
    return Similarity(Kernel(), jobs, cells, speed, 2)


@pytest.mark.parametrize("numbers", [0.05, 0.9])
def test_likeness_of_jobs_is_one_for_the_same_symmetric_and_at_most_one(numbers):
    jobs = some()[0]
    alike = jobs.likeness(jobs, Kernel(numbers=numbers))
    assert np.diag(alike) == pytest.approx(np.ones(len(KINDS)))
    assert alike == pytest.approx(alike.T)
    assert ((alike >= 0) & (alike <= 1 + 1e-12)).all()


def test_jobs_are_alike_by_name_then_batch_size_then_precision():
    kinds = (Work("loom", "", 8, False), Work("loom", "", 16, False), Work("loom", "", 16, True), Work("mill", "", 8, False), Work("loom", "wool", 8, False))  # fmt: skip
    jobs = Jobs(kinds, np.zeros((5, 2)))
    first = jobs.likeness(jobs, Kernel(numbers=0.25, same_size=0.5, size_length=4.0))[0]
    # A quarter for what is known alone, which is the same; half of the rest for the name, half for size and precision.
    size = np.exp(-1 / 4)
    assert first == pytest.approx(
        [1, 0.25 + 0.75 * (0.5 + 0.5 * size), 0.25 + 0.75 * (0.5 + 0.5 * 0.7 * size), 0.25, 0.25]
    )


def test_what_is_known_alone_counts_by_its_distance():
    jobs = Jobs((Work("loom"), Work("mill")), np.array([[0.0, 0.0], [3.0, 4.0]]))
    kernel = Kernel(numbers=0.5, length=2.0)
    # Two columns, distance 5: exp(-25 / (2 x 2^2 x 2)).
    assert jobs.likeness(jobs, kernel)[0, 1] == pytest.approx(0.5 * np.exp(-25 / 16))


def test_weights_solve_a_system_of_two_cells_worked_by_hand():
    jobs = Jobs((Work("loom"), Work("mill")), np.zeros((2, 1)))
    cells = Cells(np.array([0, 0]), np.array([0, 1]), np.array([1, 0]))
    kernel = Kernel(numbers=0.5, single=0.25, product=1.0, noise=0.5)
    found = Similarity(kernel, jobs, cells, np.array([0.9, 0.5]), 1)
    # Jobs are alike by half. A cell with itself: 0.25 (1 + 1) + 1 + 0.5 = 2; with the other: 0.25 (0.5 + 0.5) + 0.25 = 0.5.
    # The mean is 0.7; (2 w1 + 0.5 w2, 0.5 w1 + 2 w2) = (0.2, -0.2) gives w = (2/15, -2/15).
    assert found.weights == pytest.approx([2 / 15, -2 / 15])
    # The first cell again, without noise: 0.7 + 1.5 x 2/15 - 0.5 x 2/15.
    assert found.predict(jobs, cells) == pytest.approx([0.7 + 2 / 15, 0.7 - 2 / 15])


def test_another_gpu_model_counts_for_less_and_has_a_mean_of_its_own():
    jobs = Jobs((Work("loom"),), np.zeros((1, 1)))
    zero = np.zeros(2, np.int64)
    found = Similarity(Kernel(), jobs, Cells(np.array([0, 1]), zero, zero), np.array([0.9, 0.5]), 2)
    assert found.means == pytest.approx([0.9, 0.5, 0.7])
    alike = found.cells.likeness(found.cells, np.ones((1, 1)), Kernel(single=0.3, product=1.0, across=0.2))
    assert alike == pytest.approx(np.array([[1.6, 0.32], [0.32, 1.6]]))


def without(whole, rows):
    """The error of cells, predicted by what the others alone say, around the means of all."""
    keep = np.setdiff1d(np.arange(len(whole.speed)), rows)
    rest = replace(whole, cells=whole.cells.take(keep), speed=whole.speed[keep])
    rest.__dict__["means"] = whole.means
    asked = whole.cells.take(rows)
    return np.abs(rest.predict(whole.jobs, asked) - whole.speed[rows])


@pytest.mark.parametrize("seed", range(5))
def test_leaving_a_pair_out_is_refitting_without_it(seed):
    whole = model(n=15, seed=seed)
    partner = np.arange(30) ^ 1
    expected = np.concatenate([without(whole, np.array([i, i + 1])) for i in range(0, 30, 2)])
    assert whole.left_out(partner) == pytest.approx(expected, abs=1e-9)


def test_leaving_a_cell_out_that_has_no_partner_is_refitting_without_it():
    whole = model(n=10)
    alone = np.concatenate([np.arange(18) ^ 1, [18, 19]])
    expected = [*without(whole, np.array([0, 1])), *without(whole, np.array([18])), *without(whole, np.array([19]))]  # fmt: skip
    assert whole.left_out(alone)[[0, 1, 18, 19]] == pytest.approx(expected, abs=1e-9)


def test_partners_are_the_two_cells_of_a_pair():
    assert similarity._partners(np.array([7, 3, 5, 3, 7])).tolist() == [4, 3, 2, 1, 0]


def test_the_order_of_the_cells_does_not_matter():
    jobs, cells, speed, pair = some(n=30)
    order = np.random.default_rng(1).permutation(60)
    straight = fit(jobs, cells, speed, pair, 2)
    shuffled = fit(jobs, cells.take(order), speed[order], pair[order], 2)
    assert straight.kernel == shuffled.kernel
    assert straight.predict(jobs, cells) == pytest.approx(shuffled.predict(jobs, cells), abs=1e-9)


def test_the_order_of_the_jobs_does_not_matter():
    jobs, cells, speed, pair = some(n=30)
    order = np.array([3, 1, 4, 0, 2])
    number = np.argsort(order)
    moved = Jobs(tuple(jobs.works[i] for i in order), jobs.z[order])
    renamed = Cells(cells.gpu, number[cells.victim], number[cells.beside])
    straight, other = fit(jobs, cells, speed, pair, 2), fit(moved, renamed, speed, pair, 2)
    assert straight.predict(jobs, cells) == pytest.approx(other.predict(moved, renamed), abs=1e-9)


def test_far_from_all_that_was_measured_the_mean_speed_is_predicted():
    whole = replace(model(), kernel=Kernel(across=0.0))
    strangers = Jobs((Work("anvil"), Work("saw")), np.full((2, 3), 1e3))
    asked = Cells(np.array([-1, 1, 0]), np.array([0, 0, 1]), np.array([1, 1, 0]))
    on = [whole.speed[whole.cells.gpu == g].mean() for g in (1, 0)]
    assert whole.predict(strangers, asked) == pytest.approx([whole.speed.mean(), *on])


def test_a_gpu_model_that_is_not_known_goes_by_the_overall_mean_even_for_known_jobs():
    whole = replace(model(), kernel=Kernel(across=0.0))
    cells = whole.cells.take(np.arange(4))
    elsewhere = replace(cells, gpu=np.full(4, -1))
    assert whole.predict(whole.jobs, elsewhere) == pytest.approx(np.full(4, whole.speed.mean()))
    assert whole.predict(whole.jobs, cells) != pytest.approx(np.full(4, whole.speed.mean()), abs=1e-3)


def test_a_gpu_model_without_cells_has_the_overall_mean():
    jobs, cells, speed, _ = some(gpus=1)
    assert Similarity(Kernel(), jobs, cells, speed, 2).means == pytest.approx(np.full(3, speed.mean()))


def test_a_fit_is_deterministic():
    assert fit(*some(n=255), 2).as_json() == fit(*some(n=255), 2).as_json()


def test_a_chosen_kernel_is_no_worse_than_the_one_it_began_with():
    jobs, cells, speed, pair = some(n=60)
    chosen = fit(jobs, cells, speed, pair, 2)
    partner = similarity._partners(pair)
    assert chosen.kernel != Kernel()
    assert chosen.left_out(partner).mean() < replace(chosen, kernel=Kernel()).left_out(partner).mean()


def test_of_too_many_cells_whole_pairs_are_kept(monkeypatch):
    monkeypatch.setattr(similarity, "MOST_CELLS", 20)
    jobs, cells, _, pair = some(n=30)
    kept = fit(jobs, cells, pair / 100, pair, 2)  # so that a speed tells its pair
    numbers, times = np.unique(np.round(kept.speed * 100), return_counts=True)
    assert (len(numbers), set(times.tolist())) == (10, {2})
    assert kept.cells.victim.reshape(10, 2).tolist() == kept.cells.beside.reshape(10, 2)[:, ::-1].tolist()


def test_a_model_read_from_its_json_predicts_the_same():
    whole = fit(*some(n=20), 2)
    again = Similarity.of_json(whole.as_json())
    assert again.jobs.works == whole.jobs.works
    assert (again.predict(whole.jobs, whole.cells) == whole.predict(whole.jobs, whole.cells)).all()


def test_like_jobs_are_predicted_alike_and_a_new_name_goes_by_what_is_known_of_it():
    """Jobs whose one number decides: one that has no cells is placed by its number."""
    rng = np.random.default_rng(3)
    busy = np.linspace(-1.5, 1.5, 12)
    jobs = Jobs(tuple(Work(f"w{i}") for i in range(12)), busy[:, None])
    a, b = rng.integers(12, size=(2, 100))
    cells = Cells(np.zeros(200, np.int64), np.stack([a, b], 1).ravel(), np.stack([b, a], 1).ravel())
    speed = 0.7 - 0.2 * busy[cells.beside] / 1.5
    whole = fit(jobs, cells, speed, np.repeat(np.arange(100), 2), 1)
    new = Jobs((Work("new"), Work("other")), np.array([[-1.2], [1.2]]))
    asked = Cells(np.zeros(2, np.int64), np.array([0, 1]), np.array([1, 0]))
    assert whole.predict(new, asked) == pytest.approx([0.54, 0.86], abs=0.06)
