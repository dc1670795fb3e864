"""What happens to production reports."""

from apps.core.domain.event_kinds import EventKind, declare

declare(EventKind("report.frozen", "froze the production report", "was frozen"))
