"""Saved views of a list: a name for its filters, private or shared with an experiment."""

import pytest

from apps.accounts.models import SavedView
from tests.factories.people import person

LIST = "/requests/"


def chips(client, query=""):
    return [view.name for view in client.get(f"{LIST}{query}").context["saved_views"]]


def save(client, **data):
    return client.post(
        "/accounts/views/", {"path": LIST, "query": "sort=-deadline&state=running&after=x"} | data
    )


def test_views_are_saved_shared_renamed_and_deleted(nova, dune, liaison, other_liaison, client):
    colleague = person("colleague", ("liaison", nova))
    client.force_login(liaison)
    assert save(client, name="Running").url == "/requests/?sort=-deadline&state=running"
    save(client, name="Ours", experiment="NOVA", query="state=queued")
    # This is not an experiment of this user.
    assert save(client, name="Theirs", experiment="DUNE").status_code == 302
    assert chips(client) == ["Ours", "Running"]
    page = client.get(f"{LIST}?state=running&sort=-deadline")
    assert page.context["current_view"].name == "Running"
    assert "Edit view…" in page.text

    client.force_login(colleague)
    assert chips(client) == ["Ours"]
    shared = SavedView.objects.get(name="Ours")
    assert "Edit view…" not in client.get(f"{LIST}?state=queued").text
    assert client.post(f"/accounts/views/{shared.pk}/", {"do": "delete"}).status_code == 404
    client.force_login(other_liaison)
    assert chips(client) == []

    client.force_login(liaison)
    # This replaces the view of the same name.
    client.post(f"/accounts/views/{shared.pk}/", {"name": "Running", "query": "state=queued"})
    assert [(view.name, view.query, view.experiment) for view in SavedView.objects.all()] == [
        ("Running", "state=queued", None)
    ]
    client.post(f"/accounts/views/{shared.pk}/", {"do": "delete"})
    assert chips(client) == []


def test_saved_views_in_the_api(nova, liaison, other_liaison, client):
    client.force_login(liaison)
    url, kind = "/api/v1/saved-views/", "application/json"
    sent = {
        "path": LIST,
        "name": "Running",
        "query": "state=running&sort=-deadline&after=x",
        "experiment": "NOVA",
    }
    made = client.post(url, sent, kind)
    assert made.status_code == 201, made.text
    one = made.json()
    assert (one["query"], one["experiment"], chips(client)) == (
        "sort=-deadline&state=running",
        "NOVA",
        ["Running"],
    )
    wrong = {"path": "//evil.example.org/", "experiment": "DUNE", "query": f"text={'é' * 1900}"}
    assert set(client.post(url, {**sent, **wrong}, kind).json()) >= {"path", "experiment", "query"}

    client.force_login(person("colleague", ("liaison", nova)))
    assert [each["name"] for each in client.get(f"{url}?path={LIST}").json()["results"]] == [
        "Running"
    ]
    assert client.get(f"{url}?path=/jobs/").json()["results"] == []
    assert client.patch(f"{url}{one['id']}/", {"name": "Mine"}, kind).status_code == 403
    assert client.delete(f"{url}{one['id']}/").status_code == 403
    client.force_login(other_liaison)
    assert client.get(f"{url}{one['id']}/").status_code == 404

    client.force_login(liaison)
    changed = client.patch(f"{url}{one['id']}/", {"name": "Mine", "experiment": None}, kind).json()
    assert (changed["name"], changed["experiment"], changed["query"]) == (
        "Mine",
        None,
        one["query"],
    )
    assert client.delete(f"{url}{one['id']}/").status_code == 204
    assert not SavedView.objects.exists()


def test_address_of_a_view_is_a_list_of_the_portal(liaison, client):
    client.force_login(liaison)
    for path in ("//evil.example.org/", "https://evil.example.org/", "requests", "/a\n/"):
        assert save(client, name="x", path=path).url.startswith("/?")
    assert (
        "not saved"
        in save(client, name="", query="").wsgi_request._messages._queued_messages[0].message
    )
    assert not SavedView.objects.exists()


def test_query_that_is_too_long_once_encoded_is_refused(liaison, client):
    client.force_login(liaison)
    assert save(client, name="x", query=f"text={'é' * 1900}").status_code == 302
    assert not SavedView.objects.exists()


@pytest.mark.parametrize(
    ("path", "query"), [("/jobs/", "state=failed"), ("/failures/", "hours=168&verdict=service")]
)
def test_jobs_and_failures_have_saved_views(client, liaison, path, query):
    client.force_login(liaison)
    assert "Save view…" not in client.get(path).text
    assert "Save view…" in client.get(f"{path}?{query}").text
    saved = save(client, path=path, query=query, name="Mine <b>")
    assert saved.url == f"{path}?{query}"
    shown = client.get(f"{path}?{query}")
    assert shown.context["current_view"].name == "Mine <b>"
    assert "Mine &lt;b&gt;" in shown.text
    assert "Mine &lt;b&gt;" not in client.get("/requests/").text
