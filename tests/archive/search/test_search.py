"""Finding jobs by what is in their scripts, and by what is known of them."""

import pytest
from django.db import connection
from django.urls import reverse
from django.utils.http import urlencode

from apps.accounts.models import ClusterLogin
from apps.archive.domain.search import search, word_search
from apps.archive.models import ArchivedJob
from tests.archive.conftest import index_words
from tests.factories import people
from tests.factories.archive import captured_job, store

pytestmark = pytest.mark.django_db

GROMACS = b"#!/bin/bash\n#SBATCH --mem=4G\nmodule load gromacs/2023.3\ngmx mdrun -s top.tpr\n"
OTHER = b"#!/bin/bash\n#SBATCH --mem=8G\nmodule   load  gromacs/2024.1\necho '<b>mem=4G</b>'\n"


@pytest.fixture
def archived():
    store(
        captured_job(1, script=GROMACS, user="ana", account="nova", name="md"),
        captured_job(2, minutes=60 * 24 * 3, script=OTHER, user="ben", account="nova"),
        captured_job(3, minutes=60 * 24 * 90, script=GROMACS, user="ben", account="juno"),
        captured_job(4, minutes=60 * 24 * 400, script=b"echo nothing\n", user="ana"),
    )
    ArchivedJob.objects.filter(job_id="1").update(state="completed")
    ArchivedJob.objects.filter(job_id="2").update(state="timeout")
    index_words()


@pytest.fixture
def find(client, shifter):
    client.force_login(shifter)

    def find(**query):
        return client.get(reverse("archive:jobs"), query)

    return find


def ids(response):
    return [job.job_id for job in response.context["page"].rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"words": "gromacs/2023.3"}, ["3", "1"]),
        ({"words": "GROMACS"}, ["3", "2", "1"]),
        ({"words": "gromacs/20*"}, ["3", "2", "1"]),
        ({"words": "gromacs/2024*"}, ["2"]),
        ({"words": "--mem=4G"}, ["3", "1"]),
        ({"words": "--mem=4G mdrun"}, ["3", "1"]),
        ({"words": "--mem=4G", "user": "ana"}, ["1"]),
        ({"words": "--mem"}, ["3", "2", "1"]),
        ({"words": "romacs"}, []),
        ({"words": "$((", "user": "ana"}, []),
        ({"module": "gromacs/2023.3"}, ["3", "1"]),
        ({"module": "Gromacs"}, ["3", "2", "1"]),
        ({"module": "nothing"}, []),
        ({"line": "  module load\tgromacs/2024.1 "}, ["2"]),
        ({"line": "module load"}, []),
        ({"line": "}"}, []),
        ({"text": "romacs/20", "user": "ben"}, ["3", "2"]),
        ({"text": "ROMACS/2023", "since": "2026-11-20", "until": "2026-11-20"}, ["1"]),
        ({"text": " load  gro", "user": "ben"}, ["2"]),
        ({"text": "romacs"}, []),
        ({"text": "mdrun", "words": "--mem=4G", "user": "ben"}, ["3"]),
        ({"user": "ana"}, ["4", "1"]),
        ({"account": "juno"}, ["3"]),
        ({"name": "md"}, ["1"]),
        ({"state": "completed"}, ["1"]),
        ({"state": "any_failure"}, ["2"]),
        ({"state": "nonsense"}, []),
    ],
)
def test_found(find, archived, query, expected):
    response = find(**query)

    assert response.status_code == 200
    assert ids(response) == expected


def test_form_says_what_text_needs(find, archived):
    assert b"Name a user, a request or a day as well." in find(text="romacs").content
    assert b"No word is in this" in find(words="$((").content


def test_hits_are_marked_and_escaped(find, archived):
    page = find(words="mem b gromacs/2024.1", user="ben").content.decode()

    assert "<mark>gromacs/2024.1</mark>" in page
    assert "&#x27;&lt;<mark>b</mark>&gt;" in page
    assert "<b>mem=4G" not in page
    assert f"{reverse('archive:job', args=[ArchivedJob.objects.get(job_id='2').pk])}#L3" in page


