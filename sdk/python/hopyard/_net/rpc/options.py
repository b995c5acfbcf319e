"""gRPC options of all channels and servers: sizes, keepalive, and limits for what a peer may ask of a server.

Servers must not trust their peers, so a peer that exceeds a limit is refused by gRPC before a handler runs.
"""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a message in either direction; it limits journal batches and lists, because bulk data is streamed in 1 MiB chunks."""

REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a request to a server, unless the server states another size."""

MAX_METADATA_BYTES: Final = 64 * 1024
"""Maximum size of headers and of trailers, which contain error messages."""

MAX_REQUEST_METADATA_BYTES: Final = 16 * 1024
"""Size of a request's headers above which a server begins to refuse requests; it refuses all above `MAX_METADATA_BYTES`."""

MAX_CONCURRENT_CALLS: Final = 4096
"""Maximum number of calls that a server handles at the same time, streams included; further ones get RESOURCE_EXHAUSTED."""

MAX_CONNECTIONS: Final = 1024
"""Maximum number of connections to a server; further ones are closed."""

KEEPALIVE_MS: Final = 10_000
"""Interval of the pings that detect a peer which disappeared without closing the connection, also if no data is sent."""

_COMMON: Final = {
    # Hopyard compresses nothing in gRPC. With compression allowed, gRPC decompresses a message in memory before it checks its size.
    "grpc.compression_enabled_algorithms_bitset": 1,
    "grpc.absolute_max_metadata_size": MAX_METADATA_BYTES,
    "grpc.keepalive_time_ms": KEEPALIVE_MS,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
}

CHANNEL_OPTIONS: Final[dict[str, int | str]] = {
    **_COMMON,
    "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
    "grpc.max_metadata_size": MAX_METADATA_BYTES,
    "grpc.http2.max_pings_without_data": 0,
    # Services start in any order and restart, so reconnect soon (gRPC's default backoff grows to two minutes).
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 2_000,
    "grpc.max_reconnect_backoff_ms": 2_000,
    # Channels to one address do not share a connection, so that the backoff of one does not delay another.
    "grpc.use_local_subchannel_pool": 1,
    # `hopyard._net.rpc.retry` retries calls, where it is visible and testable.
    "grpc.enable_retries": 0,
}
"""Options of a channel by name."""

ATTACHMENT_OPTIONS: Final[dict[str, int | str]] = {
    "grpc.compression_enabled_algorithms_bitset": 1,
    "grpc.enable_http_proxy": 0,
    "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
    "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
}
"""Options by name of the channel of a training process to its agent, which is on the same host."""


def server_options(request_bytes: int = REQUEST_BYTES) -> dict[str, int]:
    """Return the options of a server by name.

    Args:
        request_bytes: Maximum size of a request message.
    """
    return {
        **_COMMON,
        "grpc.max_receive_message_length": request_bytes,
        "grpc.max_metadata_size": MAX_REQUEST_METADATA_BYTES,
        # With port reuse, two services on one port would silently share its connections.
        "grpc.so_reuseport": 0,
        # Two pings within 5 s of each other are tolerated; the third ends the connection. Clients of Hopyard ping every 10 s.
        "grpc.http2.min_ping_interval_without_data_ms": KEEPALIVE_MS // 2,
        "grpc.http2.max_ping_strikes": 2,
        "grpc.max_allowed_incoming_connections": MAX_CONNECTIONS,
        "grpc.server_handshake_timeout_ms": 10_000,
    }
