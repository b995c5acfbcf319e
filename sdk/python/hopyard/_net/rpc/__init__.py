"""The client side of RPCs: channels that raise `hopyard.errors`, retries, and converters of shared types."""

from hopyard._net.rpc.channel import DEFAULT_TIMEOUT_SECONDS, MAX_MESSAGE_BYTES, Channel, channel
from hopyard._net.rpc.retry import Backoff, retry

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "MAX_MESSAGE_BYTES", "Backoff", "Channel", "channel", "retry"]
