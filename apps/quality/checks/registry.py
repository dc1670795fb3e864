"""The registry of checks: built-in ones in the order of the page, then third-party ones."""

from collections.abc import Mapping

from apps.core.domain.plugins import Registry
from apps.quality.checks.base import QualityCheck

_BUILTIN: Mapping[str, tuple[str, ...]] = {
    "jobs": ("missing_jobs", "failure_fraction", "log_errors"),
    "counts": ("events_delivered", "events_kept", "handed_on"),
    "files": ("files_written", "file_sizes", "duplicates", "catalogue"),
    "posted": ("histograms", "external"),
}

_PLACES: dict[str, str] = {}
for _module, _names in _BUILTIN.items():
    _PLACES |= {name: f"apps.quality.checks.{_module}:{name}" for name in _names}

CHECKS: Registry[QualityCheck] = Registry(group="opsportal.quality_checks", builtins=_PLACES)
checks = CHECKS.working
