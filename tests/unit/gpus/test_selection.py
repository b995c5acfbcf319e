"""Which GPUs a node uses: what CUDA_VISIBLE_DEVICES shows, and what --gpus names of it."""

from __future__ import annotations

import pytest

from hopyard._runtime.gpus import GpuDevice, GpuInventory
from hopyard._runtime.gpus.selection import select_devices, visible_devices
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick

A = GpuDevice(0, "GPU-aa11", "A100", 40 << 30)
B = GpuDevice(1, "GPU-ab22", "A100", 40 << 30)
M1 = GpuDevice(2, "MIG-11", "A100 MIG 1g.5gb", 5 << 30, "GPU-cc33", "MIG-GPU-cc33/7/0")
M2 = GpuDevice(2, "MIG-12", "A100 MIG 1g.5gb", 5 << 30, "GPU-cc33", "MIG-GPU-cc33/8/0")
WHOLE = (A, B)
ALL = (A, B, M1, M2)
HOST = GpuInventory(ALL, checked=True)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, ALL),
        ("", ()),
        ("  ", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("void", ()),
        ("1", (B,)),
        ("1,0", (B, A)),
        (" 1 , 0 ", (B, A)),
        ("0,-1,1", (A,)),
        ("0,9,1", (A,)),
        ("9", ()),
        ("x", ()),
        ("0,0", ()),
        ("GPU-aa11", (A,)),
        ("GPU-ab", (B,)),
        ("GPU-a", ()),  # the beginning of two UUIDs
        ("GPU-zz", ()),
        ("GPU-aa11,1", (A, B)),
        ("GPU-aa11,0", ()),  # the same GPU twice
        ("MIG-12", (M2,)),
        ("MIG-1", ()),
        ("MIG-GPU-cc33/7/0", (M1,)),
        ("2", (M1, M2)),
        ("GPU-cc33", (M1, M2)),
        ("MIG-11,2", ()),
    ],
)
def test_the_variable_shows_what_cuda_would_show(variable: str | None, expected: tuple[GpuDevice, ...]) -> None:
    assert visible_devices(ALL, variable)[0] == expected


@pytest.mark.parametrize(
    ("devices", "variable", "words"),
    [
        (WHOLE, "0,9", "'9' names no GPU of this computer"),
        (WHOLE, "0,0", "'0' is named twice"),
        (ALL, "0", "CUDA_DEVICE_ORDER"),
        (WHOLE, "0", ""),
        (ALL, "GPU-aa11", ""),
        (WHOLE, "0,-1", ""),
        (WHOLE, "", ""),
        (WHOLE, None, ""),
    ],
)
def test_a_doubtful_value_is_warned_of(devices: tuple[GpuDevice, ...], variable: str | None, words: str) -> None:
    warning = visible_devices(devices, variable)[1]
    assert words in warning
    assert bool(warning) is bool(words)


@pytest.mark.parametrize(
    ("option", "variable", "expected"),
    [
        (None, None, ALL),
        ("all", None, ALL),
        ("ALL", "1", (B,)),
        (None, "1,0", (B, A)),
        ("none", None, ()),
        ("", None, ()),
        ("1,0", None, (B, A)),
        ("0", "1,0", (A,)),
        ("GPU-ab", None, (B,)),
        ("MIG-12,0", None, (M2, A)),
        ("2", None, (M1, M2)),
        ("2,MIG-12", None, (M1, M2)),
    ],
)
def test_the_option_chooses_among_the_visible(
    option: str | None, variable: str | None, expected: tuple[GpuDevice, ...]
) -> None:
    assert select_devices(HOST, option, variable)[0] == expected


@pytest.mark.parametrize(
    ("option", "variable", "words"),
    [
        ("0,x", None, r"--gpus '0,x': found 'x'; allowed are all, none, or indices .* and UUIDs"),
        ("-1,2", None, "found '-1'"),
        ("0,,1", None, "found ''"),
        ("0,0", None, "0 is given twice"),
        ("9", None, "9 is no GPU of this computer; allowed are 0, 1, MIG-11, MIG-12"),
        ("0", "1", "0 is hidden by CUDA_VISIBLE_DEVICES=1; allowed are 1"),
        ("all", "", r"--gpus all: CUDA_VISIBLE_DEVICES is \(empty\), which hides all 4 GPUs"),
    ],
)
def test_a_wrong_option_is_refused(option: str, variable: str | None, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        select_devices(HOST, option, variable)


def test_a_computer_without_gpus() -> None:
    none = GpuInventory(unsupported=("an AMD GPU",))
    assert select_devices(none, None, None) == ((), [])
    with pytest.raises(
        InvalidInput,
        match=r"--gpus all: this computer has no usable NVIDIA GPU \(it has an AMD GPU\); --gpus none trains",
    ):
        select_devices(none, "all", None)
    with pytest.raises(InvalidInput, match="--gpus GPU-a: this computer has no usable NVIDIA GPU"):
        select_devices(none, "GPU-a", None)


def test_indices_are_used_unchecked_where_nvml_does_not_answer() -> None:
    devices, warnings = select_devices(GpuInventory(), "1,3", None)
    assert [device.name for device in devices] == ["1", "3"]
    assert "indices are not checked" in warnings[0]
