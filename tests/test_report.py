"""What people see: complete plain text in a pipe, harmless names, units that can be read, and true differences."""

import io
import re

import pytest
from builders import gpu, job, node, snapshot

from planner.model import Carryover, Until
from planner.plan import (
    Action,
    Assignment,
    AttemptRecord,
    Deferred,
    Fix,
    Forecast,
    Inputs,
    Objective,
    Plan,
    Predicted,
    Receipt,
    Reservation,
    Solve,
    Terms,
)
from planner.policy import Policy
from planner.report.compare import difference_page, plans_differ, snapshots_differ
from planner.report.keys import json_schema, key_rows
from planner.report.page import Facts, Grid, Lines, as_text, columns
from planner.report.plans import left_out, plan_page, receipt_page
from planner.report.terminal import progress_text, show, solving
from planner.report.units import duration, factor, gpu_time, memory, places, plain, share


def a_plan(**fields):
    """A plan that has one of everything."""
    state = snapshot(
        [node(4, name="a0"), node(4, name="a1")], [job(id=i) for i in ("x", "y", "z", "w", "gang")]
    )
    known = {
        "id": "p-1",
        "name": "small",
        "made_at": "2026-01-01T00:00:00Z",
        "assignments": (
            Assignment(job_id="gang", gpu_ids=("a1/0", "a1/1"), nodes=("a1",), slowdown=1.0, slowdown_p90=1.0, finish_s=7200, finish_p90_s=9000, gpu_memory_mib=30720, memory_source="declared"),
            Assignment(job_id="x", gpu_ids=("a0/0",), nodes=("a0",), slowdown=1.25, slowdown_p90=1.31, finish_s=4500, finish_p90_s=5700, neighbours=("y",), gpu_memory_mib=512, memory_source="measured", fenced=False),
            Assignment(job_id="y", gpu_ids=("a0/0",), nodes=("a0",), state="move", moved_from=("a0/3",), wave=1, slowdown=1.5, neighbours=("x",), fenced=True),
        ),
        "deferred": (
            Deferred(job_id="z", reason="interference", detail="no neighbour leaves it under 2.00x", cost_gpu_s=3600),
            Deferred(job_id="w", reason="fragmented", detail="8 GPUs are free, 4 on each node", fix=Fix(change="max_nodes: 2", detail="split over at most 2 nodes"), cost_gpu_s=28800),
        ),
        "preempted": ("old",),
        "reservations": (Reservation(job_id="w", gpu_ids=("a0/0", "a0/1", "a0/2", "a0/3"), from_s=5400),),
        "objective": Objective(total_gpu_s=33000.4, terms=Terms(interference=480.4, waiting=32400, moves=120)),
        "solve": Solve(solver="cp-sat", status="feasible", bound=31000, gap=0.0606, served_gap=0.25, wall_s=9.6,
            attempts=(AttemptRecord(solver="greedy", status="feasible", note="8 orders"), AttemptRecord(solver="cbc", status="skipped", note="the model would have 2,000,000 variables"),
                AttemptRecord(solver="bound", status="no_answer", bound_gpu_s=31000, note="a bound only"),
                AttemptRecord(solver="highs", status="failed", note="it crashed"))),
        "predicted": Predicted(makespan_s=7200, mean_slowdown=1.21, max_slowdown=1.5, goodput_gpus=3.4, gpu_utilisation_pct=71.2, requested_share_milli=7500, allocated_share_milli=5000),
        "warnings": ("node a1: unknown host memory is not counted",),
        "inputs": Inputs(snapshot=state, forecast=Forecast(), policy=Policy(), backend="files"),
    }  # fmt: skip
    return Plan(**{**known, **fields})


@pytest.mark.parametrize(
    ("mib", "text"), [(None, "?"), (0, "0 MiB"), (1023, "1023 MiB"), (1024, "1.0 GiB"), (81559, "79.6 GiB")]
)
def test_memory_is_shown_in_the_unit_it_is_counted_in(mib, text):
    assert memory(mib) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0 s"),
        (0.31, "0.3 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (5400, "1 h 30 min"),
        (3600, "1 h"),
        (273_600, "3 d 4 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_times_are_shown_in_their_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_unknown_is_never_shown_as_zero():
    assert [f(None) for f in (memory, duration, gpu_time, share, factor)] == ["?"] * 5


def test_gpu_ids_are_drawn_together_by_node():
    assert places(["a0/0", "a0/1", "a0/2", "a0/5", "a1/3", "login"]) == "a0/0-2,5 a1/3 login"
    assert places(["a0/0:1g.5gb:0", "a0/0:1g.5gb:1"]) == "a0/0:1g.5gb:0,0:1g.5gb:1"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[red]x[/red]", "[red]x[/red]"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\U000e0041", "\\U000e0041"),
        ("日本 é \U0001f469\u200d\U0001f467", "日本 é \U0001f469\u200d\U0001f467"),
    ],
)
def test_only_text_reaches_a_terminal(name, shown):
    assert plain(name) == shown


