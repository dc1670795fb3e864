"""Login by OpenID Connect at a provider that is slow or wrong: the portal refuses, in bounded time,
and serves on.
"""

import json
import subprocess
import threading
import time
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.accounts.web import openid
from apps.accounts.web import provider as calls
from tests.accounts.hostile_provider import DISCOVERY, KEYS, TOKEN, USER, hostile_provider
from tests.programs.certificates import self_signed
from tests.programs.dripping_server import HEADERS, PATIENCE_SECONDS, TLS_HANDSHAKE, dripping

START, CALLBACK = "/accounts/openid/", "/accounts/openid/callback/"


@pytest.fixture(scope="module")
def running_provider():
    with hostile_provider() as provider:
        yield provider


@pytest.fixture
def provider(running_provider, settings, db):
    """The portal as a client of a provider that answers well, until the test changes it."""
    settings.OIDC_ISSUER, settings.OIDC_RP_CLIENT_ID = running_provider.issuer, "portal"
    settings.OIDC_NAME = "Lab login"
    settings.AUTHENTICATION_BACKENDS = [
        "axes.backends.AxesStandaloneBackend",
        "django.contrib.auth.backends.ModelBackend",
        "apps.accounts.web.openid.OpenIDBackend",
    ]
    openid._documents.clear()
    running_provider.start_again()
    return running_provider


def log_in(client, provider):
    """Go to the provider and come back with a code;
    return the page and the user who is logged in.
    """
    question = parse_qs(urlsplit(client.get(START).headers.get("Location", "")).query)
    if "state" not in question:
        return client.get("/accounts/login/").text, ""
    provider.claims.setdefault("nonce", question["nonce"][0])
    page = client.get(CALLBACK, {"code": "c", "state": question["state"][0]}, follow=True)
    key = client.session.get("_auth_user_id")
    return page.text, User.objects.get(pk=key).username if key else ""


def test_good_answers_log_in(client, provider):
    assert log_in(client, provider)[1] == "ann"
    assert User.objects.get().sign_on_subject == f"{provider.issuer} s-1"


LONG_AGO = 1
IN_300_YEARS = 9_999_999_999


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of another login"},
        {"nonce": None},
        {"exp": LONG_AGO},
        {"exp": None},
        {"iat": IN_300_YEARS},
        {"iss": "https://evil.example.org"},
        {"aud": "another program"},
        {"aud": ["portal", "another program"], "azp": "another program"},
        {"sub": "s-2"},
        {"sub": "s" * 256},
        {"sub": ""},
    ],
    ids=str,
)
def test_token_of_another_login_program_user_or_time_is_refused(client, provider, claims):
    provider.claims = claims
    page, username = log_in(client, provider)
    assert username == ""
    assert "did not succeed" in page or "another user" in page
    assert not User.objects.exists()


