"""Tests of the table of permissions, and of the limits for one caller."""

from __future__ import annotations

import itertools

import pytest

from hopyard._net.auth import AccessControl, CallerKind, Principal, current_principal
from hopyard._net.auth.access_control import MOST_CALLS
from hopyard._net.auth.permissions import OPEN, PERMISSIONS
from hopyard.errors import Exhausted, PermissionDenied, Unauthenticated
from tests.access import AcceptEveryone

pytestmark = pytest.mark.quick

LIMITED = [kind for kind in MOST_CALLS if kind is not None]
ANY = ["Bearer any"]
STATUS = "/hopyard.v1.ExperimentService/GetCluster"


@pytest.mark.parametrize(
    "method",
    [
        "AppStatService/AppendJournal",
        "AppStatService/BeginEpoch",
        "AppStatService/DeleteBlobs",
        "AppStatService/ImportJournal",
        "AppStatService/ReplaceProjections",
        "CatalogService/PutDataSet",
        "HyperparameterGeneratorService/OpenGenerator",
    ],
)
def test_only_the_scheduler_writes_the_journal_and_deletes_blobs(method: str) -> None:
    assert PERMISSIONS[f"/hopyard.v1.{method}"] == {CallerKind.SERVICE}


def test_only_health_checks_are_open() -> None:
    assert {method.rpartition("/")[0] for method in OPEN} == {"/grpc.health.v1.Health"}
    assert not OPEN & set(PERMISSIONS)


def test_training_processes_and_holders_of_tickets_call_nothing_but_their_agent() -> None:
    for kind, service in ((CallerKind.RUN, "ApplicationService"), (CallerKind.TICKET, "NodeAgentService")):
        found = {method for method, kinds in PERMISSIONS.items() if kind in kinds}
        assert {method.split("/")[1] for method in found} == {f"hopyard.v1.{service}"}
        assert all(PERMISSIONS[method] == {kind} for method in found)


@pytest.mark.parametrize("kind", list(CallerKind))
def test_the_table_decides_for_each_kind_of_caller(kind: CallerKind) -> None:
    for method, kinds in PERMISSIONS.items():
        control = AccessControl(AcceptEveryone(kind, method.rpartition("/")[2]))
        if kind in kinds:
            with control.admit(method, ANY):
                assert current_principal().kind is kind
        else:
            with pytest.raises(PermissionDenied, match=f"found a token of the kind {kind}"):
                control.authorize(method, ANY)
    with pytest.raises(PermissionDenied, match="only in an authenticated call"):
        current_principal()


def test_a_method_without_an_entry_is_denied_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    for kind in CallerKind:
        with pytest.raises(PermissionDenied, match="nobody may call this method"):
            AccessControl(AcceptEveryone(kind)).authorize("/hopyard.v1.NewService/Act", ANY)
    assert "is not in the table of permissions" in caplog.text


@pytest.mark.parametrize(
    "authorization",
    [
        [],
        [""],
        ["any"],
        ["bearer any"],
        ["Basic any"],
        ["Bearer any", "Bearer any"],
        ["Bearer  "],
        ["Bearer hop_user_00000000_" + "a" * 43],
    ],
)
def test_without_one_valid_token_every_call_gets_the_same_error(authorization: list[str]) -> None:
    class OnlyGood:
        def authenticate(self, token: str) -> Principal | None:
            return Principal(CallerKind.USER, "x") if token in ("good", "any") else None

    control, texts = AccessControl(OnlyGood()), set()
    for method in (*PERMISSIONS, "/unknown/Method"):
        with pytest.raises(Unauthenticated) as error:
            control.authorize(method, authorization)
        texts.add(str(error.value))
    assert len(texts) == 1
    with pytest.raises(Unauthenticated) as error:
        control.authorize(STATUS, [])
    assert texts == {str(error.value)}


@pytest.mark.parametrize(("kind", "streaming"), list(itertools.product(LIMITED, (False, True))))
def test_the_calls_of_one_caller_are_limited(kind: CallerKind, streaming: bool) -> None:
    control = AccessControl(AcceptEveryone(kind))
    one, other = Principal(kind, "one", "scope"), Principal(kind, "other")
    limit = MOST_CALLS[kind][streaming]
    for _ in range(limit):
        control.begin(one, streaming=streaming)
    with pytest.raises(Exhausted, match=rf"the token of {kind} one has {limit} (calls|streams)"):
        control.begin(Principal(kind, "one", "other scope"), streaming=streaming)
    control.begin(one, streaming=not streaming)
    control.begin(other, streaming=streaming)
    control.end(one, streaming=streaming)
    control.begin(one, streaming=streaming)
    with pytest.raises(Exhausted):
        control.begin(one, streaming=streaming)


def test_services_have_no_limit() -> None:
    control = AccessControl(AcceptEveryone())
    for _ in range(2000):
        control.begin(Principal(CallerKind.SERVICE, "x"), streaming=True)


def test_all_agents_of_a_large_cluster_can_share_a_token() -> None:
    assert MOST_CALLS[CallerKind.NODE] == (4096, 1024)


def test_callers_without_a_token_share_a_limit_that_leaves_room_for_others() -> None:
    control = AccessControl(AcceptEveryone())
    for _ in range(MOST_CALLS[None][True]):
        control.begin(None, streaming=True)
    with pytest.raises(Exhausted, match="callers without a token have 64 streams"):
        control.begin(None, streaming=True)
    control.begin(Principal(CallerKind.USER, "one"), streaming=True)
