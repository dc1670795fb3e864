"""Rules for parameter scans: each point needs its own datasets and an equal share of the jobs."""

from collections.abc import Iterator

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stages
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.scan import scan_of, texts_naming


@rule(Severity.ERROR)
def scan_readable(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A parameter scan lists parameters and values,
    and the workflow type has a fixed number of jobs.
    """
    if content.scan.strip() and content.workflow.takes_files:
        yield Problem("scan", "A request that processes files as they arrive cannot be a scan.")
    for fault in scan_of(content).faults:
        yield Problem("scan", fault)


@rule(Severity.ERROR)
def scan_used(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Each parameter of a scan changes what a stage runs,
    and no stage names a parameter that is not listed.
    """
    parameters = scan_of(content).parameters
    used = set[str]()
    if not parameters:
        return
    for path, stage in stages(content):
        for name, named in texts_naming(stage).items():
            used |= named if name != "output_dataset" else set()
            for unknown in sorted(named - parameters.keys()):
                yield Problem(f"{path}.{name}", f"The scan has no parameter “{unknown[:40]}”.")
    for name in parameters:
        if name not in used:
            yield Problem(
                "scan",
                f"No stage uses {name}. Write {{{name}}} in its configuration or an argument.",
            )


@rule(Severity.ERROR)
def scan_outputs(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Each point of a scan writes its own datasets."""
    scan = scan_of(content)
    varied = [name for name, values in scan.parameters.items() if len(values) > 1]
    for path, stage in stages(content):
        missing = [name for name in varied if f"{{{name}}}" not in stage.output_dataset]
        if stage.output_dataset and missing:
            named = stage.output_dataset + "".join(f"_{{{name}}}" for name in missing)
            field = f"{path}.output_dataset"
            message = f"All points would write to this dataset. Name {' and '.join(missing)} in it."
            yield Problem(field, message, Fix(f"Use {named}", {field: named}))


@rule(Severity.ERROR)
def scan_shares(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Jobs and events divide evenly among the points of a scan."""
    count = scan_of(content).count
    if count <= 1:
        return

    for path, stage in stages(content):
        for name, total in (("jobs", stage.jobs), ("events", stage.events)):
            if total and total % count:
                field = f"{path}.{name}"
                per_point = -(-total // count)
                more = per_point * count
                message = (
                    f"{total:,} {name} do not divide among {count} points. {name.capitalize()} "
                    "are totals."
                )
                yield Problem(
                    field, message, Fix(f"Use {more:,}, {per_point:,} per point", {field: more})
                )
