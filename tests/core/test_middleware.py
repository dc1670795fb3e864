"""What no request may hold, and whom a request is from."""

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from apps.core.web.middleware import TrustedProxyMiddleware


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
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", headers={"x-forwarded-for": forwarded})
    TrustedProxyMiddleware(lambda request: HttpResponse())(request)
    assert request.META["REMOTE_ADDR"] == address
