"""Workflow types, and requests of them, for tests."""

from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.declaration import builtin_texts, read_declaration
from apps.production.domain.types.versions import save_workflow, workflow_of
from apps.production.models import WorkflowType
from tests.factories.requests import AT, content, stage


def builtin(key: str, **more):
    """A type that comes with the portal, read from its declaration."""
    return read_declaration(builtin_texts()[key], key=key, **more)


def workflow(key: str, declaration: str):
    """A type of the database, of one version."""
    kind = WorkflowType.objects.create(key=key)
    return workflow_of(save_workflow(workflow_type=kind, declaration=declaration, by="test", at=AT))


def of_type(key: str, **changes: object) -> RequestContent:
    """A request of a type that comes with the portal."""
    return content(workflow=builtin(key, number=1), **changes)


def monte_carlo(**changes) -> RequestContent:
    """A request for simulated events that passes every check."""
    generation = stage(
        "generation",
        kind="generation",
        arguments={
            "generator": "GENIE",
            "generator_version": "3_04_02",
            "geometry": "nd-v6",
            "output_type": "gen",
        },
    )
    reco = stage(
        "reco", kind="reconstruction", arguments={"input_type": "gen", "output_type": "reco"}
    )
    values = {
        "workflow": builtin("monte_carlo"),
        "arguments": {"run_block": "900001-904000", "first_seed": 1},
        "stages": (generation, reco),
    }
    return content(**{**values, **changes})


def monte_carlo_chain(**changes) -> RequestContent:
    """A request for simulated events in four stages."""
    tiers = {"generation": "gen", "simulation": "sim", "reconstruction": "reco", "merge": "reco"}
    generator = {"generator": "GENIE", "generator_version": "3_04_02", "geometry": "nd-v6"}
    stages, read = [], ""
    for kind, written in tiers.items():
        own = {"input_type": read} if read else generator
        stages.append(stage(kind, kind=kind, arguments={**own, "output_type": written}))
        read = written
    return monte_carlo(
        **{"workflow": builtin("monte_carlo", number=1), "stages": tuple(stages), **changes}
    )
