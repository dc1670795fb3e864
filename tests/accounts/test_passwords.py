"""Users change their own password, and get a link for a new one by mail."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.domain import passwords
from apps.accounts.domain.passwords import RESET_PAUSE, request_password_reset
from apps.accounts.tasks import mail_password_link
from apps.core.domain.events import events_of
from tests.factories import people

NEW = "an entirely different sentence"
FORGOTTEN = "/accounts/password/forgotten/"


@pytest.fixture
def mailed(liaison, settings, mailoutbox, monkeypatch):
    """Mail goes out at once; `nova-liaison` has an address."""
    settings.EMAIL_HOST = "mail.example.org"
    liaison.email = "nova@example.org"
    liaison.save()
    monkeypatch.setattr(
        passwords, "enqueue", lambda _task, user_id: mail_password_link(user_id=user_id)
    )
    return mailoutbox


def log_in(client, password: str):
    return client.post("/accounts/login/", {"username": "nova-liaison", "password": password})


def link_in(mail) -> str:
    return re.search(r"http://localhost:8000(\S+)", mail.body)[1]


def test_first_mail_of_an_account_tells_of_the_account(liaison, mailed):
    now = timezone.now()
    request_password_reset(user=liaison, at=now)
    (mail,) = mailed
    assert mail.subject == "[opsportal] Your account on opsportal"
    assert "you have an account on opsportal" in mail.body
    assert "did not request" not in mail.body
    assert link_in(mail)

    liaison.last_login = now
    liaison.save()
    request_password_reset(user=liaison, at=now + RESET_PAUSE + timedelta(seconds=1))
    assert mailed[1].subject == "[opsportal] Choose a new password"
    assert "If you did not request it" in mailed[1].body


def test_settings_lead_to_the_change_which_ends_other_sessions(client, liaison, django_user_model):
    other = client.__class__()
    for browser in (client, other):
        browser.force_login(liaison)
    assert b'href="/accounts/password/"' in client.get("/accounts/settings/").content
    data = {"old_password": people.PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert client.post("/accounts/password/", data).headers["Location"] == "/accounts/settings/"
    assert client.get("/accounts/settings/").status_code == 200
    assert other.get("/accounts/settings/").status_code == 302
    assert (
        events_of(liaison).filter(kind="account.password_changed", actor="nova-liaison").count()
        == 1
    )
    client.logout()
    assert log_in(client, NEW).status_code == 302


@pytest.mark.parametrize(
    "data",
    [
        {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW},
        {"old_password": people.PASSWORD, "new_password1": "password", "new_password2": "password"},
        {"old_password": people.PASSWORD, "new_password1": NEW, "new_password2": "another"},
    ],
)
def test_change_wants_the_old_password_and_a_good_new_one_twice(client, liaison, data):
    client.force_login(liaison)
    assert b"errorlist" in client.post("/accounts/password/", data).content
    liaison.refresh_from_db()
    assert liaison.check_password(people.PASSWORD)


def test_who_logs_in_elsewhere_has_no_password_to_change(client, liaison):
    liaison.set_unusable_password()
    liaison.save()
    client.force_login(liaison)
    assert b"single sign-on" in client.get("/accounts/settings/").content
    page = client.get("/accounts/password/").content
    assert b"<input" not in page.partition(b"<main")[2].partition(b"</main>")[0]


def test_link_by_mail_sets_a_new_password_once(client, mailed):
    assert FORGOTTEN.encode() in client.get("/accounts/login/").content
    assert (
        b"on its way" in client.post(FORGOTTEN, {"email": "NOVA@example.org"}, follow=True).content
    )
    (mail,) = mailed
    assert (mail.to, "nova-liaison" in mail.body) == (["nova@example.org"], True)
    page = client.get(link_in(mail), follow=True)
    where = page.redirect_chain[-1][0]
    # The token is not in the address that other sites may see.
    assert where.endswith("/set-password/")
    data = {"new_password1": NEW, "new_password2": NEW}
    assert b"Log in with the new one" in client.post(where, data, follow=True).content
    assert log_in(client, NEW).status_code == 302
    client.logout()
    assert b"no longer valid" in client.get(link_in(mail), follow=True).content


def test_link_is_to_the_portal_whatever_host_was_asked(client, mailed, settings):
    settings.ALLOWED_HOSTS = ["*"]
    client.post(FORGOTTEN, {"email": "nova@example.org"}, headers={"host": "evil.example.org"})
    assert "evil" not in mailed[0].body


def test_link_expires(client, mailed, settings):
    client.post(FORGOTTEN, {"email": "nova@example.org"})
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert b"no longer valid" in client.get(link_in(mailed[0]), follow=True).content


def test_new_password_ends_the_lock(client, mailed):
    for _ in range(5):
        answer = log_in(client, "wrong")
    assert answer.status_code == 429
    assert FORGOTTEN.encode() in answer.content
    client.post(FORGOTTEN, {"email": "nova@example.org"})
    where = client.get(link_in(mailed[0]), follow=True).redirect_chain[-1][0]
    client.post(where, {"new_password1": NEW, "new_password2": NEW})
    assert log_in(client, NEW).status_code == 302


def test_nobody_learns_which_addresses_have_accounts(client, mailed):
    pages = []
    for address in ("nova@example.org", "none@example.org"):
        page = client.post(FORGOTTEN, {"email": address}, follow=True).content.decode()
        pages.append(re.sub(r"(csrf|X-CSRF)[^>]*", "", page).replace(address, "ADDRESS"))
    assert pages[0] == pages[1]
    assert len(mailed) == 1


def test_one_mail_in_five_minutes(liaison, mailed):
    now = timezone.now()
    for minutes in (0, 1, 4, 6):
        request_password_reset(user=liaison, at=now + timedelta(minutes=minutes))
    assert len(mailed) == 2


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "!"}])
def test_no_mail_for_who_cannot_log_in_by_password(client, liaison, mailed, change):
    for name, value in change.items():
        setattr(liaison, name, value)
    liaison.save()
    client.post(FORGOTTEN, {"email": "nova@example.org"})
    assert mailed == []


def test_without_mail_the_page_says_whom_to_ask(client, liaison, settings, mailoutbox):
    settings.SUPPORT_CONTACT = "<ops@example.org>"
    page = client.get(FORGOTTEN).content.decode()
    assert "sends no mail" in page
    assert "Contact an admin of the portal: &lt;ops@example.org&gt;." in page
    assert 'name="email"' not in page
    client.post(FORGOTTEN, {"email": "nova@example.org"})
    assert mailoutbox == []
    for _ in range(5):
        locked = log_in(client, "wrong").content.decode()
    assert "If you forgot it: Contact an admin of the portal: &lt;ops@example.org&gt;." in locked
