"""Rules for stages that merge the output files of an earlier stage."""

from collections.abc import Iterator

from apps.production.domain.checks.base import Facts, Problem, Severity, rule, stages
from apps.production.domain.checks.rules.chain import source_positions
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent


@rule(Severity.ERROR)
def merge_has_source(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A merge stage reads the output of an earlier stage, and has no parameter scan."""
    positions = source_positions(content)
    for position, stage in enumerate(content.stages):
        if not content.workflow.stage(stage.kind).merges:
            continue
        if positions[position] is None:
            path = f"stages.{position}.input_dataset"
            yield Problem(path, "A merge stage reads the output of an earlier stage. Choose one.")
        if content.scan.strip():
            yield Problem("scan", "A request with a merge stage cannot be a scan.")


@rule(Severity.ERROR)
def merge_comes_last(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """In keep-up processing, merge stages come after all other stages."""
    merges_before = False
    for position, stage in enumerate(content.stages):
        if content.workflow.stage(stage.kind).merges:
            merges_before = True
        elif merges_before and content.workflow.takes_files:
            yield Problem(
                f"stages.{position}.kind",
                "In keep-up processing, merge stages come last. Move this stage up.",
            )


@rule(Severity.ERROR)
def merge_groups_complete(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Groups of files to merge “by size” or “per N files” have a size or a number of files."""
    for path, stage in stages(content):
        if not content.workflow.stage(stage.kind).merges:
            continue
        split = text(stage, "split")
        if split == "by size" and not number(stage, "group_bytes"):
            yield Problem(f"{path}.arguments.group_bytes", "Enter the size of a group of files.")
        if split == "per N files" and not number(stage, "files_per_job"):
            yield Problem(
                f"{path}.arguments.files_per_job", "Enter the number of files of a group."
            )
