"""The health page of the portal, and the system checks of plugins and of the proxy."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core import checks

from apps.archive.domain.sinks import intake_size, sinks_health
from apps.archive.sinks.registry import SINKS
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.domain.health import CAPTURE, Check, check_components
from apps.core.domain.outbox import EVENTS
from apps.core.domain.plugins import Registry
from apps.core.models import Heartbeat
from apps.datasets.catalogues.registry import CATALOGUES as FILE_CATALOGUES
from apps.datasets.models import Catalogue
from apps.diagnosis.domain.groups.follow_ups import PLUGINS as FOLLOW_UPS
from apps.diagnosis.domain.packs.parts import PACK_PARTS
from apps.diagnosis.domain.reading.output_lines import TAKERS as LOGGED_OUTPUTS
from apps.diagnosis.domain.reading.refused_logs import refused_logs
from apps.diagnosis.engine.registry import REGISTRY as CLASSIFIERS
from apps.diagnosis.engine.registry import classifiers
from apps.jobs.domain.collection.masking_rules import masking_key_id
from apps.jobs.domain.records.energy import BadEnergyModel, read_energy_model
from apps.jobs.domain.records.jobs import COLUMNS, list_collections
from apps.jobs.domain.statistics.facts import FACTS
from apps.jobs.domain.statistics.words import WORDS
from apps.notifications.domain.mail import mail_is_configured
from apps.notifications.enums import Channel, MessageState
from apps.notifications.models import Message
from apps.portal.pages.health.answer import troubles_of
from apps.portal.pages.health.queues import all_queues
from apps.production.domain.checks.registry import RULES
from apps.production.domain.lifecycle.guards import CLOSING_CHECKS, JOB_CHECKS
from apps.production.domain.lifecycle.reopening import REOPENING_STEPS
from apps.production.domain.lifecycle.withdrawal import WITHDRAWAL_STEPS
from apps.production.domain.outputs.datasets import CATALOGUES
from apps.quality.checks.registry import CHECKS
from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.logs.index_state import serving_index
from apps.search.domain.logs.kept_texts import READERS as LOG_TEXTS
from apps.statusboard.domain.monitoring.sources import source_states
from apps.statusboard.feeds.registry import FEEDS
from apps.submission.domain.retries.planned import PLANNERS as RETRY_PLANNERS
from capture.wire.report import CaptureReport

#: All plugin registries. They are listed here, so that each is loaded before it is checked.
PLUGINS: tuple[Registry[Any], ...] = (
    SCHEDULERS,
    SINKS,
    FEEDS,
    CLASSIFIERS,
    RULES,
    CATALOGUES,
    FILE_CATALOGUES,
    CLOSING_CHECKS,
    JOB_CHECKS,
    REOPENING_STEPS,
    WITHDRAWAL_STEPS,
    CHECKS,
    COLUMNS,
    FACTS,
    WORDS,
    PACK_PARTS,
    LOG_TEXTS,
    LOGGED_OUTPUTS,
    RETRY_PLANNERS,
    FOLLOW_UPS,
)
#: What follows from a capture with another key, and how to fix it.
OTHER_MASKING_KEY = (
    "its MASKING_KEY is not the portal's: equal secrets get other fingerprints there, so that "
    "environments of its jobs seem to differ from others. Give it the portal's MASKING_KEY and "
    "restart it; what it has sent stays as it is"
)
#: Maximum number of failed deliveries shown.
SHOWN = 20


def health_page(*, at: datetime) -> dict[str, Any]:
    """Return the context of the health page."""
    failing = EVENTS.failing()
    plugins = loaded_plugins()
    hearts = Heartbeat.objects.filter(name__startswith=CAPTURE).order_by("name")
    page = {
        "at": at,
        "checks": [*check_components(at), search_index_check()],
        "captures": [capture_state(heart) for heart in hearts],
        "sinks": sinks_health(at=at),
        "intake": dict(zip(("jobs", "bytes"), intake_size(), strict=True)),
        "queues": all_queues(at=at),
        "refused_logs": refused_logs(at=at),
        "deliveries": failing.select_related("event").order_by("pk")[:SHOWN],
        "failing": failing.count(),
        "channels": [channel_state(channel) for channel in Channel],
        "collections": list_collections(),
        "catalogues": Catalogue.objects.filter(active=True),
        "monitoring": source_states(at=at),
        "plugins": plugins,
        "broken_plugins": [kind for kind in plugins if kind.problems],
        "warnings": check_proxy(),
    }
    return {**page, "troubles": troubles_of(page)}


def search_index_check() -> Check:
    """Return how far the index of logs is, and whether it answered when it was last asked."""
    try:
        index = serving_index(engine_in_use().name)
    except SearchUnavailable as error:
        return Check("search index", ok=False, detail=error.reason)
    if index is None:
        return Check("search index", ok=True, detail="no log yet")
    if index.last_error:
        return Check("search index", ok=False, detail=f"{index.target}: {index.last_error}")
    detail = "complete" if index.complete else "older logs are being added"
    return Check("search index", ok=True, detail=f"{index.target}: {detail}")


def check_search(**_: Any) -> Sequence[checks.CheckMessage]:
    """Warn about a SEARCH_URL that cannot be used: logs are not indexed, and not searched."""
    try:
        engine_in_use()
    except SearchUnavailable as error:
        return [checks.Warning(error.reason, hint="See docs/search.md.", id="opsportal.W001")]
    return []


def check_energy_model(**_: Any) -> Sequence[checks.CheckMessage]:
    """Warn about an ENERGY_MODEL that cannot be used: no energy is modelled."""
    if settings.ENERGY_MODEL is None:
        return []
    try:
        read_energy_model(settings.ENERGY_MODEL)
    except BadEnergyModel as error:
        return [checks.Warning(str(error), hint="See docs/jobs.md.", id="opsportal.W002")]
    return []


def loaded_plugins() -> tuple[Registry[Any], ...]:
    """Load all plugins and return their registries, which then know all problems."""
    for registry in PLUGINS:
        registry.working()
    classifiers()
    return PLUGINS


def check_plugins(**_: Any) -> Sequence[checks.CheckMessage]:
    """Warn about duplicate or broken plugins. The portal works without them."""
    warnings: list[checks.CheckMessage] = []
    for kind in loaded_plugins():
        for name, problem in sorted(kind.problems.items()):
            text = f"{name}: {problem}"
            warnings.append(checks.Warning(text, obj=kind.group, id="opsportal.W001"))
    return warnings


def check_proxy(**_: Any) -> Sequence[checks.CheckMessage]:
    """Warn about a missing TRUST_PROXY.

    In production, the portal is behind a proxy. Without TRUST_PROXY, all users share its address.
    """
    if settings.DEBUG or settings.DEMO or settings.SECURE_PROXY_SSL_HEADER:
        return []
    problem = (
        "TRUST_PROXY is not set: behind a proxy, all users share its address, so failed "
        "logins of one user lock out the others, and HTTPS is not recognised."
    )
    hint = (
        "Set TRUST_PROXY=true, and let the proxy set X-Forwarded-For and X-Forwarded-Proto: see "
        "docs/production.md."
    )
    return [checks.Warning(problem, hint=hint, id="opsportal.W001")]


def capture_state(heart: Heartbeat) -> dict[str, Any]:
    """Return the last report of a capture process, with its problems."""
    report = CaptureReport.from_detail(heart.detail)
    problems = [report.last_error] if report.last_error else []
    # A capture of an earlier version sends no id of its key.
    if report.masking_key_id not in ("", masking_key_id()):
        problems.append(OTHER_MASKING_KEY)
    if report.portal_error:
        problems.append(f"hand-over: {report.portal_error}")
    if report.missed:
        problems.append(
            f"{report.missed} jobs were deleted before they could be read, since it started"
        )
    if report.refused:
        problems.append(
            f"the portal rejects {report.refused} jobs, which stay in the journal: "
            f"{report.why_refused}"
        )
    problems += [f"cannot read {path}: {why}" for path, why in report.unreadable.items()]
    problems += [f"incomplete: {path}" for path in report.incomplete]
    return {"name": heart.name, "at": heart.at, "report": report, "problems": problems}


def channel_state(channel: Channel) -> dict[str, Any]:
    """Return how many messages of a channel wait, are `late` after a failure, or were refused."""
    messages = Message.objects.filter(channel=channel)
    waiting = messages.filter(state=MessageState.WAITING)
    failed = waiting.exclude(last_error="")
    return {
        "channel": channel.value,
        "configured": channel != Channel.MAIL or mail_is_configured(),
        "waiting": waiting.count(),
        "late": failed.count(),
        "refused": messages.filter(state=MessageState.REFUSED).count(),
        "last_error": failed.order_by("-due_at").values_list("last_error", flat=True).first() or "",
    }
