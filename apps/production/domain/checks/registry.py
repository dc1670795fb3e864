"""Which rules there are: those that come with the portal, in the order of their pages, and third parties'."""

from collections.abc import Mapping
from importlib import import_module

from apps.core.domain.plugins import Registry
from apps.production.domain.checks.base import Rule, Severity

#: The built-in rules by the module that has them.
_BUILTIN: Mapping[str, tuple[str, ...]] = {
    "shape": ("lengths", "stage_count", "number_ranges", "known_values", "arguments"),
    "request": (
        "required",
        "deadline_ahead",
        "priority_reason",
        "stage_names",
        "plain_names",
        "deadline_near",
        "purpose_says_enough",
        "title_says_enough",
        "reason_without_priority",
    ),
    "chain": (
        "chain",
        "counts",
        "output_type",
        "event_totals",
        "maker_reads_nothing",
        "first_reads_something",
        "one_release",
        "one_geometry",
    ),
    "sizes": (
        "events_per_job",
        "even_jobs",
        "file_size",
        "merge_size",
        "merge_jobs",
        "jobs_have_files",
        "seed_room",
        "stop_ahead",
        "stop_by_deadline",
        "split_is_whole",
        "cap_keeps_up",
        "cadence_within_latency",
        "fits_a_cluster",
    ),
    "world": (
        "services_up",
        "no_downtime",
        "run_block_free",
        "runs_not_done_before",
        "seeds_free",
        "title_not_taken",
        "output_not_taken",
        "catalogue_answers",
        "output_is_new",
        "input_exists",
        "input_not_empty",
        "input_counts",
        "contact_is_member",
    ),
    "history": (
        "deadline_reachable",
        "wall_is_enough",
        "wall_not_far_too_much",
        "memory_is_enough",
        "job_length",
        "known_release",
        "services_as_before",
        "tried_configuration",
        "test_is_newer",
    ),
}

RULES: Registry[Rule] = Registry(
    group="opsportal.request_checks",
    builtins={
        name: f"apps.production.domain.checks.{module}:{name}" for module, names in _BUILTIN.items() for name in names
    },
)


def rules() -> dict[str, Rule]:
    """Return every rule that works by its name: the built-in ones in their order, then third parties'."""
    working = RULES.working()
    order = {name: place for place, name in enumerate(RULES.builtins)}
    return {name: working[name] for name in sorted(working, key=lambda name: (order.get(name, len(order)), name))}


def _shape() -> dict[str, Rule]:
    module = import_module("apps.production.domain.checks.shape")
    found = {name: getattr(module, name) for name in _BUILTIN["shape"]}
    return {name: one for name, one in found.items() if one.severity == Severity.STOP}


#: Without these a draft cannot be saved. A third party's rules never keep a draft from being saved.
SHAPE: Mapping[str, Rule] = _shape()