def test_products_and_packages_are_found_as_modules(find):
    store(
        captured_job(1, script=b"source x.sh; setup ifdhc v2_7_2\n"),
        captured_job(2, script=b"spack load ifdhc@v2_8\n"),
        captured_job(3, script=b"echo ifdhc v2_7_2\n"),
    )
    index_words()

    assert sorted(ids(find(module="ifdhc"))) == ["1", "2"]
    job_ids = find(module="ifdhc/v2_7_2")
    assert ids(job_ids) == ["1"]
    assert b"setup <mark>ifdhc</mark> <mark>v2_7_2</mark>" in job_ids.content


@pytest.mark.parametrize("rare", [True, False])
@pytest.mark.parametrize(
    "query", [{"words": "common"}, {"line": "srun common"}, {"text": "commo", "user": "ana"}]
)
def test_pages_hold_every_hit_once_newest_first(client, find, query, rare, monkeypatch):
    monkeypatch.setattr(search, "_STEP", 7)
    monkeypatch.setattr(word_search, "are_rare", lambda terms: rare)
    store(
        *(
            captured_job(
                i,
                minutes=(i * 977) % 200_000,
                user="ana",
                script=b"srun common\n" if i % 3 else b"rare",
            )
            for i in range(1, 240)
        )
    )
    index_words()
    found, response = [], find(**query)
    while True:
        found += response.context["page"].rows
        if not response.context["page"].next_query:
            break
        response = client.get(reverse("archive:jobs") + response.context["page"].next_query)

    assert {int(job.job_id) for job in found} == {i for i in range(1, 240) if i % 3}
    assert len(found) == len({job.pk for job in found})
    assert [job.submitted_at for job in found] == sorted(
        (job.submitted_at for job in found), reverse=True
    )


def test_text_goes_on_where_the_time_was_over(client, find, archived, monkeypatch):
    monkeypatch.setattr(search, "READ_SECONDS", 0)
    monkeypatch.setattr(search, "_STEP", 1)
    first = find(text="mdrun", since="2026-11-01")
    assert ids(first) == []
    assert b"Searched back to" in first.content

    tar = client.get(reverse("archive:tar"), {"text": "mdrun", "since": "2026-11-01"}, follow=True)
    assert b"Not all jobs could be looked through in time" in tar.content

    seen, query = [], first.context["page"].next_query
    for _ in range(5):
        page = client.get(reverse("archive:jobs") + query)
        seen += ids(page)
        query = page.context["page"].next_query
        if not query:
            break
    assert seen == ["3", "1"]


def test_not_indexed_jobs_are_told(find, archived):
    store(captured_job(9, minutes=1, script=b"srun newest\n"))

    page = find(words="newest")

    assert ids(page) == []
    assert "1 jobs are not indexed yet" in " ".join(page.content.decode().split())


def test_search_that_takes_too_long_says_so(find, archived, monkeypatch):
    from django.db import connection

    def slow(terms):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")

    monkeypatch.setattr(search, "STATEMENT_MS", 1000)
    monkeypatch.setattr(word_search, "are_rare", slow)

    assert b"This takes too long" in find(words="gromacs").content
    assert b"gromacs" in find(words="", user="ana").content


def test_line_of_a_script_leads_to_the_jobs_with_it(client, find, archived):
    job = ArchivedJob.objects.get(job_id="1")

    answer = client.get(reverse("archive:line", args=[job.pk, 3]))

    assert (
        answer["Location"]
        == f"{reverse('archive:jobs')}?{urlencode({'line': 'module load gromacs/2023.3'})}"
    )
    assert ids(client.get(answer["Location"])) == ["3", "1"]
    assert client.get(reverse("archive:line", args=[job.pk, 99])).status_code == 404
    store(captured_job(5, script=b"a" * 3000))
    too_long = client.get(
        reverse("archive:line", args=[ArchivedJob.objects.get(job_id="5").pk, 1]), follow=True
    )
    assert b"too long to search for" in too_long.content


