"""The client side of every RPC: channels that raise `hopyard.errors`, retries, and converters of the shared words."""

from hopyard._net.rpc.channel import DEFAULT_TIMEOUT_SECONDS, MAX_MESSAGE_BYTES, Channel, channel
from hopyard._net.rpc.retry import Backoff, retry

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "MAX_MESSAGE_BYTES", "Backoff", "Channel", "channel", "retry"]
