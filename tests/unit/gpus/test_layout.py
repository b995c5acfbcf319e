"""How the GPUs of a node are divided among its slots."""

from __future__ import annotations

import pytest

from hopyard._runtime.gpus import AUTOMATIC, GpuDevice, GpuInventory, GpuOptions, SlotLayout, lay_out_slots
from hopyard._runtime.gpus.layout import agent_layouts
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick


def host(gpus: int, *, mig: bool = False) -> GpuInventory:
    parent = "GPU-p" if mig else ""
    kind = "MIG" if mig else "GPU"
    return GpuInventory(
        tuple(GpuDevice(0 if mig else index, f"{kind}-{index}", "A100", 40 << 30, parent) for index in range(gpus)),
        checked=True,
    )


def lay_out(gpus: int, options: GpuOptions = AUTOMATIC, slots: int | None = None, **more: int | None) -> SlotLayout:
    return lay_out_slots(options, slots, inventory=host(gpus), **more)  # type: ignore[arg-type]


def names(layout: SlotLayout) -> list[str]:
    return ["+".join(device.uuid.removeprefix("GPU-") for device in slot) for slot in layout.slots]


@pytest.mark.parametrize(
    ("gpus", "options", "slots", "expected"),
    [
        # Nothing is given: one slot per GPU, else one slot.
        (4, AUTOMATIC, None, "0 1 2 3"),
        (1, AUTOMATIC, None, "0"),
        (0, AUTOMATIC, None, " "),
        # --slots divides the GPUs evenly, or several slots share each.
        (4, AUTOMATIC, 4, "0 1 2 3"),
        (4, AUTOMATIC, 2, "0+1 2+3"),
        (4, AUTOMATIC, 1, "0+1+2+3"),
        (1, AUTOMATIC, 2, "0 0"),
        (2, AUTOMATIC, 4, "0 1 0 1"),
        (0, AUTOMATIC, 2, "  "),
        # --gpus chooses.
        (4, GpuOptions("3,1"), None, "3 1"),
        (4, GpuOptions("0,1,2,3"), 2, "0+1 2+3"),
        (4, GpuOptions("none"), None, " "),
        (4, GpuOptions("none"), 3, "   "),
        # --gpus-per-slot: what remains is unused.
        (4, GpuOptions(per_slot=2), None, "0+1 2+3"),
        (5, GpuOptions(per_slot=2), None, "0+1 2+3"),
        (4, GpuOptions(per_slot=1), 3, "0 1 2"),
        # --slots-per-gpu.
        (2, GpuOptions(slots_per_gpu=2), None, "0 1 0 1"),
        (2, GpuOptions(slots_per_gpu=2), 4, "0 1 0 1"),
        (2, GpuOptions(slots_per_gpu=1), None, "0 1"),
    ],
)
def test_slots_and_their_gpus(gpus: int, options: GpuOptions, slots: int | None, expected: str) -> None:
    layout = lay_out(gpus, options, slots)
    assert names(layout) == (expected.split(" ") if expected.strip() else [""] * len(expected))
    # An agent that is given the options of the layout makes the same one.
    assert lay_out(gpus, layout.options, len(layout.slots)).slots == layout.slots


