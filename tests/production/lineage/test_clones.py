"""Clones and templates: what they keep, what they say was lost, and who may."""

from dataclasses import replace

import pytest

from apps.core.errors import InvalidFields, NotAllowed
from apps.core.models import Event
from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.clones import (
    clone_request,
    next_name,
    take_next_names,
    taken_names,
)
from apps.production.domain.lineage.templates import (
    content_from,
    delete_template,
    rename_template,
    save_template,
)
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.types.declaration import builtin_texts
from apps.production.domain.types.versions import (
    load_builtin_workflows,
    newest_version,
    save_workflow,
    workflow_of,
)
from apps.production.models import Request, RequestTemplate, WorkflowType, WorkflowVersion
from apps.production.web.forms.request import typed
from tests.factories.requests import AT, content, draft, request_in, stage
from tests.factories.workflows import monte_carlo


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("nova.mc.gen", "nova.mc.gen_v2"),
        ("nova.mc.gen_v2", "nova.mc.gen_v3"),
        ("nova_v09_x", "nova_v10_x"),
        ("a.v1.b-v2", "a.v1.b-v3"),
        ("rev2", "rev2_v2"),
        ("V9", "V10"),
        ("", ""),
    ],
)
def test_name_of_the_next_version(name, following):
    assert next_name(name) == following


def clone(request, by, at=AT):
    return clone_request(request=Request.objects.get(pk=request.pk), by=by, at=at)


def test_clone_holds_the_same_and_both_pages_link_to_the_other(nova, liaison, samweb, browse):
    made = draft(liaison, nova, stages=(stage("a", services=("samweb",)), stage("b")))
    browse(liaison).post(f"/requests/{made.key}/clone/")
    copy = Request.objects.get(key="NOVA-0002")

    assert content_of(copy) == replace(content_of(made), deadline=None)
    assert copy.cloned_from == made
    assert "NOVA-0002" in browse(liaison).get("/requests/NOVA-0001/").content.decode()
    assert "Cloned from" in browse(liaison).get("/requests/NOVA-0002/").content.decode()
    assert Event.objects.get(kind="request.cloned").data == {"clone": "NOVA-0002"}


def test_clone_leaves_the_deadline_out_and_says_so(nova, liaison):
    made = draft(liaison, nova)
    assert made.deadline is not None
    copy, notes = clone(made, liaison, at=AT)
    assert copy.deadline is None
    assert "The deadline was not copied." in notes


def test_only_a_liaison_clones(nova, liaison, other_liaison, approver, browse):
    made = draft(liaison, nova)
    assert browse(approver).post(f"/requests/{made.key}/clone/").status_code == 403
    assert browse(other_liaison).post(f"/requests/{made.key}/clone/").status_code == 404
    assert Request.objects.count() == 1


def test_outputs_of_a_clone_get_new_names_along_the_chain(nova, liaison, browse):
    chain = (stage("a"), stage("b", input_dataset="nova.mc.a"), stage("c", input_dataset="raw_v1"))
    copy, _ = clone(draft(liaison, nova, stages=chain), liaison)
    page = browse(liaison).get(f"/requests/{copy.key}/edit/").content.decode()
    assert "nova.mc.a_v2" in page

    form = dict(typed(content_of(copy), version=copy.version, experiment="NOVA").lists())
    form |= {"title": "Typed before Rename", "do": "rename"}
    browse(liaison).post(f"/requests/{copy.key}/edit/", form)

    copy = Request.objects.get(pk=copy.pk)
    assert copy.title == "Typed before Rename"
    stages = content_of(copy).stages
    assert [(s.input_dataset, s.output_dataset) for s in stages] == [
        ("", "nova.mc.a_v2"),
        ("nova.mc.a_v2", "nova.mc.b_v2"),
        ("raw_v1", "nova.mc.c_v2"),
    ]
    assert (
        "Rename output datasets"
        not in browse(liaison).get(f"/requests/{copy.key}/edit/").content.decode()
    )


def test_second_clone_is_offered_a_name_that_the_first_has_not_taken(nova, liaison, approver):
    made = draft(liaison, nova, stages=(stage("a", output_dataset="nova.mc.a_v2"),))
    request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("a", output_dataset="nova.mc.a_v3"),),
    )
    copy, _ = clone(made, liaison)
    assert taken_names(Request.objects.get(pk=copy.pk)) == [("nova.mc.a_v2", "nova.mc.a_v4")]


