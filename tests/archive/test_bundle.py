"""Many jobs in one tar."""

import io
import os
import tarfile
import tracemalloc

import pytest
from django.urls import reverse

from apps.archive.domain import bundle
from apps.archive.domain.store.contents import archived_jobs_for_list
from apps.archive.models import ArchivedJob, Blob
from tests.factories import people
from tests.factories.archive import captured_job, store


@pytest.fixture
def archived(db, nova):
    store(
        captured_job(1, request_key="NOVA-0231", script=b"one", description=b"<xml/>", name="a\tb"),
        captured_job(
            2,
            minutes=1,
            request_key="NOVA-0231",
            script=b"two",
            name="=cmd|'/C calc'!A0",
            caveat="copied from the user's directory",
        ),
        captured_job(2, minutes=2, request_key="NOVA-0231", script=b"two again"),
        captured_job(3, cluster="../../etc", minutes=3, script=b"three"),
    )
    return list(ArchivedJob.objects.order_by("pk"))


def content(response):
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(response.getvalue())) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


@pytest.mark.parametrize("route", ["archive:tar", "api:archived-job-tar"])
def test_selected_jobs_come_with_safe_names(client, archived, shifter, route):
    client.force_login(shifter)

    files = content(client.get(reverse(route), {"id": [job.pk for job in archived]}))

    assert sorted(name for name in files if name.endswith("script")) == [
        "_.._etc/3.20261120T091500.000000/script",
        "alps/1.20261120T091200.000000/script",
        "alps/2.20261120T091300.000000/script",
        "alps/2.20261120T091400.000000/script",
    ]
    assert files["alps/1.20261120T091200.000000/script"] == b"one"
    assert files["alps/1.20261120T091200.000000/description"] == b"<xml/>"
    assert b"/home/ana" in files["alps/1.20261120T091200.000000/environment"]
    assert b"\ta b\tNOVA-0231\t" in files["jobs.tsv"]
    assert b"\t'=cmd|'/C calc'!A0\t" in files["jobs.tsv"]
    assert b"\tcopied from the user's directory\t" in files["jobs.tsv"]


@pytest.mark.parametrize("route", ["archive:tar", "api:archived-job-tar"])
def test_search_comes_whole_and_only_what_may_be_seen(client, archived, nova, route):
    client.force_login(people.person("visitor", ("shifter", nova)))

    files = content(client.get(reverse(route), {"cluster": "alps", "id": []}))
    some = content(client.get(reverse(route), {"id": [job.pk for job in archived[-2:]]}))

    assert len([name for name in files if name.endswith("/script")]) == 3
    assert not [name for name in files if "environment" in name or "description" in name]
    assert len([name for name in some if name.endswith("/script")]) == 1


def test_too_much_is_refused(client, archived, shifter, monkeypatch):
    client.force_login(shifter)
    api = reverse("api:archived-job-tar")
    assert client.get(reverse("archive:tar"))["Location"].startswith(reverse("archive:jobs"))
    assert client.get(api).status_code == 400
    assert client.get(api, {"text": "x"}).status_code == 400

    monkeypatch.setattr(bundle, "MOST_BYTES", 10)
    refused = client.get(reverse("archive:tar"), {"cluster": "alps"})
    assert refused["Location"] == f"{reverse('archive:jobs')}?cluster=alps"
    assert client.get(api, {"cluster": "alps"}).status_code == 400


def test_damaged_content_is_left_out_and_told(client, archived, shifter):
    Blob.objects.filter(pk=archived[0].script_id).update(data=b"no")
    client.force_login(shifter)

    files = content(client.get(reverse("archive:tar"), {"id": archived[0].pk}))

    assert "alps/1.20261120T091200.000000/script" not in files
    assert b"\tscript\n" in files["jobs.tsv"]


def test_tar_of_many_asks_no_more_often(client, shifter, db, django_assert_max_num_queries):
    store(*(captured_job(i, minutes=i) for i in range(1, 24)))
    client.force_login(shifter)

    with django_assert_max_num_queries(18):
        content(client.get(reverse("archive:tar"), {"cluster": "alps"}))


def test_memory_is_bounded_whatever_the_contents(shifter, db):
    store(*(captured_job(i, minutes=i, script=os.urandom(4_000_000)) for i in range(1, 11)))
    jobs = list(archived_jobs_for_list(shifter))
    tracemalloc.start()
    try:
        sent = sum(len(part) for part in bundle.tar_of(jobs, user=shifter))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent > 40_000_000
    assert peak < 32_000_000


def test_descriptions_count_as_well(archived, monkeypatch):
    job = archived[0]
    monkeypatch.setattr(bundle, "MOST_BYTES", job.script_bytes + job.environment_bytes)
    with pytest.raises(bundle.BundleTooLarge):
        bundle.check_size([job])
