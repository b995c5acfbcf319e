"""The simulated agent of a conformance case: a gRPC server on loopback with the `ApplicationService` of a node agent."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn

import grpc

from hopyard._net.rpc.options import server_options
from hopyard._net.rpc.status_codes import code_of
from hopyard._runtime.application.conformance.transcript import Conversation
from hopyard._runtime.application.state import load_folder, named, save_bytes, save_entry
from hopyard._runtime.snapshot_folder import open_packed
from hopyard.errors import Conflict, DataLoss, HopyardError, NotFound, Unauthenticated
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import application_pb2_grpc, common_pb2

_BEAT_SECONDS: Final = 1.0
_CHUNK: Final = 1024 * 1024
_THREADS: Final = 16


class ProcessRecord:
    """The simulated agent's state of one client process: the recorded messages, the assigned run, and the messages to send."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.start: wire.ApplicationStart | None = None
        """The run that was assigned to the process; None: none yet."""
        self.silent = threading.Event()
        """When set, no further message is sent to the process."""
        self._answers: queue.SimpleQueue[wire.AttachResponse | None] = queue.SimpleQueue()

    def tell(self, response: wire.AttachResponse) -> None:
        """Queue `response`, a message to the process; it is sent once the process has attached."""
        if response.HasField("start"):
            self.start = response.start
        self.conversation.tell(response)
        self._answers.put(response)

    def hang_up(self) -> None:
        """End the gRPC stream to the process after the queued messages."""
        self._answers.put(None)

    def answers(self) -> Iterator[wire.AttachResponse]:
        """Yield the messages to the process as they are queued, and a heartbeat after each second without one, until `hang_up`."""
        while True:
            try:
                answer = self._answers.get(timeout=_BEAT_SECONDS)
            except queue.Empty:
                answer = wire.AttachResponse(heartbeat=wire.AttachHeartbeat())
            if answer is None:
                return
            if not self.silent.is_set():
                yield answer


class SimulatedAgent(application_pb2_grpc.ApplicationServiceServicer):
    """A simulated agent: serves the client processes of one conformance case, which it identifies by their tokens.

    `places` maps tokens to the state of their processes; `RunFixture.begin` adds to it. A call with another token, or without one,
    ends with the status UNAUTHENTICATED, and `refused` records what it sent.

    It listens on a free port of loopback as soon as it is created.

    Args:
        snapshots: Existing folder into which processes save state.
    """

    def __init__(self, snapshots: Path) -> None:
        self.snapshots = snapshots
        self.places: dict[str, ProcessRecord] = {}
        self.refused = ""
        """What a caller without a known token sent instead of it; empty: there was no such caller."""
        self._server = grpc.server(ThreadPoolExecutor(_THREADS), options=tuple(server_options().items()))
        application_pb2_grpc.add_ApplicationServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        """End all gRPC streams and stop listening, like an agent that crashed."""
        for place in self.places.values():
            place.hang_up()
        self._server.stop(grace=None).wait()

    def Attach(
        self, request_iterator: Iterator[wire.AttachRequest], context: grpc.ServicerContext
    ) -> Iterator[wire.AttachResponse]:
        place = self._place(context)
        with place.conversation.changed:
            place.conversation.attached += 1
            again = place.conversation.attached > 1
        if again:
            _refuse(Conflict("the process is attached already"), context)
        threading.Thread(target=_hear, args=(place, request_iterator), daemon=True).start()
        try:
            yield from place.answers()
        finally:
            place.conversation.close()

    def SaveState(
        self, request_iterator: Iterator[wire.SaveStateRequest], context: grpc.ServicerContext
    ) -> wire.SaveStateResponse:
        place = self._place(context)
        start = self._start(place, context)
        first = next(request_iterator, wire.SaveStateRequest())
        place.conversation.note(f"SaveState: position {first.position}, {first.path or 'bytes'}")
        try:
            if first.path:
                info = save_entry(Path(first.path), self.snapshots)
            else:
                info = save_bytes([first.data, *(request.data for request in request_iterator)], self.snapshots)
        except HopyardError as error:
            _refuse(error, context)
        snapshot = common_pb2.Snapshot(
            job=start.run.job,
            position=first.position,
            sha256=info.sha256,
            size_bytes=info.size,
            provider="framework",
        )
        return wire.SaveStateResponse(snapshot=snapshot)

    def LoadState(
        self, request: wire.LoadStateRequest, context: grpc.ServicerContext
    ) -> Iterator[wire.LoadStateResponse]:
        place = self._place(context)
        start = self._start(place, context)
        place.conversation.note(f"LoadState: {request.folder or 'bytes'}")
        if not start.snapshot_file:
            _refuse(NotFound("the run starts from scratch: there is no state to load"), context)
        snapshot, sha256 = Path(start.snapshot_file), start.start.snapshot.sha256
        try:
            if request.folder:
                load_folder(snapshot, sha256, Path(request.folder))
            else:
                with open_packed(snapshot) as file:
                    while data := file.read(_CHUNK):
                        yield wire.LoadStateResponse(data=data)
                if named(snapshot).sha256 != sha256:
                    raise DataLoss(f"snapshot {sha256} is damaged")
        except HopyardError as error:
            _refuse(error, context)
        except FileNotFoundError as error:
            _refuse(NotFound(str(error)), context)

    def _place(self, context: grpc.ServicerContext) -> ProcessRecord:
        given = dict(context.invocation_metadata()).get("authorization", "")
        token = str(given).removeprefix("Bearer ")
        if token not in self.places or given == token:
            self.refused = self._shown(str(given))
            says = (
                "no token that is known: metadata 'authorization: Bearer TOKEN' with the HOPYARD_TOKEN that was given"
            )
            _refuse(Unauthenticated(says), context)
        return self.places[token]

    def _shown(self, given: str) -> str:
        if given in self.places:
            return "the token alone, without 'Bearer ' before it"
        return f"{given!r}, with another token" if given else "no metadata 'authorization'"

    def _start(self, place: ProcessRecord, context: grpc.ServicerContext) -> wire.ApplicationStart:
        if place.start is None:
            _refuse(Conflict("the process has no run"), context)
        return place.start


def _hear(place: ProcessRecord, requests: Iterator[wire.AttachRequest]) -> None:
    try:
        for request in requests:
            place.conversation.hear(request)
    except grpc.RpcError:
        pass  # The process is gone.
    place.hang_up()  # Like a real agent after the last message of the process.


def _refuse(error: HopyardError, context: grpc.ServicerContext) -> NoReturn:
    context.abort(code_of(error), str(error))