@pytest.fixture
def typed_request(nova, liaison):
    load_builtin_workflows(at=AT)
    return draft(
        liaison, nova, **vars(monte_carlo(workflow=workflow_of(newest_version("monte_carlo"))))
    )


def keep(request, by, name="Rock muons"):
    return save_template(request=Request.objects.get(pk=request.pk), name=name, by=by, at=AT)


def test_template_begins_a_request_with_all_but_the_deadline(typed_request, liaison, browse):
    template = keep(typed_request, liaison)
    content = content_from(template)
    assert content.content == replace(content_of(typed_request), deadline=None)
    assert content.notes == []

    page = browse(liaison).get(f"/requests/new/?template={template.pk}")
    forms = page.context["stages"]
    assert [form["name"].value() for form in forms] == ["generation", "reco"]
    assert forms[0]["generator"].value() == "GENIE"


def test_new_version_tells_what_could_not_be_kept(typed_request, liaison):
    template = keep(typed_request, liaison)
    text = (
        builtin_texts()["monte_carlo"]
        .replace("name: generator,", "name: creator,")
        .replace("name: generator\n", "name: creator\n")
    )
    text = text.replace("  reconstruction:\n", "  rebuilding:\n").replace(
        "reconstruction]", "rebuilding]"
    )
    save_workflow(
        workflow_type=WorkflowType.objects.get(key="monte_carlo"), declaration=text, by="a", at=AT
    )

    content = content_from(template)

    assert content.content.workflow.number == 2
    assert "Converted from version 1 to version 2 of Monte Carlo." in content.notes
    assert any("“generator” was dropped. Its value was GENIE." in note for note in content.notes)
    assert any("no stages of the kind “reconstruction”" in note for note in content.notes)
    assert [s.name for s in content.content.stages] == ["generation", "reco"]


@pytest.mark.parametrize("gone", ["disabled", "deleted"])
def test_template_of_a_type_that_is_gone_is_mapped_and_says_so(
    gone, typed_request, nova, liaison, browse
):
    template = keep(typed_request, liaison)
    if gone == "disabled":
        WorkflowType.objects.filter(key="monte_carlo").update(enabled=False)
    else:
        Request.objects.all().delete()
        WorkflowVersion.objects.filter(type__key="monte_carlo").delete()
        WorkflowType.objects.filter(key="monte_carlo").delete()

    answer = browse(liaison).get(f"/requests/new/?template={template.pk}")
    page = answer.content.decode()

    assert answer.status_code == 200
    assert "is no longer available. This request has the type General" in page
    assert "“generator” was dropped. Its value was GENIE." in page
    assert [form["name"].value() for form in answer.context["stages"]] == ["generation", "reco"]
    assert RequestTemplate.objects.get().content == template.content


def test_clone_of_a_disabled_type_says_what_was_lost(typed_request, liaison):
    WorkflowType.objects.filter(key="monte_carlo").update(enabled=False)
    copy, notes = clone(typed_request, liaison)
    assert copy.workflow.type.key == "general"
    assert any("“run_block” was dropped" in note for note in notes)


@pytest.mark.parametrize(
    ("role", "may"),
    [("liaison", True), ("approver", True), ("shifter", True), ("other_liaison", False)],
)
def test_who_manages_templates(role, may, nova, liaison, browse, request):
    made, client = draft(liaison, nova), browse(request.getfixturevalue(role))
    assert (client.post(f"/requests/{made.key}/template/", {"name": "T"}).status_code == 302) is may
    template = RequestTemplate.objects.first() or keep(made, liaison)
    assert (template.name in client.get("/requests/templates/").content.decode()) is may
    assert (
        client.post(f"/requests/templates/{template.pk}/rename/", {"name": "U"}).status_code == 302
    ) is may
    assert (client.post(f"/requests/templates/{template.pk}/delete/").status_code == 302) is may
    assert RequestTemplate.objects.exists() is not may


def test_services_refuse_others(nova, liaison, other_liaison):
    made = draft(liaison, nova)
    template = keep(made, liaison)
    for attempt in (
        lambda: keep(made, other_liaison),
        lambda: rename_template(template=template, name="x", by=other_liaison, at=AT),
        lambda: delete_template(template=template, by=other_liaison, at=AT),
    ):
        with pytest.raises(NotAllowed):
            attempt()


