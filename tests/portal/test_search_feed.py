"""The Atom feed of a search: what the owner of its token finds, and nothing else."""

from datetime import timedelta

import pytest
from defusedxml import ElementTree
from django.test import Client
from django.utils import timezone

from apps.notifications.domain.atom_feeds import make_feed_address, revoke_feed_address
from apps.notifications.models import Preferences
from apps.portal.pages import text_search
from apps.search.domain.engine.base import SearchRefused
from tests.factories import people
from tests.portal.conftest import AT, LOG
from tests.search.kept_logs import job, keep_log

pytestmark = pytest.mark.django_db
ATOM = "{http://www.w3.org/2005/Atom}"


def token_of(user) -> str:
    make_feed_address(user=user, by=user, at=timezone.now())
    return Preferences.objects.get(user=user).feed_token


def read(token: str, query: str, **headers: str):
    return Client().get(f"/feeds/{token}/search.atom", {"q": query}, headers=headers)


def entries(response) -> list[dict[str, str]]:
    assert response.status_code == 200
    assert response["Content-Type"].startswith("application/atom+xml")
    rows = []
    for entry in ElementTree.fromstring(response.content).findall(f"{ATOM}entry"):
        row = {name: entry.findtext(ATOM + name) for name in ("id", "title", "summary", "updated")}
        rows.append(row | {"link": entry.find(f"{ATOM}link").get("href")})
    return rows


def test_feed_has_the_hits_of_the_search_newest_first(logs, shifter) -> None:
    mine, other = logs
    rows = entries(read(token_of(shifter), '"cannot open"'))
    host = rows[0]["id"].partition(",")[0]
    assert [row["id"] for row in rows][:2] == [
        f"{host},2026:search/log/{mine.pk}",
        f"{host},2026:search/log/{other.pk}",
    ]
    assert rows[2]["id"].startswith(f"{host},2026:search/script/")
    assert rows[0]["title"] == "log of job 1 on alps, failed: reco"
    assert rows[0]["link"].endswith(f"/jobs/{mine.pk}/log/?stream=stderr&at=6#b6")
    assert rows[0]["updated"].startswith(f"{AT:%Y-%m-%dT%H:%M:%S}")
    # A reader shows it as HTML: the line of the log is text in it.
    assert rows[0]["summary"] == (
        "<pre>art: &lt;b&gt;cannot open&lt;/b&gt; libA.so: Input/output error</pre>"
    )


def test_ids_stay_and_an_unchanged_feed_is_not_sent_again(logs, shifter) -> None:
    token = token_of(shifter)
    first = read(token, "cannot")
    etag = {"If-None-Match": first["ETag"]}
    assert read(token, "cannot", **etag).status_code == 304
    keep_log(job(9, at=AT + timedelta(minutes=5), experiment=people.nova()), LOG)
    again = read(token, "cannot", **etag)
    assert [row["id"] for row in entries(again)][1:] == [row["id"] for row in entries(first)]
    narrower = entries(read(token, "cannot stage:reco"))
    assert {row["id"] for row in narrower} < {row["id"] for row in entries(first)}


def test_feed_has_what_the_owner_may_see_now(logs, shifter) -> None:
    liaison = people.person("nova-only", ("liaison", people.nova()))
    token = token_of(liaison)
    response = read(token, '"cannot open"')
    assert len(entries(response)) == 2
    assert b"DUNE" not in response.content
    assert entries(read(token, "experiment:DUNE")) == []
    liaison.memberships.all().delete()
    assert entries(read(token, '"cannot open"')) == []
    type(liaison).objects.filter(pk=liaison.pk).update(is_active=False)
    assert read(token, '"cannot open"').status_code == 404


def test_token_alone_opens_the_feed(logs, shifter, browse) -> None:
    token = token_of(shifter)
    assert read("x" * 56, "cannot").status_code == 404
    assert browse(shifter).get("/feeds/nothing/search.atom?q=cannot").status_code == 404
    revoke_feed_address(user=shifter, by=shifter, at=timezone.now())
    assert read(token, "cannot").status_code == 404


def test_errors_are_said_as_such(logs, shifter, monkeypatch) -> None:
    token = token_of(shifter)
    for query in ("since:foo", "/(/", "x" * 2_000, '"'):
        response = read(token, query)
        assert response.status_code in {400, 503}
        assert response["Content-Type"].startswith("text/plain")
        assert response.content

    class BusyEngine:
        def search(self, *_: object, **__: object) -> None:
            raise SearchRefused("Another search of yours runs.")

    monkeypatch.setattr(text_search, "engine_in_use", BusyEngine)
    response = read(token, "/cannot/")
    assert (response.status_code, response["Retry-After"]) == (503, "300")


def test_page_links_the_feed(logs, shifter, browse) -> None:
    client = browse(shifter)
    page = client.get("/search/", {"q": '"cannot open"'}).content.decode()
    assert "/notifications/settings/#feeds" in page
    assert 'rel="alternate"' not in page
    token = token_of(shifter)
    page = client.get("/search/", {"q": '"cannot open" "<x>&"'}).content.decode()
    address = f"/feeds/{token}/search.atom?q=%22cannot+open%22+%22%3Cx%3E%26%22"
    assert page.count(f'{address}"') == 2
    assert 'rel="alternate" type="application/atom+xml"' in page
    for query in ("", "since:foo"):
        page = client.get("/search/", {"q": query}).content.decode()
        assert "search.atom" not in page
