"""An application client written from docs/protocol.md, which uses only gRPC's generated stubs and can make mistakes on purpose.

The environment variable MISTAKE names the mistake (see `MISTAKES` in test_conformance.py); if it is empty, the client follows
the protocol.
"""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

import grpc

from hopyard.v1 import application_pb2 as pb
from hopyard.v1 import application_pb2_grpc, common_pb2
from hopyard.v1 import resource_manager_pb2 as rm

MISTAKE = os.environ.get("MISTAKE", "")
TOKEN = (("authorization", f"Bearer {os.environ.get('HOPYARD_TOKEN', '')}"),)
BARE = (("authorization", os.environ.get("HOPYARD_TOKEN", "")),)


def wrong(mistake: str) -> bool:
    return mistake == MISTAKE


def leave(code: int, why: str) -> NoReturn:
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    os._exit(code)


class Client:
    def __init__(self) -> None:
        channel = grpc.insecure_channel(os.environ["HOPYARD_AGENT"], options=[("grpc.enable_http_proxy", 0)])
        self.stub = application_pb2_grpc.ApplicationServiceStub(channel)
        self.outgoing: SimpleQueue[pb.AttachRequest | None] = SimpleQueue()
        self.lock = threading.Condition()
        self.start: pb.ApplicationStart | None = None
        self.heard = time.monotonic()
        self.closed = False
        self.began: float | None = None
        self.stop = ""
        self.released = -1
        self.at_boundary = self.parked = self.told_to_park = self.ending = self.finished = False
        self.last_report = 0.0

    # Sending and receiving messages.

    def say(self, **message: Any) -> None:
        self.outgoing.put(pb.AttachRequest(**message))

    def requests(self) -> Iterator[pb.AttachRequest]:
        while (request := self.outgoing.get()) is not None:
            yield request

    def read(self) -> None:
        try:
            token = () if wrong("no token") else BARE if wrong("no bearer") else TOKEN
            for message in self.stub.Attach(self.requests(), metadata=token, wait_for_ready=True):
                # Set before taking the lock: the main thread holds the lock while it saves.
                self.heard = time.monotonic()
                with self.lock:
                    self.take(message)
                    self.lock.notify_all()
        except grpc.RpcError as error:
            if self.start is None and not wrong("refusal ignored"):
                leave(1, f"the agent refuses: {error}")
        self.closed = True
        if self.start is None or self.stop == "over" or wrong("agent ignored"):
            return
        leave(75, "the agent is gone")

    def watch(self) -> None:
        while not self.closed:
            time.sleep(0.5)
            if not wrong("no heartbeats"):
                self.say(heartbeat=pb.AttachHeartbeat())
            if self.start is None or self.stop == "over":
                continue
            limit, now = self.start.start.iteration_timeout, time.monotonic()
            if self.began is not None and 0 < limit < now - self.began and not wrong("hangs"):
                leave(76, "an iteration took longer than it may")
            if now - self.heard > self.start.lease_seconds and not wrong("silence ignored"):
                leave(75, "the agent is silent")

    # Handling of received messages.

    def take(self, message: pb.AttachResponse) -> None:
        kind = message.WhichOneof("message")
        if kind == "start":
            self.start, start = message.start, message.start.start
            self.position = start.snapshot.position
            self.until, self.allowed, self.completes = start.until, start.allowed, start.completes
            self.points = {point for point in start.snapshot_at if point > self.position}
            self.every, self.saved = start.snapshot_every, self.position
        elif kind == "decide":
            self.decide(message.decide)
        elif kind == "amend" and (self.at_boundary or not wrong("deaf while training")):
            self.amend(message.amend)
        elif kind is None and wrong("unknown refused"):
            leave(1, "an unknown message")

    def decide(self, decide: rm.DecideRun) -> None:
        self.allowed = decide.allowed or self.allowed if wrong("allowed sinks") else max(self.allowed, decide.allowed)
        here = self.parked and decide.position >= self.position
        match decide.decision:
            case rm.DECISION_TERMINATE:
                self.stop = "TERMINATED"
            case rm.DECISION_SUSPEND if wrong("suspend by position") and decide.position < self.position:
                pass
            case rm.DECISION_SUSPEND if not wrong("suspend ignored"):
                self.stop = self.stop or "SUSPENDED"
            case rm.DECISION_PARK:
                self.told_to_park |= here
            case rm.DECISION_CONTINUE:
                self.released = self.position if wrong("any decision") else max(self.released, decide.position)
                if wrong("suspend taken back"):
                    self.stop = ""
                if here:
                    self.told_to_park = False
                    if self.at_end():
                        self.ending = True
                    else:
                        self.parked = False

    def amend(self, amend: rm.AmendRun) -> None:
        here = self.position
        ok = amend.until == 0 or amend.until > here or (amend.until == here and self.parked)
        ok &= all(point > here or (point == here and self.at_boundary) for point in amend.snapshot_at)
        ok &= not (self.ending or self.finished)
        if wrong("amended late"):
            ok = True
        if ok:
            if amend.until:
                self.until, self.completes = amend.until, False
            self.points |= set(amend.snapshot_at)
            if self.parked and self.told_to_park and amend.until > here and not wrong("parked for ever"):
                self.parked, self.released = False, max(self.released, here)
        self.say(amended=rm.RunAmended(ticket=amend.ticket, accepted=ok, position=here))

    # Training and snapshots.

    def at_end(self) -> bool:
        return self.finished or 0 < self.until <= self.position

    def boundary(self, metrics: dict[str, float]) -> None:
        with self.lock:
            self.began, self.at_boundary = None, True
            self.parked, self.told_to_park = self.at_end(), False
            self.ending = self.completes and self.parked and not wrong("completes ignored")
            now = time.monotonic()
            shown = self.position + (1 if wrong("gap after waiting") and self.released >= 0 else 0)
            self.say(
                report=common_pb2.Report(
                    position=shown,
                    metrics=metrics,
                    seconds=-1.0 if wrong("negative seconds") else now - self.last_report,
                    at=time.time(),
                    at_until=self.parked and not wrong("until unsaid"),
                    finished=self.finished,
                )
            )
            while True:
                if self.due():
                    self.save()
                elif self.stop == "TERMINATED":
                    self.end(self.stop, saves=wrong("saves when terminated"))
                elif self.stop:
                    self.end(self.stop, saves=not wrong("no snapshot"))
                elif self.parked and self.ending:
                    self.end("UNTIL", saves=True)
                elif self.parked or (self.allowed <= self.position and self.released < self.position):
                    if wrong("never waits") or (wrong("until ignored") and self.position < self.allowed):
                        break
                    self.lock.wait()
                else:
                    break
            self.at_boundary = False
            self.last_report = time.monotonic()
            self.began = self.last_report

    def due(self) -> bool:
        if self.snapshot is not None and self.snapshot.position == self.position:
            return False
        every = 0 < self.every <= (self.position if wrong("every from 0") else self.position - self.saved)
        return any(point <= self.position for point in self.points) or (every and self.stop != "TERMINATED")

    snapshot: common_pb2.Snapshot | None = None

    def save(self) -> None:
        assert self.start is not None
        file = Path(self.start.scratch_folder) / "state.txt"
        file.write_text(f"{self.x:.6g}0" if wrong("state rounded") else repr(self.x))
        packed = os.environ.get("SAVES") == "bytes"
        state = {"data": file.read_bytes()} if packed else {"path": str(file)}
        request = pb.SaveStateRequest(position=self.position - wrong("snapshot elsewhere"), **state)
        self.snapshot = self.stub.SaveState(iter([request]), metadata=TOKEN).snapshot
        if wrong("wrong hash"):
            self.snapshot.sha256 = self.snapshot.sha256[::-1]
        if wrong("wrong size"):
            self.snapshot.size_bytes += 1
        self.saved = self.position
        self.points = {point for point in self.points if point > self.position}
        self.say(snapshot_taken=rm.SnapshotTaken(snapshot=self.snapshot))

    def load(self) -> float:
        assert self.start is not None
        if wrong("unverified") and (file := Path(self.start.snapshot_file)).exists():
            return float(file.read_bytes()[512:].rstrip(b"\0"))
        try:
            if os.environ.get("SAVES") == "bytes":
                return float(b"".join(r.data for r in self.stub.LoadState(pb.LoadStateRequest(), metadata=TOKEN)))
            folder = Path(self.start.scratch_folder) / "loaded"
            list(self.stub.LoadState(pb.LoadStateRequest(folder=str(folder)), metadata=TOKEN))
            return float((folder / "state.txt").read_text())
        except grpc.RpcError as error:
            blamed = wrong("blames the user") and error.code() is grpc.StatusCode.NOT_FOUND
            reason, failure = ("FAILED", 1) if blamed else ("LOST", 2)
            self.end(reason, message=f"load: {error.details()}", failure=failure)

    def end(self, reason: str, *, saves: bool = False, message: str = "", failure: int = 0) -> NoReturn:
        if saves and (self.snapshot is None or self.snapshot.position != self.position):
            self.save()
        ended = rm.RunEnded(
            reason=common_pb2.RunEndReason.Value(f"RUN_END_REASON_{reason}"),
            position=self.position,
            snapshot=self.snapshot if saves else None,
            failure=failure,  # type: ignore[arg-type]
            message=message,
        )
        self.stop = "over"
        self.say(ended=ended)
        if wrong("talks on"):
            self.say(report=common_pb2.Report(position=self.position + 1))
        self.outgoing.put(None)
        self.lock.release()
        self.reader.join(5)
        tidy = wrong(f"{reason.lower()} with 0") or not (message or wrong("exits with 1"))
        os._exit(0 if tidy else 1)

    def main(self) -> None:
        if not wrong("no hello"):
            self.say(hello=pb.AttachHello(pid=os.getpid(), library="small 1"))
        self.say(heartbeat=pb.AttachHeartbeat())
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        threading.Thread(target=self.watch, daemon=True).start()
        with self.lock:
            self.lock.wait_for(lambda: self.start is not None)
            assert self.start is not None
        values: dict[str, Any] = json.loads(os.environ["HOPYARD_HYPERPARAMETERS"])
        self.lock.acquire()
        lr = values.get("lr")
        if not isinstance(lr, float | int) and not wrong("bad values"):
            self.end("FAILED", message=f"lr is {lr!r}; allowed: a number", failure=1)
        if wrong("bad values") and isinstance(lr, str):
            lr = 0.1
        if wrong("whole numbers refused") and isinstance(lr, int):
            self.end("FAILED", message="lr is no float", failure=1)
        if wrong("leaves a child"):
            # Longer than any time limit of the suite, which must end the child process itself.
            subprocess.Popen(["sleep", "3600"], start_new_session=True)
        begins = float(values.get("start", {}).get("x", 0))
        given = self.start.start.HasField("snapshot")
        self.x = self.load() if given and not wrong("state ignored") else begins
        if wrong("old values") and given:
            lr = 0.1234567890123456
        if wrong("loaded is taken") and given:
            self.snapshot = self.start.start.snapshot
        self.finished = self.position == values.get("last") and not wrong("trains on")
        self.lock.release()
        self.say(started=rm.RunStarted(position=self.position))
        self.last_report = time.monotonic()
        if self.at_end() and not wrong("nothing restated"):
            self.boundary({})
        step = float(lr or 0) * (2 if values.get("twice") else 1) * (-1 if values.get("sign") == "minus" else 1)
        self.began = self.last_report = time.monotonic()
        while True:
            time.sleep(values.get("seconds", 0))
            self.x += step
            with self.lock:
                self.position += 1
            self.finished = self.position == values.get("last") and not wrong("no end")
            bad = self.position == values.get("nan_at")
            self.boundary({} if bad and wrong("nan left out") else {"value": math.nan if bad else self.x})


Client().main()
