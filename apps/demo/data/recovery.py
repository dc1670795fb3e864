"""The demo's recovery rules: the shipped ones act."""

from datetime import datetime

from apps.accounts.models import User
from apps.production.enums import PORTAL
from apps.recovery.domain.rules.lifecycle import set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule


def activate_rules(*, by: User, at: datetime) -> None:
    """Activate the shipped rules that no user has switched yet."""
    untouched = RecoveryRule.objects.filter(shipped=True, mode=Mode.PASSIVE, mode_by=PORTAL)
    for rule in untouched:
        set_mode(rule=rule, mode=Mode.ACTIVE, by=by, at=at, reason="Shown in the demo.")
