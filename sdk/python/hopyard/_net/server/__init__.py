"""The server side of services: a gRPC server with health checks, reflection, error mapping, and an ordered start and stop."""

from hopyard._net.server.addresses import address_file, read_address
from hopyard._net.server.background import Background
from hopyard._net.server.folder_lock import FolderLock
from hopyard._net.server.logs import LogFormat, set_up_logging
from hopyard._net.server.main_loop import run_service
from hopyard._net.server.server import DEFAULT_GRACE_SECONDS, Server

__all__ = [
    "DEFAULT_GRACE_SECONDS",
    "Background",
    "FolderLock",
    "LogFormat",
    "Server",
    "address_file",
    "read_address",
    "run_service",
    "set_up_logging",
]
