"""The table of stages: a new row has proposed values, and rows come from a spreadsheet."""

import pytest

from apps.production.domain.content.model import MAX_STAGES
from apps.production.domain.types.versions import load_builtin_workflows
from apps.production.models import Request
from apps.production.web.forms.request import typed
from apps.production.web.forms.spreadsheet import read_table
from tests.factories.history import history
from tests.factories.requests import AT, content, request_in, stage
from tests.factories.workflows import monte_carlo_chain
from tests.pages import text_of

NEW = "/requests/new/"


def post_of(written, **more) -> dict:
    return dict(typed(written, **more).lists())


@pytest.fixture
def form(liaison, browse):
    return browse(liaison)


def values_of(page, *names: str) -> list[tuple]:
    rows = []
    for stage_form in page.context["stages"]:
        row = []
        for name in names:
            row.append(stage_form[name].value() or "" if name in stage_form.fields else None)
        rows.append(tuple(row))
    return rows


def test_new_row_reads_what_the_stage_before_writes_and_has_what_past_jobs_needed(
    nova, liaison, approver, form
):
    load_builtin_workflows(at=AT)
    history(
        request_in("queued", by=liaison, experiment=nova, approver=approver),
        name="merge",
        memory_bytes=[1e9] * 5,
    )
    written = monte_carlo_chain()
    data = post_of(written, experiment="NOVA", do="add", add_kind="merge")
    page = form.post(NEW, data)
    *_, last = values_of(page, "name", "input_type", "memory_bytes", "wall_seconds", "release")
    assert last == ("merge", "reco", "2 GB", "4 h", "")
    assert page.context["shared"]["release"].value() == "v09_72"
    assert Request.objects.count() == 1


HTMX = {"HX-Request": "true"}


@pytest.mark.parametrize("stages", [1, 3])
def test_new_row_comes_alone_to_a_page_that_can_take_it(stages, nova, form):
    chain = tuple(stage(f"s{number}") for number in range(stages))
    data = post_of(content(stages=chain), experiment="NOVA", do="add")
    answer = form.post(NEW, data, headers=HTMX)
    page = answer.content.decode()
    assert (answer["HX-Retarget"], answer["HX-Reswap"]) == (
        "#stages > .foot",
        "beforebegin settle:0ms",
    )
    assert page.count("data-stage") == 1
    assert f'id="stage-{stages + 1}"' in page
    assert f'value="{stages + 1}" hx-swap-oob="true"' in page
    assert f'value="down-{stages - 1}"' in page, "the stage before can now move down"
    assert ("beforebegin:#buttons-0" in page) == (stages == 1), "a single stage differs from none"
    assert "<html" not in page
    assert Request.objects.count() == 0


@pytest.mark.parametrize("stages", [0, MAX_STAGES])
def test_whole_table_comes_with_the_first_row_and_where_none_can_be_added(stages, nova, form):
    chain = tuple(stage(f"s{number}") for number in range(stages))
    data = post_of(content(stages=chain), experiment="NOVA", do="add")
    answer = form.post(NEW, data, headers=HTMX)
    assert "HX-Retarget" not in answer
    assert 'id="stages"' in answer.content.decode()
    assert len(answer.context["stages"]) == (stages or 1)


def test_button_goes_with_the_last_row_that_can_be_added(nova, form):
    chain = tuple(stage(f"s{number}") for number in range(MAX_STAGES - 1))
    data = post_of(content(stages=chain), experiment="NOVA", do="add")
    page = form.post(NEW, data, headers=HTMX).content.decode()
    assert f"The maximum of {MAX_STAGES} stages is reached." in page
    assert 'id="add-stage" hx-swap-oob="true"' in page


def test_rows_of_a_spreadsheet_fill_the_table_and_add_stages(nova, form):
    pasted = (
        "Stage\tRelease\tConfig\tEvents\tJobs\tMemory\tWall time\tColour\r\n"
        "gen\tv10\tgenie.fcl\t1 M\t100\t2 GB\t4 h\tred\r\n"
        "\t\t\t\t\t\t\t\r\n"
        'reco\tv10\t"reco.fcl"\t1 M\t50\t4 GB\t8 h\t\r\n'
    )
    data = post_of(content(stages=(stage("a"),)), experiment="NOVA", do="paste", pasted=pasted)
    page = form.post(NEW, data)
    assert values_of(page, "name", "configuration", "jobs", "memory_bytes", "output_dataset") == [
        ("gen", "genie.fcl", "100", "2 GB", "nova.mc.a"),
        ("reco", "reco.fcl", "50", "4 GB", ""),
    ]
    # What is the same in all rows is entered once.
    assert page.context["shared"]["release"].value() == "v10"
    assert page.context["shared"]["events"].value() == "1 M"
    assert "Column “Colour” is not a field of a stage." in text_of(page)


def test_cells_without_titles_begin_at_the_field_where_they_are_pasted(nova, form):
    stages = (stage("a"), stage("b"), stage("c"))
    data = post_of(content(stages=stages), experiment="NOVA", do="paste")
    data |= {"pasted": "new.b\t10\nnew.c\t20", "paste_at": "id_stages-1-output_dataset"}
    page = form.post(NEW, data)
    assert values_of(page, "name", "output_dataset", "jobs") == [
        ("a", "nova.mc.a", "4,000"),
        ("b", "new.b", "10"),
        ("c", "new.c", "20"),
    ]


def test_kind_of_a_pasted_stage_follows_from_its_name(nova, form):
    load_builtin_workflows(at=AT)
    pasted = "evgen\tgenie.fcl\nG4\tg4.fcl\nreco\treco.fcl\nmerge\tconcat.fcl"
    page = form.get(f"{NEW}?workflow=monte_carlo")
    sent = dict(page.context["main"].data.lists()) | {"do": "paste", "pasted": pasted}
    page = form.post(NEW, sent)
    assert [stage_form.type.key for stage_form in page.context["stages"]] == [
        "generation",
        "simulation",
        "reconstruction",
        "merge",
    ]
    assert values_of(page, "name", "output_type")[:2] == [("evgen", "gen"), ("G4", "sim")]
    assert page.context["stages"][3]["input_type"].value() == "reco"


@pytest.mark.parametrize(
    ("pasted", "note"),
    [("", "Paste rows first."), ("\0", ""), ("a\n" * 101, "A request has at most 100 stages.")],
)
def test_what_is_no_table_is_a_clear_note(pasted, note, nova, form):
    data = post_of(content(stages=()), experiment="NOVA", do="paste", pasted=pasted)
    page = form.post(NEW, data)
    assert page.status_code == 200
    assert note in text_of(page)
    assert len(page.context["stages"]) <= 100


def test_hostile_cells_are_escaped(nova, form):
    pasted = "name\tjobs\t<b>x</b>\n<script>\t1\t"
    data = post_of(content(stages=()), experiment="NOVA", do="paste", pasted=pasted)
    html = form.post(NEW, data).content.decode()
    assert '<script>"' not in html
    assert "<b>x</b>" not in html
    assert "&lt;script&gt;" in html


def test_row_of_names_alone_is_no_row_of_titles(db):
    table = read_table("merge\tname.fcl", content().workflow)
    assert table.rows == [{"name": "merge", "configuration": "name.fcl"}]
