"""The number of workers follows the cgroup, not the host."""

import os

import pytest

from solvers.workers import workers


@pytest.fixture
def grant(tmp_path):
    """Write a cgroup tree and ask for the workers on a host with 80 CPUs."""

    def grant(membership, files, cpus=80):
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "self").write_text(membership)
        return workers(cgroups=tmp_path / "cgroup", self_cgroup=tmp_path / "self", cpus=cpus)

    return grant


V1 = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/job/step\n", {"job/cpu.max": "400000 100000\n", "job/step/cpu.max": "max 100000\n"}, 4),
        ("0::/job/step\n", {"job/cpu.max": "200000 100000\n", "job/step/cpu.max": "900000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 80),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 80),
        (
            V1,
            {"cpu/docker/abc/cpu.cfs_quota_us": "200000\n", "cpu/docker/abc/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        # inside a container the group's own path is not there, but its files are the mount's
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "350000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 80),
        ("3:cpu:/\n0::/\n", {"unified/cpu.max": "300000 100000\n"}, 3),
        ("", {}, 80),
    ],
)
def test_a_cgroup_quota_on_a_large_host_sets_the_workers(grant, membership, files, expected):
    assert grant(membership, files) == expected


def test_affinity_binds_where_it_is_less_than_the_quota(grant):
    assert grant("0::/\n", {"cpu.max": "800000 100000\n"}, cpus=3) == 3


def test_this_machine_has_a_worker_and_no_more_than_its_cpus(tmp_path):
    assert 1 <= workers() <= len(os.sched_getaffinity(0))
    assert workers(cgroups=tmp_path, self_cgroup=tmp_path / "none") == len(os.sched_getaffinity(0))
