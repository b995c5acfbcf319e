"""A generator that runs in another process, in any language, and serves the RPCs of HyperparameterGeneratorService."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import grpc

from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc.address import is_socket
from hopyard._net.rpc.channel import Metadata, blocking_channel, token_metadata
from hopyard._net.rpc.enums import GENERATOR_READS, JOB_STATES
from hopyard._net.rpc.retry import Backoff
from hopyard._net.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard.errors import HopyardError, InvalidInput, Unauthenticated, Unavailable
from hopyard.generator import Generator, Reads, Result
from hopyard.space import Configuration, Space
from hopyard.v1 import hpgen_pb2 as pb
from hopyard.v1 import hpgen_pb2_grpc

T = TypeVar("T")

PATIENCE_SECONDS: Final = 15.0
"""Maximum time in seconds to repeat a call while the process is unavailable."""

CALL_SECONDS: Final = 10.0

MAX_REOPENS: Final = 2
"""Maximum number of times to open the generator again for one call."""

_CLOSED: Final = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED)
_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class RemoteGenerator(Generator):
    """Delegates to a generator in another process. A restarted process gets all calls so far again.

    The calls are sent again at the first call after the restart. The constructor does not contact the process.

    Args:
        space: The search space.
        seed: Seed of the proposals.
        server: Address of the process.
        of: Which generator the process shall use: its name there, or MODULE:CLASS (a Python class). A process with a single generator
            may ignore it.
        **parameters: Parameters of that generator.

    Raises:
        InvalidInput: `server` is not an address.
    """

    def __init__(self, space: Space, seed: int, *, server: str, of: str = "remote", **parameters: Any) -> None:
        super().__init__(space, seed)
        self._server = server
        self._definition = {"name": of, "seed": seed, **parameters}
        channel = blocking_channel(server)
        self._stub = hpgen_pb2_grpc.HyperparameterGeneratorServiceStub(channel)
        self._life = f"life-{uuid.uuid4().hex}"  # A random id only; proposals are determined by the calls.
        self._calls: list[pb.GeneratorCall] = []
        self._opened: pb.OpenGeneratorResponse | None = None
        weakref.finalize(self, _forget, self._stub, channel, server, self._life).atexit = False

    def _start_command(self) -> str:
        if is_socket(self._server):
            return "hopyard hpgen --data DIR"
        host, _, port = self._server.rpartition(":")
        return f"hopyard hpgen --data DIR --host {host} --port {port} --insecure"

    @property
    def size(self) -> int | None:
        """The number of configurations that the other process reports; None: unlimited or unknown."""
        opened = self._open()
        return opened.size if opened.HasField("size") else None

    @property
    def reads(self) -> Reads:
        """Which results the generator in the other process learns from.

        "nothing"; "finals": the results of ended jobs; "reports": also intermediate ones.
        """
        return GENERATOR_READS.from_proto(self._open().reads)

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return the configuration that the other process proposes for a job; None: its generator is exhausted. `ordinal` is unused.

        Raises:
            InvalidInput: The process was unavailable for longer than `PATIENCE_SECONDS`, or rejected the call.
        """
        request = pb.CreateJobRequest(experiment=self._life, job=job)
        response = self._ask(
            lambda: self._stub.CreateJob(request, timeout=CALL_SECONDS, metadata=_headers(self._server))
        )
        recorded = pb.RecordedCreate(job=job)
        if not response.exhausted:
            recorded.hyperparameters.CopyFrom(response.hyperparameters)
        self._calls.append(pb.GeneratorCall(create=recorded))
        return None if response.exhausted else hyperparameters_from_proto(response.hyperparameters)

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a job at a position to the other process. Errors as in `create`."""
        request = pb.ReportPerformanceRequest(experiment=self._life, job=job, position=position, metrics=metrics)
        self._ask(lambda: self._stub.ReportPerformance(request, timeout=CALL_SECONDS, metadata=_headers(self._server)))
        self._calls.append(pb.GeneratorCall(report=request))

    def report_final(self, job: str, result: Result) -> None:
        """Send the final result of a job to the other process. Errors as in `create`."""
        request = pb.ReportFinalPerformanceRequest(
            experiment=self._life,
            job=job,
            metrics=result.metrics,
            position=result.position,
            outcome=JOB_STATES.to_proto(result.outcome),
        )
        if result.hyperparameters is not None:
            request.hyperparameters.CopyFrom(hyperparameters_to_proto(result.hyperparameters))
        self._ask(
            lambda: self._stub.ReportFinalPerformance(request, timeout=CALL_SECONDS, metadata=_headers(self._server))
        )
        self._calls.append(pb.GeneratorCall(report_final=request))

    def _ask(self, call: Callable[[], T]) -> T:
        """Make a call to the other process, and return its response. Repeat the call while the process is unavailable.

        If the process answers NOT_FOUND, because it was restarted, or ABORTED, because the process of its generator ended, open the
        generator there again and repeat the call, at most `MAX_REOPENS` times. Errors as in `_patiently`.
        """
        self._open()

        def asked() -> T:
            for _ in range(MAX_REOPENS):
                try:
                    return call()
                except grpc.RpcError as error:
                    if _code(error) not in _CLOSED:
                        raise
                self._opened = self._open_there()
            return call()

        return self._patiently(asked)

    def _open(self) -> pb.OpenGeneratorResponse:
        if self._opened is None:
            self._opened = self._patiently(self._open_there)
        return self._opened

    def _open_there(self) -> pb.OpenGeneratorResponse:
        """Open the generator in the other process, send it all calls so far, which the process repeats, and return the response.

        Raises:
            grpc.RpcError: The call failed; it is not repeated here.
        """
        spec = {
            "name": "remote",
            "command": ["true"],
            "metric": {"name": self.metric.name, "mode": self.metric.mode},
            "space": self.space.to_dict(),
            "constraints": [constraint.text for constraint in self.space.constraints],
            "generator": self._definition,
            "stop": {"jobs": 1},  # Required by the specification, but without meaning for a generator.
        }
        request = pb.OpenGeneratorRequest(experiment=self._life, spec_json=json.dumps(spec), calls=self._calls)
        return self._stub.OpenGenerator(request, timeout=CALL_SECONDS, metadata=_headers(self._server))

    def _patiently(self, call: Callable[[], T]) -> T:
        """Make a call and return its result. Repeat it with growing pauses for `PATIENCE_SECONDS` while the process is unavailable.

        Raises:
            InvalidInput: The process was unavailable for longer, or rejected the call.
        """
        end, failures, rng, backoff = time.monotonic() + PATIENCE_SECONDS, 0, random.Random(), Backoff(most=1.0)
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                code, text = _code(error), _text(error)
                if code not in _AWAY:
                    raise InvalidInput(f"generator at {self._server}: {text}") from error
                failures += 1
                if time.monotonic() > end:
                    raise InvalidInput(
                        f"generator at {self._server}: no process answers there ({text}); start its process, such as: "
                        f"{self._start_command()}"
                    ) from error
                time.sleep(backoff.wait(failures, rng))


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()
    return code


def _text(error: grpc.RpcError) -> str:
    return str(error.details() or _code(error).name)


def _headers(server: str) -> Metadata:
    """Return the headers of a call to the process at `server`: the service token of that process, if it is known.

    It is found next to a socket, or in the variables HOPYARD_GENERATOR_TOKEN and HOPYARD_GENERATOR_TOKEN_FILE. The token in the
    environment of this service is never sent to an address that an experiment names. Processes of other programs need no token.

    Raises:
        InvalidInput: The token is in a file that is not private, or damaged.
        NotFound: The file that HOPYARD_GENERATOR_TOKEN_FILE names does not exist.
    """
    try:
        return token_metadata(find_token(CallerKind.SERVICE, server, variable="HOPYARD_GENERATOR_TOKEN"))
    except (Unauthenticated, Unavailable):
        return ()


def _forget(
    stub: hpgen_pb2_grpc.HyperparameterGeneratorServiceStub, channel: grpc.Channel, server: str, life: str
) -> None:
    """Close the generator in the other process, on a background thread so that an unavailable process delays nobody. Ignore errors.

    Args:
        stub: Stub of the service in the other process.
        channel: Channel to the other process; it is closed after the call, whether that succeeded or not.
        server: Address of the other process.
        life: Id under which the generator was opened there.
    """

    def close() -> None:
        try:
            stub.CloseGenerator(pb.CloseGeneratorRequest(experiment=life), timeout=1.0, metadata=_headers(server))
        except (grpc.RpcError, HopyardError):
            return  # The process has nothing to close, or has ended.
        finally:
            channel.close()

    threading.Thread(target=close, name="a generator is forgotten", daemon=True).start()
