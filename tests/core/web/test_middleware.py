"""Malformed and large requests, the address of the client, and caching."""

import logging

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse

from apps.core.domain.secrets.log_redaction import RedactingFormatter
from apps.core.web.middleware import TrustedProxyMiddleware, UntrustedProxyMiddleware

LARGE = 2_621_441


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": 'sessionid="\\000aaaaaaaaaaaa"'},
        {"cookie": 'messages="a\\000"'},
        {"authorization": "Token éééééééé"},
        {"authorization": "Token \0aaaaaaaaaaaaaaaa"},
    ],
)
def test_what_no_browser_sends_is_refused(client, db, headers):
    assert client.get("/api/v1/requests/", headers=headers).status_code == 400


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("10.0.0.1, 203.0.113.7", "203.0.113.7"),  # who sends it can write only the first ones
        ("2001:db8::1", "2001:db8::1"),
        ("unknown", "192.0.2.1"),
        ("", "192.0.2.1"),
    ],
)
def test_trusted_proxy_tells_the_address(forwarded, address):
    request = RequestFactory().get(
        "/", REMOTE_ADDR="192.0.2.1", headers={"x-forwarded-for": forwarded}
    )
    TrustedProxyMiddleware(lambda request: HttpResponse())(request)
    assert request.META["REMOTE_ADDR"] == address


@pytest.fixture
def no_parsing(monkeypatch):
    """Fail if anything parses a form."""

    def fail(self):
        raise AssertionError("a form was parsed")

    monkeypatch.setattr("django.core.handlers.wsgi.WSGIRequest._load_post_and_files", fail)


@pytest.mark.parametrize(
    "path", ["/accounts/login/", "/requests/import/", "/api/v1/requests/", "/admin/login/"]
)
def test_large_body_is_refused_before_it_is_parsed(client, liaison, no_parsing, path):
    client.force_login(liaison)
    sent = client.post(
        path, b"", content_type="multipart/form-data; boundary=x", CONTENT_LENGTH=str(LARGE)
    )
    assert sent.status_code == 413
    assert "at most 2,621,440 bytes" in sent.content.decode()


@pytest.mark.parametrize("path", ["/accounts/login/", "/api/v1/requests/"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}, 411),
        ({"CONTENT_LENGTH": "-1"}, 400),
        ({"CONTENT_LENGTH": "9" * 5000}, 413),
    ],
)
def test_body_without_a_credible_length_is_refused(client, db, no_parsing, path, headers, status):
    assert (
        client.post(
            path, b"x", content_type="multipart/form-data; boundary=x", **headers
        ).status_code
        == status
    )


def test_stranger_has_no_form_parsed_behind_the_login(db, no_parsing):
    client = Client(enforce_csrf_checks=True)
    sent = client.post(reverse("production:request-import"), {"file": "x" * 1000})
    assert sent.status_code == 302
    assert sent["Location"].startswith("/accounts/login/")


def test_form_without_its_token_is_refused(liaison):
    client = Client(enforce_csrf_checks=True)
    client.force_login(liaison)
    assert client.post(reverse("production:request-import"), {"text": "x"}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/requests/", "/accounts/settings/", "/requests/NOVA-9999/"])
def test_pages_of_users_are_not_stored(client, liaison, path):
    client.force_login(liaison)
    assert client.get(path)["Cache-Control"] == "private, no-store"


def test_lost_role_is_noticed_behind_an_etag(client, nova, liaison):
    from apps.accounts.domain.roles import revoke_role
    from tests.factories.requests import AT, draft

    url = f"/api/v1/requests/{draft(liaison, nova).key}/"
    client.force_login(liaison)
    tag = client.get(url)["ETag"]
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304
    revoke_role(membership=liaison.memberships.get(), by="test", at=AT)
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 404


def test_proxy_that_is_not_trusted_is_reported_once(caplog):
    middleware = UntrustedProxyMiddleware(lambda request: HttpResponse(request.META["REMOTE_ADDR"]))
    plain = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    forwarded = RequestFactory().get(
        "/", REMOTE_ADDR="192.0.2.1", headers={"x-forwarded-for": "203.0.113.7"}
    )
    assert middleware(plain).content == b"192.0.2.1"
    assert not caplog.records
    assert [middleware(forwarded).content for _ in range(2)] == [b"192.0.2.1"] * 2
    assert [record.message.partition(".")[0] for record in caplog.records] == [
        "A request has X-Forwarded-For or X-Forwarded-Proto, but TRUST_PROXY is not set"
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Not Found: /feeds/7-Zm9vYmFy:1w/inbox.atom", "Not Found: /feeds/[secret]/inbox.atom"),
        ('"GET /feeds/7-Zm9v?x=1 HTTP/1.1" 404', '"GET /feeds/[secret]?x=1 HTTP/1.1" 404'),
        ("Gone: /accounts/password/new/Mg/cabc-123/", "Gone: /accounts/password/new/Mg/[secret]/"),
        ("Not Found: /api/v1/feeds/farm/", "Not Found: /api/v1/feeds/farm/"),
    ],
)
def test_secret_urls_stay_out_of_logs(line, shown):
    record = logging.LogRecord("django.request", logging.WARNING, "", 0, "%s", (line,), None)
    assert RedactingFormatter("%(message)s").format(record) == shown


def test_secret_urls_stay_out_of_tracebacks():
    try:
        raise ValueError("cannot write /feeds/secret/inbox.atom")
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "failed", (), (ValueError, error, error.__traceback__)
        )
    assert "/feeds/secret" not in RedactingFormatter().format(record)