@pytest.mark.parametrize(
    ("gpus", "options", "slots", "words"),
    [
        (
            4,
            AUTOMATIC,
            3,
            "--slots 3: 4 GPUs cannot be divided evenly .* allowed are 1, 2, 4 and multiples of 4; .*unused",
        ),
        (2, AUTOMATIC, 3, "allowed are 1, 2 and multiples of 2; or give other --gpus, or --gpus none to train on CPUs"),
        (
            2,
            GpuOptions(per_slot=2, slots_per_gpu=2),
            None,
            "--gpus-per-slot 2 and --slots-per-gpu 2 exclude each other",
        ),
        (2, GpuOptions(per_slot=3), None, "--gpus-per-slot 3, and there are 2 GPUs to use"),
        (
            4,
            GpuOptions(per_slot=2),
            3,
            "--slots 3 with --gpus-per-slot 2 needs 6 GPUs, and there are 4: .* at most --slots 2",
        ),
        (2, GpuOptions(slots_per_gpu=2), 3, "--slots 3 contradicts --slots-per-gpu 2 on 2 GPUs, which makes 4 slots"),
        (0, GpuOptions(per_slot=1), None, "--gpus-per-slot 1: this computer has no usable NVIDIA GPU"),
        (2, GpuOptions("none", slots_per_gpu=2), None, "--slots-per-gpu 2: --gpus is none"),
    ],
)
def test_contradictions_are_refused(gpus: int, options: GpuOptions, slots: int | None, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        lay_out(gpus, options, slots)


def test_jobs_that_need_gpus_get_slots_that_have_them() -> None:
    assert names(lay_out(4, gpus_per_job=2)) == ["0+1", "2+3"]
    assert names(lay_out(4, slots=1, gpus_per_job=2)) == ["0+1+2+3"]
    with pytest.raises(
        InvalidInput, match=r"per_job.gpus is 2, and each of 4 slots has 1 GPU of 4: give --gpus-per-slot 2"
    ):
        lay_out(4, slots=4, gpus_per_job=2)
    with pytest.raises(InvalidInput, match=r"resources.per_job.gpus is 3, and there are 2 GPUs"):
        lay_out(2, gpus_per_job=3)
    with pytest.raises(InvalidInput, match=r"resources.per_job.gpus is 1, and this computer has no usable NVIDIA GPU"):
        lay_out(0, gpus_per_job=1)
    with pytest.raises(InvalidInput, match=r"resources.per_job.gpus is 1, and --gpus is none"):
        lay_out(2, GpuOptions("none"), gpus_per_job=1)


def test_an_experiments_number_of_slots_is_a_limit() -> None:
    assert names(lay_out(4, most_slots=2)) == ["0", "1"]
    assert "2 x A100 unused" in lay_out(4, most_slots=2).notes[0]
    limited = lay_out(2, most_slots=4)
    assert names(limited) == ["0", "1"]
    assert limited.notes[1].startswith("resources.slots is 4, and 2 GPUs make 2 slots: --slots-per-gpu N shares a GPU")
    assert len(lay_out(0, most_slots=4, cpu_slots=9).slots) == 4
    assert len(lay_out(0, cpu_slots=9).slots) == 9


def test_what_is_shared_or_not_used_is_said() -> None:
    plain = lay_out(2)
    assert plain.notes == ("2 x A100: 2 slots with 1 GPU each (--gpus none trains on CPUs)",)
    assert plain.warnings == ()
    shared = lay_out(1, slots=2)
    assert shared.notes == ("1 x A100: 2 slots with 1 GPU each, shared (--gpus none trains on CPUs)",)
    assert shared.warnings[0].startswith("2 slots share each GPU: its memory is shared too and not limited")
    hidden = lay_out_slots(AUTOMATIC, inventory=host(2), variable="")
    assert hidden.slots == ((),)
    assert hidden.notes == (
        "training uses CPUs only: CUDA_VISIBLE_DEVICES is (empty), which hides all 2 GPUs of this computer",
    )
    assert lay_out(0).notes == lay_out(0).warnings == ()
    broken = GpuInventory(problems=("NVML fails",), unsupported=("an AMD GPU",))
    assert lay_out_slots(AUTOMATIC, inventory=broken).warnings == ("NVML fails", "an AMD GPU")
    assert lay_out_slots(GpuOptions("none"), inventory=broken).warnings == ()


def test_a_slot_has_at_most_one_mig_instance() -> None:
    parts = host(3, mig=True)
    assert len(lay_out_slots(AUTOMATIC, inventory=parts).slots) == 3
    assert [len(slot) for slot in lay_out_slots(AUTOMATIC, 1, inventory=parts).slots] == [1]
    assert [slot[0].uuid for slot in lay_out_slots(AUTOMATIC, 2, inventory=parts).slots] == ["MIG-0", "MIG-1"]
    with pytest.raises(InvalidInput, match="a process can use only one MIG instance"):
        lay_out_slots(GpuOptions(per_slot=2), inventory=parts)


@pytest.mark.parametrize(
    ("gpus", "agents", "slots", "expected"),
    [
        (4, 1, None, [["0", "1", "2", "3"]]),
        (4, 2, None, [["0", "1"], ["2", "3"]]),
        (4, 2, 1, [["0+1"], ["2+3"]]),
        (1, 2, None, [["0"], ["0"]]),
        (1, 2, 2, [["0", "0"], ["0", "0"]]),
        (0, 2, None, [[""], [""]]),
        (2, 0, None, []),
    ],
)
def test_several_agents_divide_the_gpus(gpus: int, agents: int, slots: int | None, expected: list[list[str]]) -> None:
    layouts = agent_layouts(AUTOMATIC, slots, agents, inventory=host(gpus))
    assert list(map(names, layouts)) == expected
    shared = any("share each GPU" in warning for layout in layouts for warning in layout.warnings)
    assert shared is (agents > gpus > 0)


def test_agents_among_which_gpus_cannot_be_divided_are_refused() -> None:
    with pytest.raises(InvalidInput, match="--agents 2: 3 GPUs cannot be divided evenly among 2 agents"):
        agent_layouts(AUTOMATIC, None, 2, inventory=host(3))


def test_options_are_those_of_the_command_line() -> None:
    assert GpuOptions("0,1", 2, 3).given == "--gpus 0,1 --gpus-per-slot 2 --slots-per-gpu 3"
    assert AUTOMATIC.given == ""
