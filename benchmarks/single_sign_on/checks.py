"""What the docs promise of a login by the provider. Each check returns what was seen."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page

from benchmarks.single_sign_on import realm
from benchmarks.single_sign_on.site import LOCAL, SESSION_HOURS, TITLE, Site, roles_of

NAME = "Lab login"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512")
#: The portal asks a provider that answered just now again after so many seconds.
FRESH_SECONDS = 10


def text_of(page: Page) -> str:
    return " ".join(page.locator("main").inner_text().split())


def messages_of(page: Page) -> str:
    return " ".join(" ".join(page.locator(".notes, [role=alert]").all_inner_texts()).split())


def first_login_makes_the_account_with_the_roles_of_its_groups(site: Site) -> str:
    from apps.accounts.models import User

    expected = {"ann": {"liaison:NOVA"}, "bob": {"approver", "shifter"}}
    for username, roles in expected.items():
        with site.new_browser() as page:
            site.log_in(page, username)
            assert page.url == f"{site.url}/requests/", page.url
            assert TITLE in text_of(page), "the request of NOVA is missing"
        assert roles_of(username) == roles, roles_of(username)
        user = User.objects.get(username=username)
        assert not user.has_usable_password()
        assert (
            user.sign_on_subject == f"{site.keycloak.issuer} {site.keycloak.user(username)['id']}"
        )
        assert user.get_full_name() == f"{username.title()} Example"
    return f"ann {sorted(expected['ann'])}, bob {sorted(expected['bob'])}"


def admins_of_a_group_open_the_back_office_until_they_leave_it(site: Site) -> str:
    statuses = []
    for group in ("/opg-admins", ""):
        if not group:
            site.keycloak.move_user("cleo", out_of="/opg-admins")
        with site.new_browser() as page:
            site.log_in(page, "cleo")
            page.goto("/admin/")
            statuses.append(page.url.removeprefix(site.url))
    assert statuses[0] == "/admin/", statuses
    assert statuses[1].startswith("/admin/login/"), statuses
    return " then ".join(statuses)


def user_without_a_known_group_is_told_what_to_do_and_sees_no_data(site: Site) -> str:
    with site.new_browser() as page:
        site.log_in(page, "ann")
        page.locator("main tr", has_text=TITLE).locator("a").first.click()
        page.wait_for_url("**/requests/*/")
        address = page.url
        assert TITLE in text_of(page)
    with site.new_browser() as page:
        site.log_in(page, "eve")
        assert site.is_logged_in(page)
        for path in ("/", "/requests/", "/jobs/", "/failures/", "/archive/"):
            page.goto(path)
            assert TITLE not in page.content(), path
        status = page.goto(address).status
        assert (status, TITLE in page.content()) == (404, False), status
        page.goto("/")
        note = " ".join(page.locator(".note.warning").first.inner_text().split())
    assert roles_of("eve") == set()
    assert NAME in note, note
    return f"{note} {address.removeprefix(site.url)}: status {status}"


def user_who_left_a_group_loses_its_role_at_the_next_login(site: Site) -> str:
    with site.new_browser() as page:
        site.log_in(page, "dan")
        assert TITLE in text_of(page)
    assert roles_of("dan") == {"liaison:NOVA"}
    site.keycloak.move_user("dan", out_of="/nova/liaisons", into="/opg-shifters")
    with site.new_browser() as page:
        site.log_in(page, "dan")
    assert roles_of("dan") == {"shifter"}, roles_of("dan")
    site.keycloak.move_user("dan", out_of="/opg-shifters")
    with site.new_browser() as page:
        site.log_in(page, "dan")
        assert TITLE not in page.content()
    assert roles_of("dan") == set(), roles_of("dan")
    return "liaison:NOVA, then shifter, then none"


def user_disabled_at_the_provider_cannot_log_in(site: Site) -> str:
    with site.new_browser() as page:
        site.log_in(page, "finn")
        assert site.is_logged_in(page)
    site.keycloak.change_user("finn", enabled=False)
    with site.new_browser() as page:
        site.log_in(page, "finn")
        assert page.url.startswith(site.keycloak.address), page.url
        said = page.locator("#input-error, .pf-v5-c-alert, .alert-error").first.inner_text()
        assert not site.is_logged_in(page)
    return f"Keycloak: {said.strip()}"


def account_follows_the_subject_when_the_user_name_changes(site: Site) -> str:
    from apps.accounts.models import User

    with site.new_browser() as page:
        site.log_in(page, "hal")
    account = User.objects.get(username="hal")
    subject = account.sign_on_subject
    site.keycloak.change_user("hal", username="hal.married")
    with site.new_browser() as page:
        site.log_in(page, "hal.married")
        assert site.is_logged_in(page)
        assert "Hal Example" in text_of(page)
    assert not User.objects.filter(username="hal.married").exists()
    account.refresh_from_db()
    assert account.sign_on_subject == subject

    site.keycloak.change_user("gus", username="hal")
    with site.new_browser() as page:
        site.log_in(page, "hal")
        refusal = messages_of(page)
        assert not site.is_logged_in(page)
    assert refusal == "The account hal belongs to another identity.", refusal
    assert roles_of("hal") == {"liaison:NOVA"}
    return f"same account; a new user of the old name: {refusal}"


def account_with_a_password_is_not_taken_over_by_a_namesake(site: Site) -> str:
    from apps.accounts.models import User

    with site.new_browser() as page:
        site.log_in(page, LOCAL)
        refusal = messages_of(page)
        assert not site.is_logged_in(page)
    assert "is not linked to single sign-on" in refusal, refusal
    account = User.objects.get(username=LOCAL)
    assert (account.sign_on_subject, roles_of(LOCAL)) == (None, {"approver"})
    with site.new_browser() as page:
        site.log_in_with_password(page, LOCAL)
        assert site.is_logged_in(page)
    return refusal


def tokens_signed_by_any_key_pair_log_in_and_by_the_secret_do_not(site: Site) -> str:
    refusal = _log_in_as_signed(site, "id.token.signed.response.alg", ALGORITHMS, usual="RS256")
    return f"{', '.join(ALGORITHMS)}; refused: {refusal}"


def signed_user_information_logs_in(site: Site) -> str:
    algorithms = ("RS256", "ES256")
    refusal = _log_in_as_signed(site, "user.info.response.signature.alg", algorithms, usual="")
    assert roles_of("ann") == {"liaison:NOVA"}
    return f"{', '.join(algorithms)}; refused: {refusal}"


def _log_in_as_signed(site: Site, attribute: str, algorithms: Iterable[str], *, usual: str) -> str:
    """Log in with each algorithm of this attribute of the client; return why HS256 is refused."""
    for algorithm in algorithms:
        site.keycloak.change_client(**{attribute: algorithm})
        with site.new_browser() as page:
            site.log_in(page, "ann")
            assert site.is_logged_in(page), f"{algorithm}: {site.newest_reason()}"
    site.keycloak.change_client(**{attribute: "HS256"})
    with site.new_browser() as page:
        site.log_in(page, "ann")
        assert not site.is_logged_in(page)
    refusal = site.newest_reason()
    site.keycloak.change_client(**{attribute: usual})
    assert "HS256" in refusal, refusal
    return refusal


def login_without_pkce_is_refused_by_the_provider(site: Site) -> str:
    callback = f"{site.url}/accounts/openid/callback/"
    sent_to = site.keycloak.refusal(redirect_uri=callback, scope="openid")
    assert sent_to.startswith(callback), sent_to
    answer = parse_qs(urlsplit(sent_to).query)
    assert answer["error"] == ["invalid_request"], answer
    assert "code_challenge" in answer["error_description"][0], answer
    return f"{answer['error'][0]}: {answer['error_description'][0]}"


def unknown_address_of_the_portal_is_refused_by_the_provider(site: Site) -> str:
    client = site.keycloak.client()
    path = f"/clients/{client['id']}"
    elsewhere = ["https://elsewhere.example.org/accounts/openid/callback/"]
    site.keycloak.call("PUT", path, client | {"redirectUris": elsewhere})
    with site.new_browser() as page:
        site.go_to_provider(page)
        assert page.url.startswith(site.keycloak.address), page.url
        message = page.locator("#kc-error-message p").first.inner_text()
    site.keycloak.call("PUT", path, client)
    assert "redirect_uri" in message, message
    return f"Keycloak: {message}"


def login_works_after_the_keys_of_the_provider_were_rotated(site: Site) -> str:
    before = site.keycloak.key_ids()
    site.keycloak.rotate_rsa_keys()
    new = site.keycloak.key_ids() - before
    assert len(new) == 1, new
    with site.new_browser() as page:
        site.log_in(page, "ann")
        assert site.is_logged_in(page), site.newest_reason()
    return f"new key {new.pop()}"


def wrong_client_secret_is_named_on_the_login_page(site: Site) -> str:
    client = site.keycloak.client()
    secret = site.keycloak.client_secret()
    site.keycloak.call("POST", f"/clients/{client['id']}/client-secret")
    with site.new_browser() as page:
        site.log_in(page, "ann")
        assert page.url.startswith(f"{site.url}/accounts/login/"), page.url
        message = messages_of(page)
    site.keycloak.call(
        "PUT", f"/clients/{client['id']}", site.keycloak.client() | {"secret": secret}
    )
    with site.new_browser() as page:
        site.log_in(page, "ann")
        assert site.is_logged_in(page), site.newest_reason()
    assert "admin" in message, message
    return f"{message} Log: {site.newest_reason()}"


def logout_ends_the_session_of_the_portal_then_that_of_the_provider(site: Site) -> str:
    with site.new_browser() as page:
        site.log_in(page, "ann")
        page.evaluate("document.querySelector('form[action*=logout]').requestSubmit()")
        page.wait_for_url("**/accounts/login/**")
        assert not site.is_logged_in(page)
        site.go_to_provider(page)
        assert page.url == f"{site.url}/requests/", page.url

        page.evaluate("document.querySelector('form[action*=logout]').requestSubmit()")
        page.wait_for_url("**/accounts/login/**")
        page.locator("a[href*='openid/logout']").click()
        page.locator("#kc-logout").click()
        page.wait_for_url(f"{site.url}/accounts/login/**")
        site.go_to_provider(page)
        assert page.url.startswith(site.keycloak.address), page.url
        assert page.locator("#password").is_visible()
    return "the provider asks for a password after its logout, which leads back to the portal"


def session_ends_after_its_hours_and_the_next_login_reads_the_groups(site: Site) -> str:
    from django.contrib.sessions.models import Session

    with site.new_browser() as page:
        site.log_in(page, "bob")
        [cookie] = [c for c in page.context.cookies() if c["name"] == "sessionid"]
        hours = (cookie["expires"] - time.time()) / 3600
        assert abs(hours - SESSION_HOURS) < 0.02, hours
        session = Session.objects.get(session_key=cookie["value"])
        assert abs(session.expire_date.timestamp() - cookie["expires"]) < 60
        session.expire_date -= timedelta(hours=SESSION_HOURS)
        session.save()
        site.keycloak.move_user("bob", out_of="/opg-approvers", into="/opg-shifters")
        site.go_to_provider(page)
        assert page.url == f"{site.url}/requests/", page.url
    assert roles_of("bob") == {"shifter"}, roles_of("bob")
    return f"{hours:.2f} h; no password asked, roles {sorted(roles_of('bob'))}"


def provider_that_is_down_is_named_and_logins_by_password_go_on(site: Site) -> str:
    with site.new_browser() as page, site.new_browser() as late:
        site.go_to_provider(late)
        callback = site.callback_of(late, "ann")
        site.keycloak.kill()
        late.goto(callback)
        said = [messages_of(late)]
        assert not site.is_logged_in(late)

        time.sleep(FRESH_SECONDS)
        site.go_to_provider(page)
        assert page.url.startswith(f"{site.url}/accounts/login/"), page.url
        said.append(messages_of(page))
        site.log_in_with_password(page, LOCAL)
        assert site.is_logged_in(page)
    assert [NAME in text and "does not answer" in text for text in said] == [True, True], said
    site.keycloak.start(realm.realm())
    with site.new_browser() as page:
        site.log_in(page, "ann")
        assert site.is_logged_in(page), site.newest_reason()
    return f"{said[1]} After its start logins work again."


#: In this order: the last one stops the provider.
CHECKS: list[Callable[[Site], str]] = [
    first_login_makes_the_account_with_the_roles_of_its_groups,
    user_who_left_a_group_loses_its_role_at_the_next_login,
    admins_of_a_group_open_the_back_office_until_they_leave_it,
    user_without_a_known_group_is_told_what_to_do_and_sees_no_data,
    user_disabled_at_the_provider_cannot_log_in,
    account_follows_the_subject_when_the_user_name_changes,
    account_with_a_password_is_not_taken_over_by_a_namesake,
    tokens_signed_by_any_key_pair_log_in_and_by_the_secret_do_not,
    signed_user_information_logs_in,
    login_without_pkce_is_refused_by_the_provider,
    unknown_address_of_the_portal_is_refused_by_the_provider,
    login_works_after_the_keys_of_the_provider_were_rotated,
    wrong_client_secret_is_named_on_the_login_page,
    logout_ends_the_session_of_the_portal_then_that_of_the_provider,
    session_ends_after_its_hours_and_the_next_login_reads_the_groups,
    provider_that_is_down_is_named_and_logins_by_password_go_on,
]
