"""The registry of rules: built-in ones in the order of the documentation, then third-party ones."""

from collections.abc import Mapping
from importlib import import_module

from apps.core.domain.plugins import Registry
from apps.production.domain.checks.base import Rule, Severity

#: The built-in rules by module.
_BUILTIN: Mapping[str, tuple[str, ...]] = {
    "shape": ("lengths", "stage_count", "number_ranges", "known_values", "arguments"),
    "fields": (
        "required",
        "deadline_in_future",
        "priority_reason",
        "stage_names",
        "shell_safe_names",
        "deadline_within_two_years",
        "purpose_informative",
        "title_informative",
        "reason_without_priority",
    ),
    "chain": (
        "chain",
        "counts",
        "output_type",
        "event_totals",
        "generation_has_no_input",
        "first_stage_has_input",
        "same_release",
        "same_geometry",
    ),
    "sizes": (
        "events_per_job",
        "even_jobs",
        "file_size",
        "merge_size",
        "merge_jobs",
        "files_for_every_job",
        "seed_range",
        "stop_in_future",
        "stop_by_deadline",
        "split_complete",
        "job_cap_sufficient",
        "cadence_within_latency",
        "fits_cluster",
    ),
    "context": (
        "services_up",
        "no_downtime",
        "run_numbers_unique",
        "runs_not_processed",
        "seeds_unique",
        "title_unique",
        "output_unique",
        "catalogue_available",
        "output_is_new",
        "input_exists",
        "input_not_empty",
        "input_counts",
        "contact_is_member",
    ),
    "history": (
        "deadline_reachable",
        "wall_time_sufficient",
        "wall_time_not_excessive",
        "memory_sufficient",
        "job_length",
        "known_release",
        "usual_services",
        "configuration_tested",
        "test_up_to_date",
    ),
}

RULES: Registry[Rule] = Registry(
    group="opsportal.request_checks",
    builtins={
        name: f"apps.production.domain.checks.rules.{module}:{name}"
        for module, names in _BUILTIN.items()
        for name in names
    },
)


def rules() -> dict[str, Rule]:
    """Return every working rule by name: built-in rules in their order, then third-party ones."""
    working = RULES.working()
    order = {name: place for place, name in enumerate(RULES.builtins)}
    return {name: working[name] for name in sorted(working, key=lambda name: (order.get(name, len(order)), name))}


def _shape() -> dict[str, Rule]:
    module = import_module("apps.production.domain.checks.rules.shape")
    found = {name: getattr(module, name) for name in _BUILTIN["shape"]}
    return {name: one for name, one in found.items() if one.severity == Severity.INVALID}


#: A draft must pass these to be saved. Third-party rules never prevent saving a draft.
SHAPE: Mapping[str, Rule] = _shape()
