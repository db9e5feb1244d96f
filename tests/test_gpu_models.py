"""Every spelling of a GPU model leads to one name."""

import pytest

from planner.gpu_models import ALIASES, KNOWN, canonical_model, known_memory_mib, mig_memory_mib


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),  # NVML
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"),  # Kubernetes
        ("Tesla-T4-SHARED", "t4"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-40gb:1g.5gb"),
        ("V100M16", "v100-16gb"),  # traces
        ("V100M32", "v100-32gb"),
        ("G2", "g2"),
        ("a100_40gb", "a100-40gb"),  # people
        ("A100 40 GB", "a100-40gb"),
        ("v100-32g", "v100-32gb"),
        ("2080Ti", "rtx-2080-ti"),
        ("a100-40gb:1g.5gb", "a100-40gb:1g.5gb"),
        ("Some New Card", "some-new-card"),
        ("a100", "a100"),  # of which size is not said
    ],
)
def test_a_spelling_leads_to_the_canonical_name(written, canonical):
    assert canonical_model(written) == canonical


def test_a_canonical_name_leads_to_itself():
    assert {model: canonical_model(model) for model in KNOWN} == {model: model for model in KNOWN}
    assert not set(ALIASES) & set(KNOWN)


def test_no_alias_belongs_to_two_models():
    assert len(ALIASES) == sum(len(known.aliases) for known in KNOWN.values())


def test_what_is_no_text_is_left_for_the_next_check():
    assert canonical_model(7) == 7


def test_memory_is_known_where_the_name_settles_it():
    assert (known_memory_mib("a100-40gb"), known_memory_mib("a100-80gb")) == (40960, 81920)
    assert [known_memory_mib(m) for m in ("a100", "v100", "g2", "a100-40gb:1g.5gb")] == [None] * 4


def test_a_mig_profile_has_a_little_less_than_it_is_called():
    assert mig_memory_mib("1g.5gb") == 4864
    assert [mig_memory_mib(p) for p in ("small", "1g", "1g.5gb:2")] == [None] * 3
