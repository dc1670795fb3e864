"""Payloads of each test go to a journal of its own, and are stored when the test says so."""

import pytest

from apps.statusboard.domain.monitoring import intake, source_tokens
from apps.statusboard.domain.monitoring.intake_journal import AlertJournal
from apps.statusboard.domain.monitoring.source_tokens import KnownTokens


@pytest.fixture(autouse=True)
def journal(tmp_path, monkeypatch) -> AlertJournal:
    """Return the journal; tokens are read from the database at every request."""
    made = AlertJournal(tmp_path / "intake")
    monkeypatch.setattr(intake, "JOURNAL", made)
    monkeypatch.setattr(source_tokens, "TOKENS", KnownTokens(tmp_path / "intake/tokens.json"))
    monkeypatch.setattr(source_tokens, "FRESH", 0)
    return made