def test_a_plan_in_a_pipe(golden):
    golden("plan.txt", as_text(plan_page(a_plan())))


def test_a_plan_without_its_inputs_is_shown_as_well(golden):
    bare = a_plan(inputs=None, deferred=(), preempted=(), reservations=(), warnings=())
    solve = bare.solve.model_copy(update={"bound": None, "status": "optimal"})
    golden("plan-bare.txt", as_text(plan_page(bare.model_copy(update={"solve": solve}))))


def facts(plan):
    """The first lines of a plan's page, by label."""
    return dict(plan_page(plan)[0].pairs)


def tried(*attempts):
    """Engines that were tried, each with its status and bound."""
    return tuple(AttemptRecord(solver=a, status=b, bound_gpu_s=c) for a, b, c in attempts)


@pytest.mark.parametrize(
    ("solver", "attempts", "said"),
    [
        ("greedy", tried(("greedy", "feasible", None), ("cp-sat", "optimal", 33000.4)), "greedy, proven optimal by cp-sat after"),
        ("cp-sat", tried(("greedy", "feasible", None), ("cp-sat", "optimal", 33000.4)), "cp-sat, proven optimal after"),
        ("search", tried(("bound", "no_answer", 33000.4), ("search", "feasible", None)), "search, proven optimal by the lower bound after"),
        ("search", tried(("bound", "no_answer", 31000), ("cp-sat", "feasible", 33000.4)), "search, proven optimal by cp-sat after"),
        ("greedy", (), "greedy, proven optimal after"),
    ],
)  # fmt: skip
def test_who_proved_a_plan_the_best_is_said(solver, attempts, said):
    solve = Solve(solver=solver, status="optimal", bound=33000, wall_s=1, attempts=attempts)
    assert facts(a_plan(solve=solve))["solver"].startswith(said)


def test_gpus_that_take_no_job_are_told_apart():
    cards = [gpu(), gpu(healthy=False), gpu(unmanaged_memory_mib=None), gpu(unmanaged_memory_mib=None)]
    nodes = [node(cards, name="a0"), node(2, name="a1", schedulable=False), node(1, name="a2")]
    nodes += [node(1, name=f"d{i}", schedulable=False) for i in range(9)]
    left = Carryover(quarantines=(Until(name="a2", until_s=60),))
    inputs = Inputs(
        snapshot=snapshot(nodes, carryover=left), forecast=Forecast(), policy=Policy(), backend="files"
    )
    assert facts(a_plan(inputs=inputs))["closed"] == (
        "1 GPU unhealthy (a0/1), 2 GPUs in unknown use (a0/2-3), "
        "11 GPUs drained (a1/0-1 d0/0 d1/0 d2/0 d3/0 and 5 more), 1 GPU quarantined (a2/0)"
    )
    assert "closed" not in facts(a_plan())


@pytest.mark.parametrize(
    ("given", "asked", "said"),
    [
        (11_000, 13_000, "11 of the 13 GPUs asked for (84.6 %)"),
        (500, 1000, "0.5 of the 1 GPU asked for (50.0 %)"),
        (1_000_000, 2_000_000, "1,000 of the 2,000 GPUs asked for (50.0 %)"),
    ],
)
def test_what_is_placed_is_counted_in_gpus(given, asked, said):
    predicted = Predicted(requested_share_milli=asked, allocated_share_milli=given)
    assert facts(a_plan(predicted=predicted))["placed"] == said


def test_wide_characters_keep_the_columns_in_line():
    grid = Grid("t", columns("job", "n>"), (("日本", "1"), ("abcd", "20"), ("", "")))
    assert as_text((grid,)) == "t\n  job    n\n  日本   1\n  abcd  20\n  -      -\n"


def test_a_pipe_gets_every_row_whole():
    grid = Grid("t", columns("job", "detail"), tuple((f"j{i}", "x" * 500) for i in range(5000)))
    out = io.StringIO()
    show((grid,), out)
    lines = out.getvalue().splitlines()
    assert len(lines) == 5002
    assert lines[-1] == f"  j4999  {'x' * 500}"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 60 columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_a_terminal_gets_the_first_rows_and_hears_how_to_see_all(terminal):
    lines = Lines("Notes", tuple(f"note {i}" for i in range(5)))
    show((Grid("Jobs", columns("job"), tuple((f"j{i}",) for i in range(1000))), lines), terminal, rows=3)
    said = terminal.getvalue()
    assert "j2" in said and "j3" not in said
    assert "... and 997 more rows; to see all: --out FILE, --json, or a pipe" in said
    assert "... and 2 more rows" in said


