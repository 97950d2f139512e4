"""What a box must have, and which of a platform's offers have it."""

from __future__ import annotations

from typing import Any

import pytest

from sweepstack.onbox.host.offers import (
    Bound,
    Constraints,
    Offer,
    cheapest_first,
    maker_of,
    no_offer_left,
    same_gpu,
)


@pytest.mark.parametrize(
    ("asked", "offered", "same"),
    [
        ("A100", "NVIDIA A100 80GB PCIe", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A10", "NVIDIA A100 80GB PCIe", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX_4090", "RTX 4090", True),
        ("rtx 4090", "NVIDIA GeForce RTX 4080", False),
        ("L4", "NVIDIA L40S", False),
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3", False),
        ("", "NVIDIA L4", False),
        ("H100", "NVIDIA H100 80GB HBM3 MIG 1g.20gb", False),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", False),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("H100 MIG", "NVIDIA H100 80GB HBM3 MIG 1g.20gb", True),
        ("h100 1g.20gb", "NVIDIA H100 80GB HBM3 MIG 1g.20gb", True),
        ("H100 MIG", "NVIDIA H100 80GB HBM3", False),
        ("a100", "nvidia_a100_1g.5gb", False),
        ("A10", "NVIDIA A10-4Q", False),
        ("A10-4Q", "NVIDIA A10-4Q", True),
    ],
)
def test_a_card_is_meant_by_all_the_words_of_its_name(asked: str, offered: str, same: bool) -> None:
    assert same_gpu(asked, offered) is same


def test_constraints_are_read_from_the_boxes_input() -> None:
    resources = {
        "gpu": {"name": ["A100", "H100"], "count": 2, "memory": "40GB+", "cuda": "12.8"},
        "disk": "120.5GB",
        "cpu": 8.0,
        "regions": ["US-KS-2"],
        "spot": True,
        "reliability": 0.98,
    }
    found = Constraints.of(resources, max_price=2.1, volume="vol-1")
    assert found == Constraints(
        gpu_names=("A100", "H100"),
        gpu_count=2,
        gpu_memory_gb=Bound(40.0, True),
        cuda="12.8",
        cuda_at_least=False,
        cpu=8.0,
        disk_gb=121,
        regions=("US-KS-2",),
        spot=True,
        max_price=2.1,
        min_reliability=0.98,
        volume="vol-1",
        maker="nvidia",
    )
    assert Constraints.of({"gpu": {"cuda": "12.4+"}}).cuda_at_least
    assert Constraints.of({}) == Constraints(maker="nvidia")


@pytest.mark.parametrize(
    ("image", "gpu", "maker"),
    [
        ("runpod/pytorch:2.8.0-cuda12.8.1", {"name": ["MI300X"]}, "nvidia"),
        ("nvcr.io/nvidia/pytorch:24.10-py3", {}, "nvidia"),
        ("me/train:2.4-cu124", {"name": ["A100"]}, "nvidia"),
        ("me/train:1", {}, "nvidia"),
        ("me/train:1", {"name": ["MI300X"]}, ""),
        ("me/train:1", {"name": ["A100"], "cuda": "12.4+"}, "nvidia"),
        ("rocm/pytorch:rocm6.4", {}, "amd"),
        ("rocm/pytorch:rocm6.4", {"name": ["H100"]}, "amd"),
    ],
)
def test_an_image_says_whose_cards_it_is_for(image: str, gpu: dict[str, Any], maker: str) -> None:
    assert Constraints.of({"gpu": gpu}, image=image).maker == maker


@pytest.mark.parametrize(
    ("told", "name", "maker"),
    [
        ("AMD", "AMD Instinct MI300X OAM", "amd"),
        ("NVIDIA", "NVIDIA H200", "nvidia"),
        ("UNKNOWN", "AMD Instinct MI325X", "amd"),
        ("UNKNOWN", "Someone X1", "unknown"),
        (None, "MI300X", "amd"),
        (7, "RTX 4090", ""),
    ],
)
def test_the_maker_is_what_is_told_else_what_the_name_says(told: Any, name: str, maker: str) -> None:
    assert maker_of(told, name) == maker


def test_a_bound_admits_what_is_enough() -> None:
    assert Bound(40).admits(80)
    assert not Bound(80).admits(79.2)
    assert Bound(80).admits(79.2, slack=0.02)
    assert not Bound(40, at_least=False).admits(80, slack=0.1)
    assert Bound(80, at_least=False).admits(79.2, slack=0.02)


def test_the_cheapest_comes_first_and_nothing_above_the_ceiling() -> None:
    offers = [
        Offer("c", "A100", 1, 2.0, "EU", reliability=0.9),
        Offer("a", "A100", 1, 2.0, "US", reliability=0.99),
        Offer("b", "A100", 2, 1.5, "US"),
        Offer("d", "H100", 1, 2.11, "US"),
    ]
    assert [offer.key for offer in cheapest_first(offers, Constraints(max_price=2.1))] == ["b", "a", "c"]
    assert [offer.key for offer in cheapest_first(offers, Constraints())] == ["b", "a", "c", "d"]
    assert offers[2].price_per_gpu_hour == 0.75


def test_every_refusal_is_kept() -> None:
    text = str(no_offer_left(["A100 in EU: no instances", "H100: 403"], "box a"))
    assert "none of 2 offers" in text
    assert "nothing was rented" in text
    assert text.index("A100 in EU") < text.index("H100: 403")
