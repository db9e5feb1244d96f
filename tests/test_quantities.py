"""Memory, times, counts, names and host lists, as they are written and as they are refused."""

import math
from decimal import Decimal

import pytest

from planner import quantities as q


@pytest.mark.parametrize(
    ("written", "mib"),
    [
        (40960, 40960),
        (40960.0, 40960),
        ("40960", 40960),
        ("40Gi", 40960),
        ("40GiB", 40960),
        ("81920Mi", 81920),
        ("1.5Gi", 1536),
        ("1Ti", 2**20),
        ("80G", 76294),  # 80e9 / 2**20 = 76293.9...
        ("80GB", 76294),
        ("1M", 1),
        (0, 0),
    ],
)
def test_memory_is_read_in_mib_rounded_up(written, mib):
    assert q.memory_mib(written) == mib


@pytest.mark.parametrize(
    "written",
    ["8k", "1KiB", "5 Gi", "Gi", "", "-1", "1.5", "8gb", "2000mb", "1e3", "٤", True, None, [1], 1.5, -1, math.nan, math.inf,
     10**10, 10**400, "999999999999999999Ti"],
)  # fmt: skip
def test_memory_that_could_be_misread_is_refused(written):
    with pytest.raises(ValueError, match=r"^got .*; accepted: whole MiB \(40960\) or a size such as 40Gi"):
        q.memory_mib(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("4:00", 240),
        ("1:00:00", 3600),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("2-12:30:15", 217815),
    ],
)
def test_a_length_of_time_is_read_in_seconds(written, seconds):
    assert q.seconds(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "1x", "h", "1:2:3:4", "1.2.3s", "-1", -1, True, None, math.nan, 10**11, "99999999999d"]
)
def test_what_is_no_length_of_time_is_refused(written):
    with pytest.raises(ValueError, match="; accepted: seconds"):
        q.seconds(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10", 600),  # minutes, unlike in a scenario file
        (90, 5400),
        ("4:00", 240),
        ("1:00:00", 3600),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("2-12:30:15", 217815),
        ({"set": True, "infinite": False, "number": 90}, 5400),
        ({"set": True, "infinite": True, "number": 0}, math.inf),
        ({"set": False, "infinite": False, "number": 0}, None),
        ("UNLIMITED", math.inf),
        ("INFINITE", math.inf),
        ("NOT_SET", None),
        ("Partition_Limit", None),
    ],
)
def test_a_slurm_limit_is_minutes_no_limit_or_not_set(written, seconds):
    assert q.slurm_time(written) == seconds


@pytest.mark.parametrize("written", ["1h", "", "soon", -1, None, True, {"set": True, "infinite": False}])
def test_a_slurm_limit_that_is_not_understood_is_never_unlimited(written):
    with pytest.raises(ValueError, match="; accepted: minutes"):
        q.slurm_time(written)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("129e6", 129_000_000),
        ("128974848000m", 128_974_848),
        ("1500m", Decimal("1.5")),
        ("16Gi", 17_179_869_184),
        ("16G", 16_000_000_000),
        ("1.5Gi", 1_610_612_736),
        ("0.5", Decimal("0.5")),
        ("1E", 10**18),
        ("1e3", 1000),
        ("4k", 4000),
        (0.1, Decimal("0.1")),
    ],
)
def test_a_kubernetes_quantity_is_exact(written, value):
    assert q.quantity(written) == value


@pytest.mark.parametrize(
    "written", ["5 Gi", "Gi", "1KiB", "", "1e", "1e999", "0x1", "1K", None, True, math.nan]
)
def test_what_is_no_kubernetes_quantity_is_refused(written):
    with pytest.raises(ValueError, match="; accepted: a Kubernetes quantity"):
        q.quantity(written)


def test_cpus_are_decimal_and_their_thousandths_round_up():
    assert (q.cpus("1500m"), q.cpus(0.5), q.cpus("4")) == (1.5, 0.5, 4)
    # 0.1 * 3 is a little more than 0.3 in binary; a millionth is more than nothing.
    assert (q.milli(1.5), q.milli(0.1 * 3), q.milli(0.000001), q.milli(0)) == (1500, 300, 1, 0)


@pytest.mark.parametrize("written", [-1, "-1", "two", 10**7, math.inf, True])
def test_cpus_that_no_host_has_are_refused(written):
    with pytest.raises(ValueError, match=r"; accepted: CPUs such as 4, 0\.5 or 1500m"):
        q.cpus(written)


def test_a_count_is_a_whole_number():
    assert (q.count(3), q.count(3.0), q.count(0)) == (3, 3, 0)


@pytest.mark.parametrize("written", [True, "four", "4", -1, 1.5, math.nan, None, 2**32])
def test_what_is_no_count_is_refused(written):
    with pytest.raises(ValueError, match="; accepted: a whole number, 0 or more"):
        q.count(written)


def test_a_clock_may_stand_before_zero():
    assert q.clock_s(-3) == -3


@pytest.mark.parametrize("function", [q.clock_s, q.number])
@pytest.mark.parametrize("written", [math.nan, math.inf, "1", None, True, 10**400])
def test_a_number_is_finite_and_no_text(function, written):
    with pytest.raises(ValueError, match=r"^got .*; accepted: a number"):
        function(written)


def test_a_flag_is_true_or_false():
    assert q.flag(True) is True
    for written in ("yes", 1, None):
        with pytest.raises(ValueError, match="; accepted: true or false"):
            q.flag(written)


def test_a_name_is_text_or_a_whole_number():
    assert (q.name("a b"), q.name(57829110), q.name("0012")) == ("a b", "57829110", "0012")


@pytest.mark.parametrize("written", ["", " a", "a\n", "a\x1b[31mb", "a" * 254, 1.5, True, None, -1, [1]])
def test_a_name_that_breaks_a_line_is_refused(written):
    with pytest.raises(ValueError, match="; accepted: a name: 1 to 253 printable characters"):
        q.name(written)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("a0", ("a0",)),
        ("a[0-2]", ("a0", "a1", "a2")),
        ("nodeA,nodeB[001,003],nodeC", ("nodeA", "nodeB001", "nodeB003", "nodeC")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]-n[3-4]x", ("r1-n3x", "r1-n4x", "r2-n3x", "r2-n4x")),
        ("[1-2]", ("1", "2")),
    ],
)
def test_a_host_list_expands_in_order_with_its_zeros(written, names):
    assert q.hostlist(written) == names


@pytest.mark.parametrize(
    "written",
    [
        "a[",
        "a]",
        "a[]",
        "a[3-1]",
        "a[1-]",
        "a[x]",
        "a,,b",
        "a, b",
        "",
        "a[[1]]",
        "a[0-100000]",
        "a[0-999][0-999]",
    ],
)
def test_what_is_no_host_list_is_refused(written):
    with pytest.raises(ValueError, match="; accepted: "):
        q.hostlist(written)


@pytest.mark.parametrize("written", ["a[0-2,1]", "a0,a[0-1]"])
def test_a_host_list_that_repeats_a_name_is_refused(written):
    with pytest.raises(ValueError, match=r"which names a[01] twice; accepted: every name once"):
        q.hostlist(written)


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, 10**5000, [[1] * 1000] * 1000, {"a": "\x1b[31m\n"}],
    ids=["text", "digits", "lists", "escapes"],
)
def test_any_value_is_shown_short_and_on_one_line(value):
    text = q.shown(value)
    assert len(text) <= 60 and text.isprintable()
