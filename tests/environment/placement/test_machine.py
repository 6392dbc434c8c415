"""Machines: presets, routes, and what is said of malformed descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from environment.placement import Device, Link, Machine, PlacementError, find_machine, parse_machine, presets

DEVICES = tuple(Device(f"cpu:{number}", "roofline:xeon", 1e9) for number in range(3))
TEXT = """
name = "two"
[[device]]
name = "cpu:0"
costs = "roofline:xeon"
memory_gb = 4
[[device]]
name = "cuda:0"
costs = "roofline:k80"
memory_gb = 12
slowdown = 2
lacks = "cuda"
[[link]]
between = ["cpu:0", "cuda:0"]
gb_per_s = 12
latency_us = 10
"""


@pytest.mark.parametrize("name", presets())
def test_in_every_preset_all_devices_reach_one_another_both_ways_alike(name: str) -> None:
    machine = find_machine(name)
    for start in range(machine.num_devices):
        for end in range(machine.num_devices):
            there, back = machine.route(start, end), machine.route(end, start)
            assert bool(there.channels) == (start != end)
            assert there.latency_ms == pytest.approx(back.latency_ms)
            assert len(there.channels) == len(back.channels)
            assert not set(there.channels) & set(back.channels)  # links carry both directions at once


def test_presets_have_the_devices_of_their_names() -> None:
    gpus = {name: sum(each.name.startswith("cuda") for each in find_machine(name).devices) for name in presets()}
    assert gpus == {"k80x2": 2, "k80x4": 4, "two-hosts": 4, "v100x8": 8}


def test_neighbours_by_nvlink_use_no_pcie_and_others_do() -> None:
    machine = find_machine("v100x8")
    assert len(machine.route(machine.index("cuda:0"), machine.index("cuda:3")).channels) == 1
    assert len(machine.route(machine.index("cuda:0"), machine.index("cuda:7")).channels) == 5


def test_gpus_of_one_board_do_not_use_the_root_of_the_tree() -> None:
    machine = find_machine("k80x4")
    same = machine.route(machine.index("cuda:0"), machine.index("cuda:1")).channels
    other = machine.route(machine.index("cuda:0"), machine.index("cuda:2")).channels
    up = machine.route(machine.index("cuda:1"), 0).channels
    assert not set(same) & set(up)
    assert set(machine.route(machine.index("cuda:0"), 0).channels) & set(other)


def test_devices_pass_no_copies_on() -> None:
    links = (Link(("cpu:0", "cpu:1"), 1e6, 0.0), Link(("cpu:1", "cpu:2"), 1e6, 0.0))
    with pytest.raises(PlacementError, match="no link by which 'cpu:0' reaches 'cpu:2'"):
        Machine("line", DEVICES, links)


def test_a_text_is_read_with_its_units() -> None:
    machine = parse_machine(TEXT)
    assert machine.devices[1] == Device("cuda:0", "roofline:k80", 12e9, 2.0, machine.devices[1].lacks)
    assert not machine.devices[1].runs("ai.onnx.ml", "TreeEnsemble")
    assert machine.devices[0].runs("ai.onnx.ml", "TreeEnsemble")
    assert machine.links == (Link(("cpu:0", "cuda:0"), 12e6, 0.01),)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("memory_gb = 4\n", "", "memory_gb is missing"),
        ("memory_gb = 4", "memry_gb = 4", "unknown key 'memry_gb' .did you mean 'memory_gb'"),
        ("memory_gb = 4", 'memory_gb = "4"', "wrong kind"),
        ("memory_gb = 4", "memory_gb = -4", "at least 0 bytes"),
        ("roofline:k80", "roofline:k8", "did you mean 'roofline:k80'"),
        ('lacks = "cuda"', 'lacks = "cda"', "did you mean 'cuda'"),
        ("gb_per_s = 12", "gb_per_s = 0", "bandwidth above 0"),
        ('"cpu:0", "cuda:0"]', '"cpu:0"]', "two different devices"),
        ('["cpu:0", "cuda:0"]', '["cpu:0", "switch"]', "no link by which 'cpu:0' reaches 'cuda:0'"),
        ('name = "cuda:0"', 'name = "cpu:0"', "two devices called 'cpu:0'"),
        ('name = "two"', "name = ", "no TOML"),
    ],
)
def test_malformed_texts_are_refused_in_a_sentence(before: str, after: str, message: str) -> None:
    assert before in TEXT
    with pytest.raises(PlacementError, match=message) as raised:
        parse_machine(TEXT.replace(before, after, 1))
    assert "\n" not in str(raised.value)


def test_unknown_names_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="did you mean 'k80x4'"):
        find_machine("k80x5")
    with pytest.raises(PlacementError, match="cannot read"):
        find_machine(str(tmp_path / "none.toml"))
    with pytest.raises(PlacementError, match="has no device 'cuda:9'"):
        find_machine("k80x2").index("cuda:9")


def test_operators_of_training_graphs_have_kernels_on_a_gpu() -> None:
    """Those that forward, backward and optimiser steps of the placed networks consist of."""
    gpu = find_machine("k80x2").devices[1]
    kinds = {"MatMul", "Gemm", "Conv", "ConvTranspose", "LogSoftmax", "OneHot", "ScatterND", "Pad", "Sqrt", "ReduceSum"}
    assert all(gpu.runs("", kind) for kind in kinds)
    assert not any(gpu.runs("", kind) for kind in ("Det", "Unique", "Tan", "BitShift", "STFT"))
    assert not gpu.runs("ai.onnx.ml", "TreeEnsemble")
