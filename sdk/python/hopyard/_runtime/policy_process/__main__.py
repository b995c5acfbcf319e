"""Main of a policy process that the scheduler starts: `python -P -m hopyard._runtime.policy_process POLICY SOCKET PARENT FOLDER...`.

The process runs the policy POLICY for one experiment. It communicates with the scheduler over the inherited socket with the file
descriptor SOCKET, and ends with the process whose id is PARENT. The policy's module is searched in Python's search path, and then
in the folders.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from hopyard._common.plugins import PluginError
from hopyard._runtime.policy_process.frames import framed, received
from hopyard._runtime.policy_process.instance import Instance, Make, reviewed
from hopyard._runtime.runner.watchdog import die_with
from hopyard.errors import InvalidInput
from hopyard.policy.base import Policy
from hopyard.policy.factory import new_policy
from hopyard.v1 import policy_pb2 as pb


def main() -> None:
    """Run the policy process that the command line describes, until the scheduler closes the socket."""
    policy, number, parent, folders = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    die_with(parent)
    logging.basicConfig(format="%(levelname)s %(message)s")
    os.set_inheritable(number, False)
    add_to_search_path(folders)
    sys.argv[1:] = []
    with socket.socket(fileno=number) as line, suppress(BrokenPipeError, ConnectionResetError):
        serve(line, policy, lambda parameters: _made(policy, parameters))


def add_to_search_path(folders: Iterable[str]) -> None:
    """Append folders to Python's search path, so that files in them do not hide installed modules."""
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]


def serve(line: socket.socket, name: str, make: Make) -> None:
    """Answer the scheduler's messages on a socket until the scheduler closes it.

    An error of the policy is sent in the answer and does not end the loop.

    Args:
        line: The socket, connected to the scheduler.
        name: Name of the policy, as on the command line; used in the first message and in errors.
        make: Creates the policy from its parameters.
    """
    instance = Instance(make)
    _send(line, pb.DriveRequest(hello=instance.hello(name)))
    for message in received(line):
        response = pb.DriveResponse.FromString(message)
        match response.WhichOneof("message"):
            case "up_call":
                _send(line, pb.DriveRequest(answer=instance.answer(response.up_call)))
            case "review":
                _send(line, pb.DriveRequest(reviewed=reviewed(make, response.review, f"policy {name}: ")))
            case "welcome":
                instance.welcome(response.welcome)


def _made(name: str, parameters: Mapping[str, Any]) -> Policy:
    try:
        return new_policy(name, parameters)
    except PluginError as error:
        raise InvalidInput(f"policy: {error}") from error


def _send(line: socket.socket, message: pb.DriveRequest) -> None:
    line.sendall(framed(message.SerializeToString()))


if __name__ == "__main__":
    main()
