"""A form that is sent after its login ended: what was typed is kept,
and sent again after the next login.
"""

import re
from html import unescape

import pytest
from django.test import Client

from apps.production.models import Request
from apps.production.web.forms.request import typed
from tests.factories.requests import content

NEW = "/requests/new/"
OWN = {"Origin": "http://testserver"}


@pytest.fixture
def client():
    return Client(enforce_csrf_checks=True)


def sent() -> dict:
    return dict(typed(content(title='Muons "and" <b>'), experiment="NOVA").lists()) | {"do": "save"}


def fields_of(page) -> list[tuple[str, str]]:
    form = (
        page.content.decode().partition(f'method="post" action="{NEW}">')[2].partition("</form>")[0]
    )
    return [
        (name, unescape(value))
        for name, value in re.findall(r'name="([^"]*)" value="([^"]*)"', form)
    ]


def posted(pairs) -> dict:
    data: dict[str, list[str]] = {}
    for name, value in pairs:
        data.setdefault(name, []).append(value)
    return data


def test_input_is_kept_over_the_next_login_and_sent_again(nova, liaison, client):
    refused = client.post(NEW, sent(), headers=OWN)
    assert refused.status_code == 403
    assert "You are logged out." in refused.content.decode()
    client.force_login(liaison)
    # The token is from before the login.
    again = client.post(NEW, posted(fields_of(refused)), headers=OWN)
    assert again.status_code in {302, 403}
    if again.status_code == 403:
        assert "Your login changed after the page was loaded." in again.content.decode()
        again = client.post(NEW, posted(fields_of(again)), headers=OWN)
    assert again["Location"] == "/requests/NOVA-0001/edit/"
    made = Request.objects.get()
    assert (made.title, made.stages.count()) == ('Muons "and" <b>', 2)


def test_refused_token_shows_the_input_and_saves_nothing(nova, liaison, client):
    client.force_login(liaison)
    page = client.post(NEW, sent() | {"csrfmiddlewaretoken": "x" * 32}, headers=OWN)
    assert (page.status_code, Request.objects.count()) == (403, 0)
    assert ("title", 'Muons "and" <b>') in fields_of(page)
    labels = re.findall("<dt>(.*?)</dt>", page.content.decode())
    assert {"Title", "Stages 1: name", "Stages 2: output dataset"} <= set(labels)
    assert not [
        label for label in labels if label in {"Do", "Form key", "Version"} or "FORMS" in label
    ]
    assert "x" * 32 not in page.content.decode()


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example.org"}, {}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_input_of_other_sites_is_not_offered_again(headers, nova, liaison, client):
    assert client.post(NEW, sent(), headers=headers)["Location"].startswith("/accounts/login/")
    client.force_login(liaison)
    page = client.post(NEW, sent(), headers=headers)
    assert page.status_code == 403
    assert "Muons" not in page.content.decode()
    assert "reload the page" in page.content.decode()


def test_passwords_are_not_written_into_a_page(client, liaison):
    page = client.post(
        "/accounts/login/", {"username": "x", "password": "very secret"}, headers=OWN
    )
    assert page.status_code == 403
    assert "very secret" not in page.content.decode()


def test_scripts_are_sent_to_the_login(client, nova):
    for headers in ({"HX-Request": "true"}, {"Sec-Fetch-Mode": "cors"}):
        assert client.post(NEW, sent(), headers=OWN | headers).status_code == 302
