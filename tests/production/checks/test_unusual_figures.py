"""Unusual memory, jobs, hours and run blocks are reported: at the field, in the rail,
on the desk and in the API.
"""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.urls import reverse

from apps.clusters.models import Host
from apps.production.domain.checks.facts import facts_for
from apps.production.domain.content.stages import content_of
from apps.production.models import Request
from apps.production.web.forms.request import typed
from tests.factories.clusters import cluster
from tests.factories.history import history
from tests.factories.requests import AT, S, content, request_in, stage

UNUSUAL = {"memory_usual", "memory_fits_node", "jobs_usual", "hours_usual", "run_block_usual"}
ARGUMENTS = {"run_block": "900001-900100", "first_seed": 1}


@pytest.fixture
def huge(nova, liaison, approver):
    """A request of 900 GB and a million jobs; earlier ones were of 4 GB and 4,000 jobs,
    on nodes of 512 GB.
    """
    earlier = request_in(
        S.QUEUED, by=liaison, experiment=nova, approver=approver, stages=(stage(),)
    )
    Request.objects.filter(pk=earlier.pk).update(arguments=ARGUMENTS)
    history(earlier)
    host = Host(
        cluster=cluster(collects=True), name="node-1", memory_bytes=512 * 10**9, listed_at=AT
    )
    host.save()
    stages = (stage(memory_bytes=900 * 10**9, jobs=1_000_000, wall_seconds=28_817),)
    request = request_in(
        S.AWAITING_APPROVAL, by=liaison, experiment=nova, approver=approver, stages=stages
    )
    Request.objects.filter(pk=request.pk).update(
        arguments=ARGUMENTS | {"run_block": "910001-910200"}
    )
    return Request.objects.get(pk=request.pk)


def test_facts_are_those_of_the_experiment(huge, dune, nova):
    at = AT + timedelta(days=1)
    facts = facts_for(content_of(huge), experiment=nova, at=at, request=huge)
    assert [
        (earlier_stage.name, earlier_stage.jobs, earlier_stage.memory_bytes)
        for earlier_stage in facts.earlier_stages
    ] == [("generation", 4000, 4 * 10**9)]
    assert [(block.jobs, block.runs) for block in facts.earlier_blocks] == [(4000, 100)]
    assert facts.largest_node_bytes == 512 * 10**9
    assert facts.memory_used_bytes > 0
    others = facts_for(replace(content_of(huge)), experiment=dune, at=at)
    assert (others.earlier_stages, others.earlier_blocks, others.memory_used_bytes) == ((), (), 0)


def test_api_desk_and_page_report_them(huge, liaison, approver, browse):
    address = f"/api/v1/requests/{huge.key}/check/"
    answer = browse(liaison).post(address, {}, content_type="application/json").json()
    found = {finding["rule"]: finding for finding in answer["findings"]}
    assert found.keys() >= UNUSUAL
    assert not any(found[name]["blocks"] for name in UNUSUAL)
    assert found["jobs_usual"]["path"] == "stages.0.jobs"
    assert "8,004,722 h" in found["hours_usual"]["message"]

    for client, address in (
        (browse(approver), f"{reverse('production:desk')}?at={huge.key}"),
        (browse(approver), huge.get_absolute_url()),
    ):
        text = client.get(address).content.decode()
        assert "The largest known node has 512 GB of memory." in text
        assert "8,004,722 h if every job runs to its limit." in text


def test_form_shows_them_at_the_field_and_in_the_rail(huge, liaison, browse):
    written = content(title="Another sample", stages=content_of(huge).stages)
    client, sent = browse(liaison), dict(typed(written, experiment="NOVA", do="check").lists())
    message = "The largest known node has 512 GB of memory."
    assert (
        f"<span data-message>{message}</span>"
        in client.post("/requests/new/check/", sent).content.decode()
    )
    at_fields = re.findall(
        r'<ul class="errorlist advice">(.*?)</ul>',
        client.post("/requests/new/", sent).content.decode(),
    )
    assert any(message in field for field in at_fields)
