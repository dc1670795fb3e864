import random
import re
import string
import time

import pytest
from django.urls import reverse

from apps.archive.models import ArchivedJob, Blob
from apps.jobs.enums import PROBE_JOB_PREFIX
from tests.archive.spool_writer import environment_bytes
from tests.factories.archive import captured_job, store

pytestmark = pytest.mark.django_db

HOSTILE = b"#!/bin/sh\necho '<script>alert(1)</script>' \x1b[2J\n"


@pytest.fixture
def archived(nova):
    """Three jobs: of NOvA, of NOvA with another stage, of nobody."""
    store(
        captured_job(
            11,
            request_key="NOVA-0231",
            stage="sim",
            script=HOSTILE,
            environment=environment_bytes([("A", "<b>"), ("T", "<masked:0123456789abcdef>")]),
            masked_names=("T",),
        ),
        captured_job(12, minutes=1, request_key="NOVA-0231", stage="reco"),
        captured_job(13, minutes=2, cluster="jura"),
    )
    return {job.job_id: job for job in ArchivedJob.objects.all()}


def ids(response):
    return [job.job_id for job in response.context["page"].rows]


def test_list_shows_each_person_what_they_may_see(
    client, archived, liaison, other_liaison, shifter
):
    for user, expected in (
        (shifter, ["13", "12", "11"]),
        (liaison, ["12", "11"]),
        (other_liaison, []),
    ):
        client.force_login(user)
        assert ids(client.get(reverse("archive:jobs"))) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("submitted", ["11", "12", "13"]),
        ("-job", ["13", "12", "11"]),
        ("stage", ["13", "12", "11"]),  # those without a stage first
        ("-stage", ["11", "12", "13"]),
    ],
)
def test_list_is_sorted_by_its_columns(client, archived, shifter, sort, expected):
    client.force_login(shifter)
    page = client.get(reverse("archive:jobs"), {"sort": sort})
    assert ids(page) == expected
    assert 'aria-sort="' in page.content.decode()
    assert not page.context["filtered"], "an order is no filter"


def test_sorted_list_keeps_to_what_the_user_may_see_and_to_the_newest(
    client, archived, liaison, monkeypatch
):
    client.force_login(liaison)
    assert ids(client.get(reverse("archive:jobs"), {"sort": "-user"})) == ["12", "11"]
    monkeypatch.setattr("apps.archive.filters.MOST_SORTED", 1)
    assert ids(client.get(reverse("archive:jobs"), {"sort": "-user"})) == ["12"]


def test_search_in_scripts_lists_the_newest_first_whatever_the_order(client, archived, shifter):
    client.force_login(shifter)
    page = client.get(reverse("archive:jobs"), {"sort": "submitted", "words": "echo"})
    assert not page.context["can_sort"]
    assert "sort=" not in page.content.decode().partition("<table")[2].partition("</thead>")[0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cluster=jura", ["13"]),
        ("job=12", ["12"]),
        ("request=nova-0231", ["12", "11"]),
        ("stage=sim", ["11"]),
        ("since=2026-11-20&until=2026-11-20", ["13", "12", "11"]),
        ("since=2026-11-21", []),
        ("until=2026-11-19", []),
        ("since=2000-01-01&until=2100-12-31", ["13", "12", "11"]),
        ("since=yesterday", []),
        ("cluster=nowhere", []),
        ("script=zz", []),
        ("job=12&after=nonsense", ["12"]),
    ],
)
def test_list_is_filtered_by_its_address(client, archived, shifter, query, expected):
    client.force_login(shifter)

    assert ids(client.get(f"{reverse('archive:jobs')}?{query}")) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["13", "12", "11"]),
        ("sort=job", ["11", "12", "13"]),
        ("probes=show", ["14", "13", "12", "11"]),
        ("probes=only", ["14"]),
        ("job=14", ["14"]),
        ("cluster=alps", ["14", "12", "11"]),
        ("cluster=alps&probes=hide", ["12", "11"]),
        ("words=echo&probes=only", []),
    ],
)
def test_probe_jobs_are_hidden_unless_something_is_asked_for(
    client, archived, shifter, query, expected
):
    store(captured_job(14, minutes=3, name=f"{PROBE_JOB_PREFIX}5f0c"))
    client.force_login(shifter)
    assert ids(client.get(f"{reverse('archive:jobs')}?{query}")) == expected


def test_hidden_probe_jobs_are_no_filter(client, archived, shifter):
    client.force_login(shifter)
    page = client.get(reverse("archive:jobs"), {"probes": "hide", "user": ""})
    assert not page.context["filtered"]
    refused = client.get(reverse("archive:tar"), {"probes": "hide", "user": ""}, follow=True)
    assert "Select jobs, or name what to look for." in refused.content.decode()