def test_names_of_templates_are_one_each(nova, liaison, browse):
    made = draft(liaison, nova)
    keep(made, liaison, "A")
    save_draft(request=made, content=content(title="newer"), version=1, by=liaison, at=AT)
    keep(made, liaison, "A")
    assert RequestTemplate.objects.get().content["title"] == "newer"
    other = keep(made, liaison, "B")
    with pytest.raises(InvalidFields):
        rename_template(template=other, name="A", by=liaison, at=AT)
    answer = browse(liaison).post(f"/requests/templates/{other.pk}/rename/", {"name": "A"})
    assert (answer.status_code, RequestTemplate.objects.count()) == (400, 2)
    for name in ("", "x" * 81, "\0"):
        with pytest.raises(InvalidFields):
            keep(made, liaison, name)


def test_template_of_another_experiment_is_not_found(nova, liaison, other_liaison, browse):
    template = keep(draft(liaison, nova), liaison)
    assert browse(other_liaison).get(f"/requests/new/?template={template.pk}").status_code == 404


def test_templates_come_some_at_a_time(nova, liaison, browse, monkeypatch):
    monkeypatch.setattr("apps.production.web.views.templates.PAGE", 2)
    request = draft(liaison, nova)
    for name in "CAB":
        save_template(request=request, name=f"Kept as {name}", by=liaison, at=AT)
    first = browse(liaison).get("/requests/templates/")
    assert [one.name for one, *_ in first.context["rows"]] == ["Kept as A", "Kept as B"]
    rest = browse(liaison).get(f"/requests/templates/?after={first.context['more'].pk}")
    assert [one.name for one, *_ in rest.context["rows"]] == ["Kept as C"]
    assert rest.context["more"] is None
    assert "First page" in rest.content.decode()
    assert (
        "No more templates"
        in browse(liaison)
        .get(f"/requests/templates/?after={rest.context['rows'][0][0].pk}")
        .content.decode()
    )


@pytest.mark.parametrize(
    ("name", "releases", "new"),
    [
        ("nova.mc.v09_72.reco", {"v09_72": "v09_72"}, "nova.mc.v09_72.reco_v2"),
        ("nova.mc.v09_72.reco", {"v09_72": "v10_01"}, "nova.mc.v10_01.reco"),
        ("nova_v09_72_reco_v3", {"v09_72": "v09_72"}, "nova_v09_72_reco_v4"),
        ("nova_v09_72_reco_v3", {"v09_72": "v10_01"}, "nova_v10_01_reco_v3"),
        ("nova.v09.72.reco", {"v09_72": "v10_01"}, "nova.v10.01.reco"),
        ("nova.v09_721.reco", {"v09_72": "v10_01"}, "nova.v09_721.reco_v2"),
        ("prod_v09_70_reco_2026", {"v09_72": "v09_72"}, "prod_v09_70_reco_2026_v2"),
        ("prod_v09_70_reco_2026_v2", {"v09_72": "v09_72"}, "prod_v09_70_reco_2026_v3"),
        ("x.v1.v1_2", {"v1": "v2", "v1_2": "v1_3"}, "x.v2.v1_3"),
        ("nova.mc.reco", {"v09_72": "v10_01", "": "x"}, "nova.mc.reco_v2"),
        ("nova.v09_72.reco", {"v09_72": ""}, "nova.v09_72.reco_v2"),
    ],
)
def test_release_in_a_name_is_no_version_of_the_dataset(name, releases, new):
    assert next_name(name, releases) == new


def test_clone_of_another_release_is_offered_names_of_its_own_release(nova, liaison, browse):
    stages = (
        stage("a", release="v1_2", output_dataset="x.v1_2"),
        stage("b", release="v1_2", input_dataset="x.v1_2"),
    )
    made = draft(liaison, nova, stages=stages)
    clone, _ = clone_request(request=made, by=liaison, at=AT)
    newer = tuple(replace(one, release="v2_0") for one in stages)
    save_draft(request=clone, content=content(stages=newer), version=1, by=liaison, at=AT)
    assert taken_names(Request.objects.get(pk=clone.pk))[0] == ("x.v1_2", "x.v2_0")
    renamed = take_next_names(request=Request.objects.get(pk=clone.pk), by=liaison, at=AT)
    first, second = renamed.stages.all()
    assert (first.output_dataset, second.input_dataset) == ("x.v2_0", "x.v2_0")