def test_a_narrow_terminal_folds_long_cells_and_loses_nothing(terminal):
    show((Grid("t", columns("job", "detail"), (("j", "x" * 200),)), Facts((("fact", "y" * 200),))), terminal)
    assert (terminal.getvalue().count("x"), terminal.getvalue().count("y")) == (200, 200)


LONG = "a-rather-long-name-of-a-job-17"


def drawn(monkeypatch, width, page):
    """The lines of a page at a terminal of so many columns, without colours."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    show(page, stream)
    return re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines()


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_name_is_broken_on_a_narrow_terminal(terminal, monkeypatch, width):
    """Every word of a table, of facts and of lines stands whole on a line, and no line is wider than the screen."""
    grid = Grid("Runs", columns("GPUs", "job", "model??", "memory>?", "ends after>", "beside"), (
        ("node-1/0-3 node-2/0-3", LONG, "a100-40gb", "14.6 GiB", "2 h 30 min", f"{LONG}, {LONG} (not fenced)"),
        ("n0/0", "x", "t4", "512 MiB", "1 d", ""),
    ))  # fmt: skip
    sentence = f"there is room on node-1/0, but beside {LONG} and {LONG} it would take 1.7 times as long"
    lines = drawn(monkeypatch, width, (Facts((("plan", sentence),)), grid, Lines("Warnings", (sentence,))))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert text.count(LONG) == 7
    assert all(word in text for word in (*sentence.split(), "node-2/0-3", "fenced)", "n0/0"))


def test_the_sparest_columns_give_way_first(terminal, monkeypatch):
    grid = Grid("t", columns("job", "a?", "b??", "c?"), (("job-of-mine", "a" * 9, "b" * 9, "c" * 9),))
    shown = [
        "".join(sorted(set("".join(drawn(monkeypatch, width, (grid,))[2:])) & set("ac")))
        for width in (80, 40, 30, 20)
    ]
    assert shown == ["ac", "ac", "a", ""]
    assert "b" * 9 not in "".join(drawn(monkeypatch, 40, (grid,)))


def test_rows_are_stacked_where_no_table_fits(terminal, monkeypatch):
    grid = Grid(
        "Waits", columns("job", "reason", "would start", "costs>"), ((LONG, "interference", "", "28,800"),)
    )
    assert drawn(monkeypatch, 40, (grid,)) == [
        "Waits",
        f"  job {LONG},",
        "    reason interference, costs 28,800",
    ]


def test_a_name_wider_than_the_terminal_is_left_whole(terminal, monkeypatch):
    name = "x" * 70
    page = (Grid("t", columns("job", "n>"), ((name, "1"),)), Facts((("job", name),)), Lines("t", (name,)))
    assert "\n".join(drawn(monkeypatch, 40, page)).count(name) == 3


def test_a_narrow_terminal_goes_without_spare_columns(terminal):
    grid = Grid(
        "t", columns("job", "a?", "b>?", "detail"), (("job-of-mine", "x" * 14, "y" * 14, "word " * 9),)
    )
    show((grid,), terminal)
    assert ("job-of-mine" in terminal.getvalue(), "x" * 14 in terminal.getvalue()) == (True, True)
    assert "y" not in terminal.getvalue()
    assert as_text((grid,)).count("y") == 14


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[link=file:///x]y", ":smile:", "a\\[b]", "{0}"])
def test_a_terminal_shows_markup_as_text(terminal, name):
    show((Grid("t", columns("job"), ((name,),)), Facts((("job", name),)), Lines("t", (name,))), terminal)
    assert terminal.getvalue().count(name) == 3


def test_no_control_character_of_a_name_reaches_a_pipe_or_a_terminal(terminal):
    bad = "a\x1b[2Jb\x07\r\u202e"
    page = (Grid("t", columns("job"), ((bad,),)), Facts((("job", bad),)), Lines("t", (bad,)))
    show(page, terminal)
    for shown in (as_text(page), terminal.getvalue()):
        assert "[2J" in shown
        assert not any(c in shown for c in ("\x1b[2J", "\x07", "\r", "\u202e"))


def test_no_color_is_respected(terminal, monkeypatch):
    show(plan_page(a_plan()), terminal)
    assert "\x1b[1;32m" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    calm = Terminal()
    show(plan_page(a_plan()), calm)
    assert not any(f"\x1b[1;3{colour}m" in calm.getvalue() for colour in range(8))


@pytest.mark.parametrize("kind", ["dumb", "", "unknown"])
def test_a_dumb_terminal_gets_plain_text(terminal, monkeypatch, kind):
    monkeypatch.setenv("TERM", kind)
    show(plan_page(a_plan()), terminal)
    assert terminal.getvalue() == as_text(plan_page(a_plan()))


class Reached:
    """A report from a solve."""

    engine, incumbent_gpu_s, bound_gpu_s, gap = "cp-sat", 12000.0, 11400.0, 0.05


def test_progress_says_incumbent_bound_and_gap(terminal):
    with solving(10, terminal) as on_progress:
        on_progress(Reached())
    assert progress_text(Reached()) == "cp-sat: best 12,000, bound 11,400, gap 5.0 %"
    assert "best 12,000" in terminal.getvalue()
    with solving(10, io.StringIO()) as on_progress:
        assert on_progress is None


def test_a_receipt_says_what_was_left_out(golden):
    actions = (
        Action(job_id="x", verb="start", gpu_ids=("a0/0",)),
        Action(job_id="y", verb="move", gpu_ids=("a0/1",), wave=1, outcome="stale", detail="the job is gone"),
        Action(job_id="z", verb="start", gpu_ids=("a0/2",), outcome="dry_run"),
    )
    receipt = Receipt(plan_id="p-1", backend="files", actions=actions, warnings=("w",))
    golden("receipt.txt", as_text(receipt_page(receipt)))
    assert (
        left_out(receipt) == "1 action left out, because the cluster is no longer what the plan was made for"
    )
    assert left_out(Receipt(plan_id="p-1", backend="files")) is None


def test_two_plans_differ_in_places_reasons_and_objective(golden):
    a = a_plan()
    later = (
        Assignment(job_id="gang", gpu_ids=("a1/1", "a1/0"), nodes=("a1",), state="stay"),
        Assignment(job_id="y", gpu_ids=("a0/2",), nodes=("a0",), state="stay"),
        Assignment(job_id="w", gpu_ids=("a0/0",), nodes=("a0",)),
        Assignment(job_id="new", gpu_ids=("a0/1",), nodes=("a0",)),
    )
    waits = (
        Deferred(job_id="z", reason="waiting_capacity", detail=""),
        Deferred(job_id="x", reason="held", detail=""),
    )
    b = a_plan(id="p-2", assignments=later, deferred=waits, preempted=(), objective=Objective(total_gpu_s=480.4, terms=Terms(interference=480.4)))  # fmt: skip
    difference = plans_differ(a, b)
    assert {(c.job_id, c.change) for c in difference.jobs} == {
        ("w", "started"), ("y", "moved"), ("x", "stopped"), ("z", "reason"), ("new", "appeared"), ("old", "gone"),
    }  # fmt: skip
    assert difference.objective_delta_gpu_s == -32520
    golden("diff.txt", as_text(difference_page(difference)))


def test_a_plan_does_not_differ_from_itself():
    difference = plans_differ(a_plan(), a_plan())
    assert (difference.jobs, difference.objective_delta_gpu_s) == ((), 0)


def test_two_snapshots_differ_in_places_requests_and_nodes():
    nodes = [node(2, name="a0"), node(1, name="a1")]
    a = snapshot(nodes, [job(id="x"), job(id="y", running_on=("a0/0",)), job(id="z"), job(id="gone")])
    b = snapshot(
        [node(2, name="a0", schedulable=False), node(1, name="a2")],
        [
            job(id="x", running_on=("a0/1",)),
            job(id="y", state="held"),
            job(id="z", gpu_memory_mib=1),
            job(id="new"),
        ],
    )
    difference = snapshots_differ(a, b)
    assert [(c.job_id, c.change, c.after) for c in difference.jobs] == [
        ("x", "started", "a0/1"),
        ("y", "stopped", "held"),
        ("z", "changed", "gpu_memory_mib"),
        ("new", "appeared", "ready"),
        ("gone", "gone", None),
    ]
    assert [(c.job_id, c.change) for c in difference.nodes] == [
        ("a1", "gone"),
        ("a2", "appeared"),
        ("a0", "changed"),
    ]


def test_the_table_of_keys_says_type_unit_limits_and_default():
    rows = {row[0]: row[1:] for row in key_rows(json_schema(Policy), "policy.")}
    assert rows["policy.epoch_s"] == ("number > 0", "s", "300", "time from one plan to the next")
    assert rows["policy.max_slowdown"][0] == "number >= 1, <= 100 or null"
    assert rows["policy.packing"][:3] == ("binpack or spread", "", '"binpack"')
    assert rows["policy.quotas[].gpus"][2] == "required"
    assert rows["policy.weights.makespan"][2] == "0.5"


def test_a_plan_on_a_table_says_how_many_pairs_the_table_did_not_know():
    shown = str(plan_page(a_plan(predicted=Predicted(pairs_from_table=4, pairs_from_fallback=2))))
    assert "slowdowns of 4 pairs from the table and 2 by a formula" in shown
    assert "by utilisation" not in str(plan_page(a_plan()))
