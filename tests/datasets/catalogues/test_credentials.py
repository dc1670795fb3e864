"""Credentials are read from files, and no message contains them."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from apps.datasets.catalogues.base import SignInNeeded
from apps.datasets.catalogues.credentials import (
    Credentials,
    Token,
    read_credentials,
    token_with_expiry,
)

NOW = datetime(2026, 11, 4, 9, 0, tzinfo=UTC)


def test_a_file_may_contain_only_a_token(tmp_path):
    path = tmp_path / "token"
    path.write_text("abc.def\n")
    assert read_credentials(str(path)) == Credentials(token="abc.def")
    assert read_credentials("") == Credentials()


def test_a_file_may_name_user_and_password_or_files(tmp_path):
    path, other = tmp_path / "credential", tmp_path / "other"
    other.write_text("token-in-a-file\n")
    path.write_text(json.dumps({"user": "exapro", "password": "pässword"}))
    assert read_credentials(str(path)) == Credentials(user="exapro", password="pässword")
    path.write_text(json.dumps({"token_file": str(other)}))
    assert read_credentials(str(path)).token == "token-in-a-file"
    path.write_text(json.dumps({"certificate": str(other), "key": str(other)}))
    assert read_credentials(str(path)).certificate == str(other)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "hunter2 hunter2",
        "hunter2\nhunter2",
        '{"password": "hunter2"',
        '{"password": ["hunter2"]}',
        '{"passwort": "hunter2"}',
        '{"password": "hunter2\\nX-Header: 1"}',
        '{"token": "hunter2 "}',
        '{"certificate": "/nonexistent", "password": "hunter2"}',
        "{}",
        "hunter2ü",
    ],
)
def test_a_bad_file_is_refused_without_showing_it(tmp_path, content):
    path = tmp_path / "credential"
    path.write_text(content)
    with pytest.raises(SignInNeeded) as refusal:
        read_credentials(str(path))
    assert "hunter2" not in str(refusal.value)


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path):
    path = tmp_path / "credential"
    with pytest.raises(SignInNeeded, match="No such file"):
        read_credentials(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SignInNeeded, match="not text"):
        read_credentials(str(path))


def test_secrets_are_not_represented():
    credentials = Credentials(token="hunter2", user="exapro", password="hunter2")
    assert "hunter2" not in repr(credentials)
    assert "hunter2" not in repr(Token("hunter2", NOW, NOW))


def test_a_token_is_renewed_at_80_percent_of_its_life():
    token = token_with_expiry("opaque", at=NOW, default_life=timedelta(hours=1))
    assert not token.is_due(NOW + timedelta(minutes=47))
    assert token.is_due(NOW + timedelta(minutes=48))


def test_the_expiry_of_a_jwt_is_in_it():
    claims = json.dumps({"exp": (NOW + timedelta(days=7)).timestamp()}).encode()
    jwt = "e30." + base64.urlsafe_b64encode(claims).decode().rstrip("=") + ".sig"
    token = token_with_expiry(jwt, at=NOW, default_life=timedelta(hours=1))
    assert token.expires_at == NOW + timedelta(days=7)
    for broken in ("a.b.c", "e30.e30.x", "e30.bnVsbA.x", "no"):
        token = token_with_expiry(broken, at=NOW, default_life=timedelta(hours=1))
        assert token.expires_at == NOW + timedelta(hours=1)
