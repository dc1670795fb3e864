"""Addresses of the inbox, of delegations, and of withdrawing a signature."""

from django.urls import path

from apps.production import approval_views

patterns = [
    path("requests/inbox/", approval_views.inbox, name="inbox"),
    path("requests/inbox/hand-over/", approval_views.hand_over, name="hand-over"),
    path("requests/inbox/delegations/<int:pk>/revoke/", approval_views.take_back, name="delegation-revoke"),
    path(
        "requests/<str:key>/signatures/<int:pk>/withdraw/", approval_views.withdraw_signature, name="signature-withdraw"
    ),
]
