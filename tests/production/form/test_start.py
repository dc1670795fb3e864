"""The page where a new request starts, and copies of earlier requests with new names."""

import pytest

from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.templates import save_template
from apps.production.domain.types.versions import load_builtin_workflows
from apps.production.models import Request, WorkflowType
from tests.factories import clusters
from tests.factories.requests import AT, draft, request_in
from tests.pages import text_of

START = "/requests/start/"


@pytest.fixture
def earlier(nova, liaison, approver):
    return request_in(
        "submitted", by=liaison, experiment=nova, approver=approver, title="Last year's muons"
    )


def test_start_offers_types_templates_and_earlier_requests_of_ones_experiments(
    nova, dune, liaison, other_liaison, earlier, browse
):
    load_builtin_workflows(at=AT)
    WorkflowType.objects.filter(key="skim").update(experiment=dune)
    save_template(request=earlier, name="Muons", by=liaison, at=AT)
    draft(liaison, nova, title="Not submitted")
    text = text_of(browse(liaison).get(START))
    assert [
        word in text for word in ("Monte Carlo", "Skim", "Muons", "Last year", "Not submitted")
    ] == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert "Last year" not in text_of(browse(other_liaison).get(START))


def test_start_says_what_keep_up_needs_and_whether_it_is_there(liaison, browse, settings, tmp_path):
    load_builtin_workflows(at=AT)
    clusters.cluster(submits=True)
    text = text_of(browse(liaison).get(START))
    assert "Needs an input dataset whose files the dataset catalogue lists." in text
    assert (
        "Such requests cannot be submitted now: No catalogue that lists files is configured."
        in text
    )
    catalogue = tmp_path / "datasets.json"
    catalogue.write_text('{"datasets": []}')
    settings.DATASET_CATALOGUE = f"file:{catalogue}"
    text = text_of(browse(liaison).get(START))
    assert "Needs an input dataset" in text
    assert "cannot be submitted now" not in text


def test_start_is_for_liaisons(shifter, browse):
    assert browse(shifter).get(START).status_code == 403


@pytest.mark.parametrize(
    ("words", "found"), [("muons", True), ("nova.mc.sim", True), ("neutrons", False), ("\0", False)]
)
def test_earlier_requests_are_found_by_key_title_or_output(
    words, found, nova, liaison, earlier, browse
):
    assert (earlier.key in text_of(browse(liaison).get(START, {"text": words}))) is found


def test_copy_has_everything_filled_in_and_new_names_for_its_outputs(
    nova, liaison, earlier, browse
):
    answer = browse(liaison).post(f"/requests/{earlier.key}/clone/", {"names": "next"}, follow=True)
    made = Request.objects.get(cloned_from=earlier)
    assert answer.redirect_chain[-1][0] == f"/requests/{made.key}/edit/"
    assert "Its output datasets have new names." in text_of(answer)
    assert "Rename output datasets" not in text_of(answer)
    stages = content_of(made).stages
    assert [stage.output_dataset for stage in stages] == [
        "nova.mc.generation_v2",
        "nova.mc.simulation_v2",
    ]
    assert [stage.memory_bytes for stage in stages] == [4_000_000_000] * 2
