"""Tests of PyTorch gangs on several hosts. The hosts are network namespaces, in which the host's own name is a loopback address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hopyard.torch import network
from tests.conftest import require_system_package
from tests.timing import HANG_SECONDS

RANK = """
import sys
from pathlib import Path

import torch

from hopyard.torch.gang import TorchGang
from hopyard.trainer import TrainerContext

rank = int(sys.argv[1])
context = TrainerContext(seed=1, scratch=Path(), rank=rank, world_size=2, addresses=("10.77.0.1", "10.77.0.2"))
gang = TorchGang(context, torch.device("cpu"), float(sys.argv[3]))
(Path(sys.argv[2]) / f"rank{rank}").write_text(str(gang.summed({"rank": rank + 1.0})["rank"]))
gang.close()
"""

TWO_HOSTS = """
set -e
ip link set lo up
unshare -n sleep "$4" & other=$!
trap 'kill $other' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add va type veth peer name vb netns $other
ip addr add 10.77.0.1/24 dev va
ip link set va up
nsenter -t $other -n sh -c 'ip link set lo up; ip addr add 10.77.0.2/24 dev vb; ip link set vb up'
nsenter -t $other -n "$1" "$2" 1 "$3" "$4" & rank=$!
"$1" "$2" 0 "$3" "$4"
wait $rank
"""

APART = ("unshare", "-rn", "sh", "-c")


@pytest.fixture
def apart() -> None:
    """Skips the test where this computer does not allow network namespaces."""
    for package, tool in (("util-linux", "unshare"), ("util-linux", "nsenter"), ("iproute2", "ip")):
        require_system_package(package, tool)
    made = subprocess.run(
        [*APART, "ip link add va type veth peer name vb"], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")


@pytest.mark.usefixtures("apart")
def test_ranks_on_several_hosts_meet_whatever_their_hosts_call_themselves(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    environment = os.environ | {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}
    command = [*APART, TWO_HOSTS, "sh", sys.executable, str(tmp_path / "rank.py"), str(tmp_path), str(HANG_SECONDS)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert found.returncode == 0, found.stderr
    assert [(tmp_path / name).read_text() for name in ("rank0", "rank1")] == ["3.0", "3.0"]


def test_nothing_is_said_where_all_ranks_are_on_one_host_or_the_user_has_said_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "interface_to", lambda host: f"to {host}")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)

    def said(addresses: tuple[str, ...]) -> str | None:
        with network.reachable(addresses, 1):
            return os.environ.get("GLOO_SOCKET_IFNAME")

    assert said(("10.0.0.1", "10.0.0.1")) is None
    assert said(("10.0.0.1", "10.0.0.2")) == "to 10.0.0.1"
    assert said(()) is None
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    assert said(("10.0.0.1", "10.0.0.2")) == "ib0"


def test_a_loopback_interface_is_none() -> None:
    assert network.interface_to("127.0.0.1") is None
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    assert any("127.0.0.1" in map(str, network._addresses(name)) for name in loopback)
