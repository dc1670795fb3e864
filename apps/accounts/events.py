"""Events of accounts, roles and tokens."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative

declare(
    EventKind("experiment.created", "created the experiment", "was created"),
    EventKind("experiment.changed", "changed the experiment", "was changed"),
    EventKind("user.created", "created the user", "was created"),
    EventKind("user.deactivated", "deactivated the user", "was deactivated"),
    EventKind("user.reactivated", "reactivated the user", "was reactivated"),
    EventKind(
        "user.exported", "exported the personal data of the user", "had personal data exported"
    ),
    EventKind("user.removed", "removed the person", "was removed"),
    EventKind(
        "membership.granted", "granted the role {new} for {experiment}", "was granted a role"
    ),
    EventKind(
        "membership.revoked", "revoked the role {old} for {experiment}", "had a role revoked"
    ),
    EventKind("token.created", "created an API token", "has a new API token"),
    EventKind("token.revoked", "revoked an API token", "had an API token revoked"),
    EventKind("account.logins_changed", "changed the cluster logins", "has other cluster logins"),
    EventKind(
        "account.linked", "linked the account to single sign-on", "was linked to single sign-on"
    ),
    EventKind("account.password_changed", "changed the password", "has a new password"),
    EventKind(
        "account.password_reset_requested",
        "requested a link for a new password",
        "was sent a link for a new password",
    ),
)

declare_administrative("experiment", "user", "membership", "token", "account.logins_changed")
