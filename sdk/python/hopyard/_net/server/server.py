"""The gRPC server of Hopyard services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from hopyard._common.private_files import make_private_folder
from hopyard._net.auth import AccessControl, Authenticator, CallerKind, SecretsFolder, TokenAuthenticator
from hopyard._net.auth.permissions import PERMISSIONS
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard._net.rpc import in_process
from hopyard._net.rpc.address import SOCKET_SCHEME
from hopyard._net.rpc.options import MAX_CONCURRENT_CALLS, REQUEST_BYTES, server_options
from hopyard._net.server import addresses
from hopyard._net.server.authorization import AuthorizationInterceptor
from hopyard._net.server.folder_lock import FolderLock
from hopyard._net.server.interceptor import ErrorInterceptor
from hopyard._net.server.socket_folder import SOCKETS, SocketFolder, make_private
from hopyard.errors import Conflict, InvalidInput

_log = logging.getLogger(__name__)

DEFAULT_GRACE_SECONDS: Final = 5.0
"""Default seconds that pending calls have to finish when a server stops."""

S = TypeVar("S")


class Server:
    """A gRPC server with health checks, reflection, error mapping, an address file and an ordered stop.

    Add the servicers with `add`, then call `start`, and `stop` at the end.

    Args:
        name: Name of the service, used for the address file and in the log.
        host: Address of a TCP port to listen on, which requires `insecure`; None: listen on a Unix socket.
        port: TCP port to listen on; 0 selects a free one.
        data: Data folder for the address file `<name>.address` and the Unix socket; None: no file, and a socket in a temporary
            folder.
        insecure: Allow TCP connections without encryption.
        write_address: Whether to write the address file; False: only the socket is in the data folder.
        request_bytes: Maximum size of a request message in bytes.
        authenticator: Finds the caller to whom a token belongs; None: the tokens in the folder `secrets` of the data folder are
            accepted. The first server of a cluster creates this folder. Without a data folder it is temporary, next to the socket.
        permissions: The kinds of callers that may call each method.

    Raises:
        InvalidInput: A port, or `insecure`, is given without a host, or a host without `data` and `authenticator`.
        Conflict: `host` is given without `insecure`.
    """

    def __init__(
        self,
        name: str,
        *,
        host: str | None = None,
        port: int = 0,
        data: Path | None = None,
        insecure: bool = False,
        write_address: bool = True,
        request_bytes: int = REQUEST_BYTES,
        authenticator: Authenticator | None = None,
        permissions: Mapping[str, frozenset[CallerKind]] = PERMISSIONS,
    ) -> None:
        addresses.check_bind(host, port, insecure=insecure)
        if host is not None and data is None and authenticator is None:
            raise InvalidInput("--host needs --data DIR: the folder secrets in it has the tokens of callers")
        self._name = name
        self._host = host
        self._port = port
        self._data = data
        self._writes_address = write_address and data is not None
        self._sockets: SocketFolder | None = None
        self._lock: FolderLock | None = None
        self._request_bytes = request_bytes
        self._authenticator = authenticator
        self._permissions = permissions
        self.tokens: Final = TokenAuthenticator()
        """The tokens that are accepted without an authenticator; those of the folder of secrets are added by `start`."""
        self._registrations: list[Callable[[grpc.aio.Server], None]] = []
        self._near = in_process.NearServer()
        self._services: list[str] = []
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()
        self._address = ""
        self.secrets: SecretsFolder | None = None
        """The folder of secrets of the cluster; None before `start`, and with an authenticator."""
        self._stopped: asyncio.Task[None] | None = None
        self.stopping: Final = asyncio.Event()
        """Set when the stop begins. Handlers of endless streams should then end; they are cancelled after the grace period."""

    @property
    def address(self) -> str:
        """The address by which processes on this host reach the server, unix:/PATH or HOST:PORT; empty before `start`."""
        return self._address

    def add(self, register: Callable[[S, grpc.aio.Server], None], servicer: S, service: str) -> None:
        """Add a servicer (the implementation of a gRPC service). Call this before `start`.

        Args:
            register: The generated `add_XServicer_to_server`.
            servicer: The servicer.
            service: Full name of the service, such as "hopyard.v1.AppStatService", for health checks and reflection.

        Raises:
            RuntimeError: The server has started.
        """
        if self._server is not None:
            raise RuntimeError(f"{self._name}: {service} cannot be added: the server has started")
        self._registrations.append(lambda server: register(servicer, server))
        register(servicer, self._near)  # type: ignore[arg-type]
        self._services.append(service)

    async def start(self, *, ready: bool = True) -> str:
        """Start to listen, write the address file, and return the address (unix:/PATH or HOST:PORT).

        Args:
            ready: Whether health checks report SERVING now; False: only after `set_ready(True)`.

        Raises:
            Conflict: The server cannot listen on the address, or a service of this name listens on the socket of the data folder.
        """
        try:
            self._open_socket_folder()
            self.make_secrets()
            control = AccessControl(self._authenticator or self.tokens, self._permissions)
            server = grpc.aio.server(
                interceptors=(AuthorizationInterceptor(control), ErrorInterceptor()),
                options=tuple(server_options(self._request_bytes).items()),
                maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
            )
            for register in self._registrations:
                register(server)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            names = [*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, server)
            address = self._bind(server)
            await self.set_ready(ready)
            await server.start()
        except BaseException:
            self._free_socket()
            raise
        self._server = server
        self._address = address
        self._near.admit = control.admit
        in_process.publish(self._address, self._near)
        if self._writes_address and self._data is not None:
            addresses.write_address(self._data, self._name, self._address)
        _log.info("%s listens on %s", self._name, self._address)
        if self._host is not None:
            _log.warning(
                "%s listens without encryption (--insecure): whoever can read the traffic of %s learns the tokens in it, and can "
                "run code as this user",
                self._name,
                self._address,
            )
        return self._address

    def _open_socket_folder(self) -> None:
        if self._host is None and self._sockets is None:
            # gRPC silently replaces a socket that another process listens on, so the lock comes first.
            self.lock()
            self._sockets = SocketFolder(self._data)
            self._sockets.make()

    def make_secrets(self) -> None:
        """Create the folder of secrets if it is missing, and accept its tokens. `start` does so, too. No effect with an authenticator.

        Raises:
            InvalidInput: Other users could read or replace the data folder or a secret, or a file with a secret is damaged.
        """
        if self._authenticator is not None or self.secrets is not None:
            return
        if self._data is not None:
            make_private_folder(self._data)
            folder = self._data
        else:
            self._open_socket_folder()
            if self._sockets is None:
                raise AssertionError("a server without a data folder and an authenticator listens on a socket")
            folder = self._sockets.path
        self.secrets = SecretsFolder(folder / SECRETS)
        self.secrets.make()
        self.secrets.accept_all(self.tokens)

    def _bind(self, server: grpc.aio.Server) -> str:
        """Add the socket or port to the server, and return the address by which processes on this host reach it."""
        if self._host is None:
            return self._bind_socket(server)
        where = addresses.join(self._host, self._port)
        try:
            port = server.add_insecure_port(where)
        except RuntimeError as error:
            raise Conflict(
                f"{self._name} cannot listen on {where}: the port is taken or the "
                "host is not this computer's; choose another --port (0 takes a free one) or --host"
            ) from error
        return addresses.join(addresses.reachable(self._host), port)

    def lock(self) -> None:
        """Acquire the lock of this server's socket in the data folder, unless it is acquired; `start` does so, too.

        Call it before `start` if a second service of this name must change nothing. Without effect for TCP, and without a data folder.

        Raises:
            Conflict: A service of this name uses the socket.
            InvalidInput: The folder of the sockets belongs to another user, or another user could replace it.
        """
        if self._lock is None and self._host is None and self._data is not None:
            lock = FolderLock(make_private(self._data.absolute() / SOCKETS), self._name)
            lock.take()
            self._lock = lock

    def _bind_socket(self, server: grpc.aio.Server) -> str:
        sockets = self._sockets
        if sockets is None:
            raise AssertionError("the folder of the socket is made before the socket")
        while True:
            address = f"{SOCKET_SCHEME}{sockets.path / self._name}.sock"
            try:
                server.add_insecure_port(address)
            except RuntimeError as error:
                if not sockets.can_fall_back:
                    raise Conflict(
                        f"{self._name} cannot listen on the socket {address.removeprefix(SOCKET_SCHEME)}"
                    ) from error
                sockets.fall_back()
                sockets.make()
            else:
                return address

    def _free_socket(self) -> None:
        """Release the lock of the socket, and delete the temporary folder, if any."""
        if self._lock is not None:
            self._lock.give_back()
            self._lock = None
        if self._sockets is not None:
            self._sockets.remove()

    async def set_ready(self, ready: bool) -> None:
        """Set what health checks report: SERVING if `ready`, else NOT_SERVING. Ignored after the stop has begun."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *self._services):
            await self._health.set(service, status)

    async def stop(self, grace: float | None = DEFAULT_GRACE_SECONDS) -> None:
        """Stop the server in order; safe to call twice, and before `start`.

        Health checks report NOT_SERVING, the address file is deleted, new calls are refused, and calls over gRPC that are still pending
        after `grace` seconds are cancelled.

        Args:
            grace: Seconds that pending calls have to finish; None: calls over gRPC are cancelled at once, and direct calls
                (`in_process`) may take any time.
        """
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_task(self._stop(grace), name=f"{self._name}.stop")
        await asyncio.shield(self._stopped)

    async def _stop(self, grace: float | None) -> None:
        self.stopping.set()
        await self._health.enter_graceful_shutdown()
        if self._server is None:
            self._free_socket()
            return
        if self._writes_address and self._data is not None:
            addresses.remove_address(self._data, self._name, self._address)
        in_process.withdraw(self._address, self._near)
        await asyncio.gather(self._server.stop(grace), self._near.finished(grace))
        self._free_socket()
        _log.info("%s has stopped", self._name)