def test_people_find_their_own_jobs_by_their_logins(client, archived):
    user = people.person("ana.smith")
    client.force_login(user)

    def list_ids(**query):
        return ids(client.get(reverse("archive:jobs"), query))

    assert list_ids() == []

    login = ClusterLogin.objects.create(user=user, login="ana")
    assert list_ids() == ["4", "1"]
    assert list_ids(words="gromacs") == ["1"]
    assert list_ids(user="ben") == []

    login.cluster = "elsewhere"
    login.save()
    assert list_ids() == []


def test_environments_want_a_role(client, nova, liaison):
    store(captured_job(5, request_key="NOVA-0231", user="nova"))
    pk = ArchivedJob.objects.get().pk
    visitor = people.person("visiting-shifter", ("shifter", nova))
    owner = people.person("owner")
    ClusterLogin.objects.create(user=owner, login="nova", cluster="alps")

    for user, status in ((visitor, 403), (owner, 403), (liaison, 200)):
        client.force_login(user)
        assert client.get(reverse("archive:script", args=[pk])).status_code == 200
        assert client.get(reverse("archive:environment", args=[pk])).status_code == status
        assert client.get(reverse("api:archived-job-environment", args=[pk])).status_code == status
        page = client.get(reverse("archive:job", args=[pk])).content
        assert (b"/home/ana" in page) == (status == 200)
        assert (b"Permission denied" in page) == (status == 403)


def test_page_asks_as_often_for_many(client, find, django_assert_max_num_queries):
    store(*(captured_job(i, minutes=i, script=f"srun same {i}".encode()) for i in range(1, 60)))
    index_words()

    with django_assert_max_num_queries(22):
        assert len(ids(find(words="same"))) == 50


def test_hits_of_huge_and_hostile_scripts_come_soon(find):
    lines = b"\x1b[2J <script> \xff needle\n" * 50_000
    store(*(captured_job(i, user="ana", script=b"x%d\n" % i + lines) for i in range(1, 6)))
    index_words()

    page = find(words="needle", user="ana").content.decode()

    assert page.count("<mark>needle</mark>") == 15
    assert "<script> " not in page
    assert "\x1b" not in page


def test_api_finds_with_hits(client, shifter, archived):
    client.force_login(shifter)
    address = reverse("api:archived-job-list")

    answer = client.get(address, {"words": "gromacs/2023.3", "page_size": 1}).json()
    rest = client.get(answer["next"]).json()

    assert [row["job_id"] for row in answer["results"] + rest["results"]] == ["3", "1"]
    assert answer["results"][0]["hits"] == [{"line": 3, "text": "module load gromacs/2023.3"}]
    assert (rest["next"], rest["stopped_at"]) == (None, None)
    assert client.get(address, {"text": "x"}).status_code == 400
    assert client.get(address, {"words": "$(("}).status_code == 400


@pytest.fixture
def counted_anew():
    word_search._common_words.cache_clear()
    yield word_search._common_words.cache_clear
    word_search._common_words.cache_clear()


def test_words_of_few_scripts_are_asked_for_first(find, counted_anew):
    store(
        *(
            captured_job(i, minutes=i, script=f"echo common own{i}\n".encode())
            for i in range(1, 251)
        )
    )
    index_words()
    assert not word_search.are_rare(["'own7'"])  # nothing is counted yet
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE archive_scriptwords")
    counted_anew()

    assert [
        word_search.are_rare([term]) for term in ("'own7'", "'nowhere'", "'common'", "'own':*")
    ] == [
        True,
        True,
        False,
        False,
    ]
    assert ids(find(words="own7")) == ids(find(words="common own7")) == ["7"]
    assert ids(find(words="nowhere")) == []
