"""The registry of checks: built-in ones in the order of the page, then third parties'."""

from collections.abc import Mapping

from apps.core.domain.plugins import Registry
from apps.quality.checks.base import QualityCheck

_BUILTIN: Mapping[str, tuple[str, ...]] = {
    "jobs": ("missing_jobs", "failure_fraction", "log_errors"),
    "counts": ("events_delivered", "events_kept", "handed_on"),
    "files": ("files_written", "file_sizes", "duplicates", "catalogue"),
    "posted": ("histograms", "external"),
}

CHECKS: Registry[QualityCheck] = Registry(
    group="opsportal.quality_checks",
    builtins={
        name: f"apps.quality.checks.{module}:{name}"
        for module, names in _BUILTIN.items()
        for name in names
    },
)
checks = CHECKS.working
