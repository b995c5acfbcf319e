"""The server loop of a policy process that connects to the scheduler itself.

It has one gRPC stream to the scheduler for each experiment that it serves, and one more that waits for the next experiment.
"""

from __future__ import annotations

import logging
import queue
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Final, cast

import grpc

from hopyard._net.rpc.channel import Metadata, blocking_channel, token_metadata
from hopyard._net.rpc.retry import Backoff
from hopyard._runtime.policy_process.instance import Instance, Make, reviewed
from hopyard.errors import HopyardError, InvalidInput, Unavailable
from hopyard.v1 import policy_pb2 as pb
from hopyard.v1 import policy_pb2_grpc

_LOG = logging.getLogger(__name__)

_AGAIN: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""Status codes of a stream after which the server connects again."""

_STOP: Final = 0
"""The byte that `stop` writes; a signal writes its number."""


class PolicyServer:
    """Serves a policy to the scheduler until it is stopped. Each experiment has a separate thread and policy object.

    Args:
        name: NAME in the setting `policy: remote:NAME` of experiments.
        make: Creates a policy from its parameters.
        server: Returns the present address of the scheduler and the token for it; called for each new gRPC stream; raises
            `Unavailable` if the address is unknown. Any other `HopyardError` ends `run`.
    """

    def __init__(self, name: str, make: Make, server: Callable[[], tuple[str, str]]) -> None:
        self._name = name
        self._make = make
        self._server = server
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        # `run` waits for bytes instead of a lock: a signal that arrives just before a thread waits for a lock does not wake
        # it, and Python runs the handler only when the main thread wakes. The byte that a signal writes is not lost.
        self._wakes, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._stops = {_STOP}
        self._failure: Exception | None = None

    def run(self) -> None:
        """Serve experiments until `stop` is called or a signal of `stop_on` arrives.

        Raises:
            InvalidInput: The scheduler refused this process.
            HopyardError: Any error of `server` other than `Unavailable`, such as `Unauthenticated`.
        """
        self._begin()
        with self._wakes, self._wake:
            while self._wakes.recv(1)[0] not in self._stops:
                pass
            if self._stops != {_STOP}:
                signal.set_wakeup_fd(-1)
        self._stopping.set()
        with self._lock:
            for channel in self._channels.values():
                channel.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End all gRPC streams and make `run` return; may be called from any thread."""
        with suppress(OSError):  # The server is already stopping: the buffer is full or the socket closed.
            self._wake.send(bytes([_STOP]))

    def stop_on(self, *signals: signal.Signals) -> None:
        """Make these signals stop the server. Call it in the main thread, which must then call `run`."""
        self._stops.update(signals)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, _no_action)

    def _stub(self) -> tuple[policy_pb2_grpc.PolicyServiceStub, Metadata]:
        """Return a stub for the present address of the scheduler, and the headers of its calls; channels are cached by address.

        Raises:
            Unavailable: The address is unknown.
        """
        address, token = self._server()
        with self._lock:
            if address not in self._channels:
                self._channels[address] = blocking_channel(address)
            return policy_pb2_grpc.PolicyServiceStub(self._channels[address]), token_metadata(token)

    def _begin(self) -> None:
        """Start a thread that waits for an experiment on a new gRPC stream and serves it."""
        threading.Thread(target=self._serve, name=f"policy {self._name}", daemon=True).start()

    def _serve(self) -> None:
        """Wait for an experiment and serve it until it ends, with a new gRPC stream after each broken one."""
        instance, failures, rng, backoff = Instance(self._make), 0, random.Random(), Backoff(most=2.0)
        while not self._stopping.is_set():
            try:
                heard, error = self._stream(instance)
            except Unavailable as unknown:
                heard, error = False, None
                _LOG.log(_loudness(failures), "waits for the cluster: %s", unknown)
            except HopyardError as failure:
                self._failure = failure
                self.stop()
                return
            else:
                if error is None and instance.experiment:
                    _LOG.info("experiment %s is over", instance.experiment)
                    return
                if error is not None and not self._goes_on(instance, error, failures):
                    return
            failures = 1 if heard else failures + 1
            if self._stopping.wait(backoff.wait(failures, rng)):
                return

    def _goes_on(self, instance: Instance, ended: grpc.Call, failures: int) -> bool:
        """Return whether to connect again after a gRPC stream that ended with an error.

        True after a lost connection. False if this server is stopping or the experiment no longer exists. Any other status means
        that the scheduler refused this process: the result is False, the server is stopped, and `run` raises the error.

        Args:
            instance: The policy instance of the gRPC stream.
            ended: The ended call, with its status.
            failures: Number of consecutive failures before this one.
        """
        code, text = ended.code(), ended.details() or ""
        if self._stopping.is_set():
            return False
        if code in _AGAIN:
            then = (
                "dials in again" if instance.experiment else "no experiment is being served; dials in for the next one"
            )
            _LOG.log(_loudness(failures), "%s: %s", then, text.removesuffix("; dial in again"))
            return True
        if code is grpc.StatusCode.NOT_FOUND and instance.experiment:
            _LOG.info("%s", text)
            return False
        self._failure = InvalidInput(f"the scheduler refused policy {self._name}: {text}")
        self.stop()
        return False

    def _stream(self, instance: Instance) -> tuple[bool, grpc.Call | None]:
        """Open a gRPC stream to the scheduler, and answer its messages until it ends.

        Args:
            instance: Has the policy that answers on this stream.

        Returns:
            Whether any message arrived, and the error that ended the stream (None: the scheduler ended it without an error).

        Raises:
            Unavailable: The address of the scheduler is unknown.
        """
        said: queue.SimpleQueue[pb.DriveRequest | None] = queue.SimpleQueue()
        said.put(pb.DriveRequest(hello=instance.hello(self._name)))
        waits, heard = not instance.experiment, False
        stub, headers = self._stub()
        responses = stub.Drive(_until_none(said), metadata=headers)
        try:
            for response in responses:
                heard = True
                match response.WhichOneof("message"):
                    case "up_call":
                        said.put(pb.DriveRequest(answer=instance.answer(response.up_call)))
                    case "review":
                        said.put(pb.DriveRequest(reviewed=reviewed(self._make, response.review)))
                    case "welcome":
                        instance.welcome(response.welcome)
                        _LOG.info("serves experiment %s", instance.experiment)
                        if waits:
                            waits = False
                            self._begin()
        except grpc.RpcError as error:
            return heard, cast("grpc.Call", error)
        finally:
            said.put(None)
            responses.cancel()
        return heard, None


def _loudness(failures: int) -> int:
    """Return the log level for a connection failure after `failures` consecutive earlier ones: INFO if there were none, else DEBUG."""
    return logging.INFO if failures == 0 else logging.DEBUG


def _no_action(number: int, frame: FrameType | None) -> None:
    """Handle a signal of `stop_on` by doing nothing.

    The signal stops the server because Python writes its number to the wake-up socket, but only if it has a handler.
    """


def _until_none(said: queue.SimpleQueue[pb.DriveRequest | None]) -> Iterator[pb.DriveRequest]:
    while (message := said.get()) is not None:
        yield message
