"""The server side of every service: a gRPC server with health, reflection and one error table, and an ordered life."""

from hopyard.serving.addresses import address_file, is_loopback, read_address
from hopyard.serving.background import Background
from hopyard.serving.folderlock import FolderLock
from hopyard.serving.logs import LogFormat, set_up_logging
from hopyard.serving.running import run_service
from hopyard.serving.server import DEFAULT_GRACE_SECONDS, Server

__all__ = [
    "DEFAULT_GRACE_SECONDS",
    "Background",
    "FolderLock",
    "LogFormat",
    "Server",
    "address_file",
    "is_loopback",
    "read_address",
    "run_service",
    "set_up_logging",
]