@pytest.mark.parametrize("algorithm", ["another key", "HS256", "none"])
def test_forged_token_is_refused(client, provider, algorithm):
    provider.key = {"HS256": "secret" * 8, "none": None}.get(
        algorithm, rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    provider.algorithm = algorithm if algorithm in {"HS256", "none"} else "RS256"
    page, username = log_in(client, provider)
    assert username == ""
    assert "did not succeed" in page


@pytest.mark.parametrize(
    ("changes", "username"),
    [
        ({}, "ann"),
        ({"aud": "another program"}, ""),
        ({"iss": "https://evil.example.org"}, ""),
        ({"sub": "s-2"}, ""),
        ({"exp": LONG_AGO}, ""),
    ],
    ids=str,
)
def test_signed_user_information_is_checked(client, provider, changes, username):
    """Keycloak signs it for clients that choose so, without an expiry."""
    claims = {"iss": provider.issuer, "aud": "portal", "sub": "s-1", "preferred_username": "ann"}
    provider.answers[USER] = provider.signed(claims | changes).encode()
    assert log_in(client, provider)[1] == username


def test_user_information_does_not_change_the_issuer(client, provider):
    provider.answers[USER] = (
        b'{"sub": "s-1", "preferred_username": "ann", "iss": "https://evil.example.org"}'
    )
    log_in(client, provider)
    assert User.objects.get().sign_on_subject == f"{provider.issuer} s-1"


@pytest.mark.parametrize(
    "address", ["ann@example.org\nBcc: all@example.org", "ann", "a" * 300 + "@example.org", 5]
)
def test_mail_address_that_is_none_is_ignored(client, provider, address):
    user = {"sub": "s-1", "preferred_username": "ann", "email": address}
    provider.answers[USER] = json.dumps(user).encode()
    assert log_in(client, provider)[1] == "ann"
    assert User.objects.get().email == ""


def test_code_that_the_provider_refuses_is_no_outage(client, provider):
    client.get(START)
    provider.status = 400
    assert "did not succeed" in log_in(client, provider)[0]


@pytest.mark.parametrize(("contact", "help_"), [("", "."), ("a@b.org", ": a@b.org.")])
@pytest.mark.parametrize(
    ("code", "is_named"),
    [("invalid_client", True), ("unauthorized_client", True), ("invalid_grant", False)],
)
def test_wrong_secret_of_the_portal_is_named(
    client, provider, settings, code, is_named, contact, help_
):
    """Keycloak answers `unauthorized_client`. Another try of the user would not help."""
    settings.SUPPORT_CONTACT = contact
    provider.answers[TOKEN] = json.dumps({"error": code}).encode()
    provider.statuses[TOKEN] = 401
    page, username = log_in(client, provider)
    assert username == ""
    assert ("Lab login rejects the portal: its client ID or secret is wrong." in page) == is_named
    assert ("did not succeed. Try again." in page) != is_named
    assert not is_named or f"Contact an admin of the portal{help_}" in page


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"\xff", b'{"error": ["invalid_client"]}'])
def test_rejection_without_a_code_is_no_fault_of_the_portal(client, provider, body):
    provider.answers[TOKEN] = body
    provider.statuses[TOKEN] = 401
    assert "did not succeed. Try again." in log_in(client, provider)[0]


def test_browser_is_not_sent_to_a_provider_that_is_down(client, provider, monkeypatch):
    """It would show an error of the browser, not the page where passwords go on."""
    assert log_in(client, provider)[1] == "ann"
    client.logout()
    provider.statuses[DISCOVERY] = 503
    assert "Lab login does not answer" not in log_in(client, provider)[0]  # it answered just now
    client.logout()

    monkeypatch.setattr(openid, "KEPT_BEFORE_LOGIN", 0)
    answer = client.get(START, follow=True)
    assert answer.redirect_chain == [("/accounts/login/", 302)]
    assert "Lab login does not answer" in answer.text


def test_issuer_that_the_provider_does_not_know_is_no_failed_login(client, provider):
    """Keycloak answers 404 for a realm that does not exist, 403 for one that is disabled."""
    for status in (404, 403):
        provider.statuses[DISCOVERY] = status
        answer = client.get(START, follow=True)
        assert "Lab login does not answer. Try again later." in answer.text


RUBBISH = [
    b"",
    b"<html>",
    b"[]",
    b"5",
    b"null",
    b"\xff",
    b"[" * 100_000,
    b'{"a": "' + b"x" * 1_000_000 + b'"}',
]


@pytest.mark.parametrize("path", [DISCOVERY, TOKEN, KEYS, USER])
@pytest.mark.parametrize("body", RUBBISH, ids=lambda body: repr(body[:8]))
def test_answer_that_is_no_openid_connect_is_refused(client, provider, path, body):
    provider.answers[path] = body
    page, username = log_in(client, provider)
    assert (username, "Lab login does not answer" in page) == ("", True)
    assert not User.objects.exists()


@pytest.mark.parametrize("name", ["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "value", [None, 5, "", "javascript:alert(1)", ["https://a.example.org"]], ids=str
)
def test_discovery_without_an_address_is_refused(client, provider, name, value):
    provider.answers[DISCOVERY] = json.dumps(
        provider._good_answer(DISCOVERY) | {name: value}
    ).encode()
    page, username = log_in(client, provider)
    assert (username, "Lab login does not answer" in page) == ("", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (TOKEN, ["id_token", "access_token"]),
        (KEYS, ["keys"]),
        (
            USER,
            ["sub", "preferred_username", "groups", "email", "email_verified", "given_name", "iss"],
        ),
    ],
)
def test_no_value_in_an_answer_is_an_error_of_the_portal(provider, path, names):
    @hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data):
        provider.start_again()
        answer = dict.fromkeys(names)
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1)):
            answer[name] = data.draw(JSON)
        if path == KEYS:
            answer["keys"] = [
                answer["keys"],
                {"kty": "RSA", "n": answer["keys"], "e": answer["keys"]},
            ]
        if path == USER:
            answer["sub"] = "s-1"
        provider.answers[path] = json.dumps(answer).encode()
        page, _ = log_in(Client(), provider)
        assert "Internal error" not in page

    check()


