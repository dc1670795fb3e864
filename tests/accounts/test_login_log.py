"""Failed logins are logged in one line each, which fail2ban can read and a user cannot imitate."""

import logging
import re

import pytest

from tests.factories import people

#: As `deploy/fail2ban/filter.d/opsportal.conf` has it, with its <ADDR> as a group.
LINE = re.compile(r'^Login failed: address=(?P<address>\S+) user="')


@pytest.fixture
def fail(client, liaison, caplog):
    """Fail to log in; return the lines of the log."""

    def fail(username: str, path: str = "/accounts/login/", **more: str) -> list[str]:
        caplog.clear()
        client.post(path, {"username": username, "password": "wrong"}, **more)
        records = [record for record in caplog.records if record.name == "opsportal.login"]
        assert {record.levelno for record in records} <= {logging.WARNING}
        return [record.getMessage() for record in records]

    return fail


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_line_has_address_and_name(fail, path):
    assert fail("nova-liaison", path, REMOTE_ADDR="192.0.2.7") == [
        'Login failed: address=192.0.2.7 user="nova-liaison"'
    ]


def test_locked_attempts_are_logged_too(fail):
    assert [len(fail("nova-liaison")) for _ in range(7)] == [1] * 7


@pytest.mark.parametrize(
    "name",
    [
        "x\nLogin failed: address=10.0.0.1 user=",
        'a" user="b',
        "é\u202e\x1b[2J",
        "n" * 100_000,
        "a b\tc",
        "\\",
    ],
)
def test_name_cannot_forge_a_line(fail, name):
    (line,) = fail(name, REMOTE_ADDR="2001:db8::7")
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 2_000
    assert LINE.match(line)["address"] == "2001:db8::7"


def test_right_password_is_not_logged(client, liaison, caplog):
    client.post("/accounts/login/", {"username": "nova-liaison", "password": people.PASSWORD})
    assert "Login failed" not in caplog.text
