"""Pages of a request read what several of their parts need once."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.factories.requests import S, request_in

#: Queries that these pages run only to read the queue, or the data quality.
QUEUE_ENTRIES = 'WHERE "production_queueentry"."is_queued" ORDER BY'
WAIVERS = 'FROM "quality_waiver"'


@pytest.fixture
def count_reads(client, liaison, nova, approver):
    """Return a function that counts how often the page of a request runs a query."""

    def count(state, sql: str, *, user, edits: bool = False) -> int:
        request = request_in(state, by=liaison, experiment=nova, approver=approver)
        url = request.get_absolute_url()
        if edits:
            url = reverse("production:request-edit", args=[request.key]) + "?check=1"
        client.force_login(user)
        with CaptureQueriesContext(connection) as queries:
            page = client.get(url)
        assert page.status_code == 200
        return len([query for query in queries if sql in query["sql"]])

    return count


def test_request_page_reads_queue_once_before_approval(count_reads, approver):
    assert count_reads(S.AWAITING_APPROVAL, QUEUE_ENTRIES, user=approver) == 1


def test_form_reads_queue_once(count_reads, liaison):
    assert count_reads(S.DRAFT, QUEUE_ENTRIES, user=liaison, edits=True) == 1


def test_request_page_reads_data_quality_once(count_reads, approver):
    assert count_reads(S.DATA_QUALITY, WAIVERS, user=approver) == 1