SLOW = {
    "silence": [b""] * 20,
    "headers": [b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * 20],
    "body": [b"HTTP/1.1 200 OK\r\n\r\n{}", *[b" "] * 20],
}


@pytest.mark.parametrize("kind", SLOW)
def test_slow_answer_is_given_up(client, provider, settings, kind):
    settings.OIDC_TIMEOUT = 1
    provider.answers[DISCOVERY] = SLOW[kind]
    start = time.monotonic()
    assert "Lab login does not answer" in log_in(client, provider)[0]
    assert time.monotonic() - start < 8  # of the 10 s that it drips


@pytest.mark.parametrize("store", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_authorities_of_the_system_are_trusted_and_no_others(tmp_path, monkeypatch, store):
    """A lab's provider may have a certificate of the lab's own authority."""
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    certificate = self_signed(tmp_path, "IP:127.0.0.1")
    authorities = tmp_path / "authorities"
    authorities.mkdir()
    command = ["openssl", "x509", "-hash", "-noout", "-in", certificate[0]]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (authorities / f"{name}.0").symlink_to(certificate[0])
    with hostile_provider(certificate) as provider:
        address = provider.issuer + DISCOVERY
        with pytest.raises(calls.NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
            calls.call("GET", address)

        if store == "SSL_CERT_DIR":
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
        monkeypatch.setenv(store, str(authorities if store == "SSL_CERT_DIR" else certificate[0]))
        assert calls.call("GET", address).json()["issuer"] == provider.issuer


def test_tls_handshake_that_drips_is_given_up(settings):
    settings.OIDC_TIMEOUT = 0.5
    start = time.monotonic()
    with dripping(TLS_HANDSHAKE) as port, pytest.raises(calls.NoAnswer):
        calls.call("GET", f"https://127.0.0.1:{port}/")
    assert time.monotonic() - start < PATIENCE_SECONDS


def test_proxy_that_drips_before_the_tls_handshake_is_given_up(settings):
    settings.OIDC_TIMEOUT = 0.5
    start = time.monotonic()
    with dripping(HEADERS) as port, pytest.raises(calls.NoAnswer):
        calls.call(
            "GET", "https://provider.example.org/", proxies={"https": f"http://127.0.0.1:{port}"}
        )
    assert time.monotonic() - start < PATIENCE_SECONDS


def test_connection_that_opens_late_is_cut_at_once(settings, monkeypatch):
    """Name servers and addresses that are down take their time before the connection."""
    settings.OIDC_TIMEOUT = 0.5
    connect = urllib3.util.connection.create_connection

    def connect_late(*args, **options):
        time.sleep(1)
        return connect(*args, **options)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", connect_late)
    start = time.monotonic()
    with dripping(HEADERS) as port, pytest.raises(calls.NoAnswer):
        calls.call("GET", f"http://127.0.0.1:{port}/")
    assert time.monotonic() - start < PATIENCE_SECONDS


@pytest.mark.parametrize("path", [DISCOVERY, TOKEN, KEYS, USER])
def test_redirect_is_not_followed(client, provider, path):
    """The call of the token has the portal's secret,
    that of the user information the user's token.
    """
    provider.answers[path] = [
        f"HTTP/1.1 307 Go\r\nLocation: {provider.issuer}/elsewhere\r\n\r\n".encode()
    ]
    log_in(client, provider)
    assert "/elsewhere" not in provider.calls


def test_few_logins_at_a_time_wait_for_a_provider_that_hangs(provider, settings):
    """Strangers can start logins: they must not take all threads of the web server."""
    settings.OIDC_TIMEOUT = 3
    provider.answers[DISCOVERY] = SLOW["silence"]
    durations = []

    def start_login():
        start = time.monotonic()
        with pytest.raises(calls.NoAnswer):
            openid.discovery()
        durations.append(time.monotonic() - start)

    threads = [threading.Thread(target=start_login) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(duration > 2 for duration in durations) == calls.MOST_CALLS
    assert len(provider.calls) == calls.MOST_CALLS
