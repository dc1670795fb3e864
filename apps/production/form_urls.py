"""Addresses of what belongs to writing a request, beside its form."""

from django.urls import path

from apps.production import history_views

patterns = [
    path("requests/<str:key>/changes/", history_views.changes, name="request-changes"),
]
