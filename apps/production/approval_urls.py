"""Addresses of the inbox, of delegations, and of withdrawing a signature."""

from django.urls import path

from apps.production.web.views import approvals

patterns = [
    path("requests/inbox/", approvals.inbox, name="inbox"),
    path("requests/inbox/hand-over/", approvals.hand_over, name="hand-over"),
    path("requests/inbox/delegations/<int:pk>/revoke/", approvals.take_back, name="delegation-revoke"),
    path("requests/<str:key>/signatures/<int:pk>/withdraw/", approvals.withdraw_signature, name="signature-withdraw"),
]
