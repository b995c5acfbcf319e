"""Tests of tokens and of the authenticator that accepts them."""

from __future__ import annotations

import re

import pytest

from hopyard._net.auth import CallerKind, Principal, TokenAuthenticator, new_token
from hopyard._net.auth.secrets_folder import STORED
from hopyard._net.auth.tokens import digest, parse_token
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("kind", [*STORED, CallerKind.POLICY, CallerKind.RUN])
def test_a_token_names_its_kind_and_has_256_random_bits(kind: CallerKind) -> None:
    one, other = new_token(kind), new_token(kind)
    assert re.fullmatch(rf"hop_{kind}_[0-9a-f]{{8}}_[A-Za-z0-9_-]{{43}}", one.text)
    assert one.text != other.text
    assert parse_token(one.text) == one
    assert one.text not in repr(one)
    assert one.text not in f"{one!s} {[one]}"


@pytest.mark.parametrize(
    "text",
    ["", "hop_user", "hop_root_12345678_" + "a" * 43, "hop_user_12345678_" + "a" * 42, "hop_user_12345678_" + "ä" * 43],
)
def test_another_text_is_no_token_and_is_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput, match="found no token") as error:
        parse_token(text)
    assert not text or text not in str(error.value)
    assert TokenAuthenticator().authenticate(text) is None


def test_only_accepted_tokens_have_a_principal() -> None:
    tokens = TokenAuthenticator()
    mine, other = new_token(CallerKind.USER), new_token(CallerKind.USER)
    policy = new_token(CallerKind.POLICY)
    tokens.add(mine)
    tokens.add(policy, "started-1")
    assert tokens.authenticate(mine.text) == Principal(CallerKind.USER, mine.id)
    assert tokens.authenticate(policy.text) == Principal(CallerKind.POLICY, policy.id, "started-1")
    assert tokens.authenticate(other.text) is None
    secret = mine.text.rpartition(f"{mine.id}_")[2]
    for forged in (
        f"hop_user_{other.id}_{secret}",
        f"hop_service_{mine.id}_{secret}",
        mine.text[:-1] + ("a" if mine.text[-1] != "a" else "b"),
        mine.text + "\n",
        mine.text.upper(),
        f" {mine.text}",
    ):
        assert tokens.authenticate(forged) is None
    tokens.remove(mine)
    tokens.remove(mine)
    assert tokens.authenticate(mine.text) is None


def test_an_authenticator_stores_hashes_only() -> None:
    tokens, token = TokenAuthenticator(), new_token(CallerKind.NODE)
    tokens.add(token)
    stored = repr(vars(tokens))
    assert digest(token.text) in stored
    assert token.text not in stored
