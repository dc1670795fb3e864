"""Values that a new request starts with: of the last request, of past jobs, and free numbers."""

import pytest

from apps.production.domain.lineage.proposals import propose_values
from apps.production.domain.types.versions import (
    load_builtin_workflows,
    newest_version,
    workflow_of,
)
from apps.production.web.forms.request import blank
from tests.factories.history import history
from tests.factories.requests import AT, draft, request_in
from tests.factories.workflows import monte_carlo_chain


@pytest.fixture
def monte_carlo(db):
    load_builtin_workflows(at=AT)
    return workflow_of(newest_version("monte_carlo"))


def test_first_request_of_an_experiment_has_types_and_no_numbers(monte_carlo, nova):
    content = propose_values(blank(monte_carlo), nova)
    types = []
    for stage in content.stages:
        types.append((stage.arguments.get("input_type"), stage.arguments["output_type"]))
    assert types == [(None, "gen"), ("gen", "sim"), ("sim", "reco")]
    assert content.arguments == {}


def test_values_of_the_last_request_and_of_past_jobs(monte_carlo, nova, liaison, approver, samweb):
    last = request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        **{
            name: getattr(monte_carlo_chain(), name) for name in ("workflow", "arguments", "stages")
        },
    )
    history(last, name="gen", memory_bytes=[1e9, 1.5e9, 2e9, 2.5e9, 3e9])
    content = propose_values(blank(monte_carlo), nova)
    generation, simulation, _ = content.stages
    assert (generation.release, generation.configuration) == ("v09_72", "generation.fcl")
    assert generation.arguments["generator"] == "GENIE"
    # The past jobs of a stage named gen count for generation: a little above what they used.
    assert (generation.memory_bytes, generation.wall_seconds) == (4_000_000_000, 4 * 3600)
    assert (simulation.memory_bytes, simulation.wall_seconds) == (4_000_000_000, 8 * 3600)
    assert (generation.retry_memory_bytes, generation.retry_wall_seconds) == (8 * 10**9, 8 * 3600)
    assert (simulation.retry_memory_bytes, simulation.retry_wall_seconds) == (None, None)
    assert (generation.output_dataset, generation.jobs, generation.events) == ("", None, None)


def test_run_numbers_and_seed_are_the_first_that_are_free(
    monte_carlo, nova, dune, liaison, other_liaison, approver
):
    def request_with(block: str, seed: int, state="queued", experiment=nova, by=liaison):
        arguments = {"run_block": block, "first_seed": seed}
        written = monte_carlo_chain(arguments=arguments)
        return request_in(
            state,
            by=by,
            experiment=experiment,
            approver=approver,
            workflow=written.workflow,
            arguments=arguments,
            stages=written.stages,
        )

    request_with("900001-904000", 1)
    request_with("1-10", 9_000)
    request_with("7000000-7000001", 90_000, state="cancelled")
    request_with("8000000-8000001", 80_000, experiment=dune, by=other_liaison)
    draft(
        liaison,
        nova,
        workflow=monte_carlo_chain().workflow,
        arguments={"run_block": "904001-904010"},
        stages=monte_carlo_chain().stages,
    )
    arguments = propose_values(blank(monte_carlo), nova).arguments
    assert arguments == {"run_block": "904011-904020", "first_seed": 13_000}
