"""A program that shows a live view until the key q or a signal: `python -m tests.integration.cli.live_program [--raise]`."""

from __future__ import annotations

import asyncio
import sys

from hopyard.cli.interrupts import Interrupts
from hopyard.cli.live.controls import Action, Command, Controls
from hopyard.cli.live.screen import live_view
from tests.unit.cli.test_live import job, model


async def main() -> None:
    left = asyncio.Event()

    def perform(command: Command) -> None:
        sys.stderr.write(f"performed {command.action.value}\n")
        if command.action is Action.LEAVE:
            left.set()

    with Interrupts() as interrupts:
        jobs = (job(str(number), best=number / 10) for number in range(1, 4))
        async with live_view(model(*jobs), controls=Controls(), perform=perform):
            waits = [asyncio.create_task(event.wait()) for event in (left, interrupts.first)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if "--raise" in sys.argv:
                raise RuntimeError("the view failed")
        sys.stdout.write("ended by a signal\n" if interrupts.first.is_set() else "ended by a key\n")
        for wait in waits:
            wait.cancel()


if __name__ == "__main__":
    asyncio.run(main())
