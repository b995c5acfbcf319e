"""The client side of RPCs: channels whose calls raise `hopyard.errors`, retries, and converters between Python and protobuf."""

from hopyard._net.rpc.channel import DEFAULT_TIMEOUT_SECONDS, Channel, channel
from hopyard._net.rpc.options import MAX_MESSAGE_BYTES
from hopyard._net.rpc.retry import Backoff, retry

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "MAX_MESSAGE_BYTES", "Backoff", "Channel", "channel", "retry"]
