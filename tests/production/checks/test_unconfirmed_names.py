"""Names of other experiments, their workflow types and datasets:
“does not exist” and “not yours” read the same.
"""

import json
from dataclasses import replace

import pytest

from apps.core.errors import InvalidFields
from apps.production.domain.checks.facts import facts_for
from apps.production.domain.checks.report import run_checks
from apps.production.domain.requests.exchange import InvalidText, read_import
from apps.production.domain.types.declaration import builtin_texts, general_workflow
from apps.production.domain.types.versions import load_builtin_workflows, save_workflow
from apps.production.models import WorkflowType
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, request_in, stage


@pytest.fixture
def secret_type(dune):
    made = WorkflowType.objects.create(key="dune_secret", experiment=dune)
    save_workflow(
        workflow_type=made,
        declaration=builtin_texts()["general"].replace("title: ", "title: Secret ", 1),
        by="x",
        at=AT,
    )
    return made


def faults(text, by):
    with pytest.raises(InvalidText) as error:
        read_import(text, by=by, at=AT)
    return [(fault.line, fault.path, fault.message) for fault in error.value.faults]


def masked(found, *names):
    text = repr(found)
    for name in names:
        text = text.replace(name, "NAME")
    return text


def test_import_answers_the_same_for_absent_and_foreign_names(nova, dune, liaison, secret_type):
    load_builtin_workflows(at=AT)
    foreign, absent = (faults(f"experiment: {key}\n", liaison) for key in ("DUNE", "NONE"))
    assert masked(foreign, "DUNE") == masked(absent, "NONE")
    for head in ("experiment: NOVA\n", ""):
        foreign, absent = (
            faults(f"{head}workflow: {key}\n", liaison) for key in ("dune_secret", "absent_type")
        )
        assert masked(foreign, "dune_secret") == masked(absent, "absent_type")
        assert "Secret" not in repr(foreign)


def test_api_answers_the_same_for_absent_and_foreign_names(
    nova, dune, liaison, shifter_of_nova, secret_type, api
):
    def answers(by, address, name, *values):
        sent = [api(by).post(f"/api/v1/{address}/", json.loads(f'{{"reason": "x", {name}}}' % value), format="json")
                for value in values]  # fmt: skip
        return [(one.status_code, masked(one.json(), *values)) for one in sent]

    foreign, absent = answers(liaison, "requests", '"experiment": "%s"', "DUNE", "NONE")
    assert foreign == absent
    workflow = '"experiment": "NOVA", "workflow": "%s"'
    foreign, absent = answers(liaison, "requests", workflow, "dune_secret", "absent_type")
    assert foreign == absent
    foreign, absent = answers(shifter_of_nova, "holds", '"experiment": "%s"', "DUNE", "NONE")
    assert foreign == absent


def test_page_of_holds_offers_own_experiments_only(nova, dune, shifter_of_nova, browse):
    page = browse(shifter_of_nova).get("/requests/holds/").content.decode()
    assert 'value="NOVA"' in page
    assert 'value="DUNE"' not in page


@pytest.fixture
def shifter_of_nova(nova):
    return person("nova-shifter", ("shifter", nova))


@pytest.fixture
def catalogue(tmp_path, settings):
    names = ["dune.raw", "dune.made", "nova.raw", "nova.made"]
    path = tmp_path / "datasets.json"
    path.write_text(
        json.dumps({"datasets": [{"name": name, "files": 3, "events": 7} for name in names]})
    )
    settings.DATASET_CATALOGUE = f"file:{path}"


def found(made, by):
    facts = facts_for(made, experiment=by, at=AT)
    return [
        (run_check.rule, run_check.path, run_check.message) for run_check in run_checks(made, facts)
    ]


def reading(name, output="nova.new"):
    return content(stages=(stage(input_dataset=name, output_dataset=output),))


def test_checks_answer_the_same_for_absent_and_foreign_datasets(
    nova, dune, liaison, other_liaison, approver, catalogue
):
    request_in(
        "queued",
        by=other_liaison,
        experiment=dune,
        approver=approver,
        stages=(stage(output_dataset="dune.made"),),
    )
    draft(liaison, nova)
    for made in (reading, lambda name: reading("nova.raw", name)):
        foreign, absent = (found(made(name), nova) for name in ("dune.made", "absent.made"))
        assert masked(foreign, "dune.made") == masked(absent, "absent.made")
    own = request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage(output_dataset="nova.made"),),
    )
    assert any(
        own.key in message for _, _, message in found(reading("nova.raw", "nova.made"), nova)
    )
    assert not any(rule == "input_exists" for rule, *_ in found(reading("nova.raw"), nova))


def test_unknown_type_of_a_draft_reads_like_a_foreign_one(nova, dune, liaison, secret_type):
    said = []
    for key in ("dune_secret", "absent_type"):
        with pytest.raises(InvalidFields) as error:
            draft(liaison, nova, workflow=replace(general_workflow(), key=key))
        said.append(masked(error.value.problems, key))
    assert said[0] == said[1]