def test_api_lists_probe_jobs_unless_told_not_to(client, archived, shifter):
    store(captured_job(14, minutes=3, name=f"{PROBE_JOB_PREFIX}5f0c"))
    client.force_login(shifter)
    for query, expected in (("", 4), ("probes=hide", 3), ("probes=only", 1)):
        answer = client.get(f"{reverse('api:archived-job-list')}?{query}").json()
        assert len(answer["results"]) == expected


def test_list_finds_jobs_with_the_same_script(client, archived, shifter):
    store(captured_job(14, script=HOSTILE))
    client.force_login(shifter)

    response = client.get(reverse("archive:jobs"), {"script": archived["11"].script_sha256})

    assert sorted(ids(response)) == ["11", "14"]


def test_list_goes_on_where_a_page_ends(client, shifter):
    store(*(captured_job(i, minutes=i // 10) for i in range(1, 76)))
    client.force_login(shifter)

    first = client.get(reverse("archive:jobs"), {"cluster": "alps"})
    second = client.get(reverse("archive:jobs") + first.context["page"].next_query)

    assert len(ids(first)) == 50
    assert sorted(map(int, ids(first) + ids(second))) == list(range(1, 76))
    assert b'rel="next"' not in second.content


def test_empty_list_says_so(client, shifter):
    client.force_login(shifter)

    assert b"No archived jobs yet" in client.get(reverse("archive:jobs")).content
    assert b"No matching jobs" in client.get(reverse("archive:jobs"), {"stage": "x"}).content
    wrong = client.get(reverse("archive:jobs"), {"since": "2026-13-45"}).content
    assert b"Invalid filter" in wrong
    assert b"No matching jobs" not in wrong


def test_list_reads_no_content_and_asks_as_often_for_many(
    client, shifter, django_assert_max_num_queries
):
    store(*(captured_job(i) for i in range(1, 40)))
    client.force_login(shifter)

    with django_assert_max_num_queries(14) as queries:
        client.get(reverse("archive:jobs"))

    assert not any('"archive_blob"."data"' in query["sql"] for query in queries.captured_queries)


def test_job_page_shows_script_and_environment_escaped(client, archived, liaison):
    client.force_login(liaison)

    page = client.get(reverse("archive:job", args=[archived["11"].pk])).content.decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "\\x1b[2J" in re.sub(r"</?i[^>]*>", "", page)  # without the colours
    assert "\x1b" not in page
    assert '<div id="L2"><a href="#L2">2</a>' in page
    assert "&lt;b&gt;" in page
    assert "&lt;masked:0123456789abcdef&gt;" in page
    assert "2 variables, 1 masked" in page


def test_no_page_has_a_hidden_character_of_a_job(client, shifter):
    """Such as those that turn the direction of text, or erase the screen of a terminal."""
    evil = "a\u202eb\x1b[2Jc\u200bd"
    facts = dict.fromkeys(("user", "account", "name", "arguments", "caveat", "stage"), evil)
    environment = environment_bytes([(evil, evil)])
    script = f"#!/bin/sh\necho needle {evil}\n".encode()
    store(
        captured_job(1, script=script, environment=environment, **facts),
        captured_job(2, script=script + b"#", **facts),
    )
    one, other = ArchivedJob.objects.order_by("job_id")
    client.force_login(shifter)

    for path in (
        reverse("archive:jobs") + "?words=needle",
        reverse("archive:job", args=[one.pk]),
        reverse("archive:diff", args=[one.pk]) + f"?other={other.pk}&all=1",
    ):
        page = client.get(path).content.decode()
        assert not set("\u202e\x1b\u200b") & set(page), path
    assert (
        '<span class="hidden-char" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>'
        in client.get(reverse("archive:job", args=[one.pk])).content.decode()
    )


def test_pages_of_scripts_made_to_be_slow_answer(client, shifter):
    """A word of 200 kB after `<<` took a web worker minutes, as did comparing it."""
    word = "".join(random.Random(1).choices(string.ascii_letters, k=190_000)).encode()
    store(*(captured_job(n, script=b"#!/bin/sh\ncat <<" + word + b"%d\n" % n) for n in (1, 2)))
    one, other = ArchivedJob.objects.order_by("job_id")
    client.force_login(shifter)
    client.get(reverse("archive:jobs"))

    for path in (
        reverse("archive:job", args=[one.pk]),
        reverse("archive:diff", args=[one.pk]) + f"?other={other.pk}",
    ):
        began = time.monotonic()
        page = client.get(path).content
        # The time includes the start of the process, on a busy machine.
        assert time.monotonic() - began < 5, path
        assert word in page


def test_job_page_of_a_long_script_leads_to_the_raw_one(client, shifter):
    store(captured_job(1, script=b"x" * 300_000))
    client.force_login(shifter)

    response = client.get(reverse("archive:job", args=[ArchivedJob.objects.get().pk]))

    assert b"Truncated." in response.content
    assert len(response.content) < 250_000


@pytest.mark.parametrize("name", ["job", "script", "environment"])
def test_others_find_nothing(client, archived, other_liaison, name):
    client.force_login(other_liaison)

    assert client.get(reverse(f"archive:{name}", args=[archived["11"].pk])).status_code == 404
    assert client.get(reverse(f"archive:{name}", args=[999_999])).status_code == 404


@pytest.mark.parametrize("name", ["jobs", "job", "script", "environment"])
def test_stranger_is_sent_to_the_login(client, archived, name):
    response = client.get(
        reverse(f"archive:{name}", args=[] if name == "jobs" else [archived["11"].pk])
    )

    assert response.status_code == 302
    assert response["Location"].startswith(reverse("accounts:login"))


def test_raw_contents_come_as_stored_and_never_as_a_page(client, archived, liaison):
    client.force_login(liaison)

    script = client.get(reverse("archive:script", args=[archived["11"].pk]))
    environment = client.get(reverse("archive:environment", args=[archived["11"].pk]))

    assert script.content == HOSTILE
    assert environment.content == environment_bytes(
        [("A", "<b>"), ("T", "<masked:0123456789abcdef>")]
    )
    assert script["Content-Type"] == "text/plain; charset=utf-8"
    assert script["X-Content-Type-Options"] == "nosniff"
    assert script["Content-Disposition"] == 'attachment; filename="job.11_script"'


def test_api_lists_and_gives_contents(client, archived, liaison, other_liaison):
    client.force_login(liaison)
    address = reverse("api:archived-job-list")

    (row,) = client.get(address, {"stage": "sim"}).json()["results"]

    assert (row["job_id"], row["cluster"], row["experiment"], row["request"]) == (
        "11",
        "alps",
        "NOVA",
        "NOVA-0231",
    )
    assert row["script_sha256"] == archived["11"].script_sha256
    assert client.get(f"{address}{row['id']}/").json() == row
    assert client.get(f"{address}{row['id']}/script/").content == HOSTILE
    assert client.get(f"{address}{row['id']}/environment/").content.startswith(b"\2\0\0\0A=<b>\0")

    client.force_login(other_liaison)
    assert client.get(address).json()["results"] == []
    assert client.get(f"{address}{row['id']}/script/").status_code == 404


def test_admin_shows_archived_jobs(admin_client, archived):
    assert admin_client.get(reverse("admin:archive_archivedjob_changelist")).status_code == 200
    assert (
        admin_client.get(
            reverse("admin:archive_archivedjob_change", args=[archived["11"].pk])
        ).status_code
        == 200
    )
    assert admin_client.get(reverse("admin:archive_dictionary_changelist")).status_code == 200


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x28\xb5\x2f\xfd garbage"], ids=["empty", "no zstd", "half zstd"]
)
def test_damaged_content_is_told_everywhere(client, archived, liaison, data):
    Blob.objects.update(data=data)
    client.force_login(liaison)
    pk = archived["11"].pk

    page = client.get(reverse("archive:job", args=[pk]))
    raw = [client.get(reverse(f"archive:{name}", args=[pk])) for name in ("script", "environment")]
    api = [
        client.get(f"{reverse('api:archived-job-list')}{pk}/{name}/")
        for name in ("script", "environment")
    ]

    assert (page.status_code, page.content.count(b"<b>Content damaged</b>")) == (200, 2)
    assert [response.status_code for response in raw + api] == [410] * 4
    assert b"damaged in the archive" in raw[0].content
    assert "damaged in the archive" in api[0].json()["detail"]


def test_content_of_another_is_damage_too(client, archived, liaison):
    """It can be decompressed, and is not what was stored."""
    other = Blob.objects.get(pk=archived["12"].script_id)
    script = Blob.objects.filter(pk=archived["11"].script_id)
    script.update(data=other.data, size_bytes=other.size_bytes)
    client.force_login(liaison)

    assert client.get(reverse("archive:script", args=[archived["11"].pk])).status_code == 410
    assert (
        b"<b>Content damaged</b>"
        in client.get(reverse("archive:job", args=[archived["11"].pk])).content
    )
