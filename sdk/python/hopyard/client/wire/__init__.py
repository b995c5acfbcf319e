"""The client's side of the RPCs: channels to the services, and converters between messages and the client's types."""
