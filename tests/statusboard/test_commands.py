import pytest
from django.core.management import CommandError, call_command

from apps.statusboard.domain.monitoring.source_tokens import authenticate_source
from apps.statusboard.models import MonitoringSource


def test_command_makes_a_source_and_prints_its_token_alone(db, capsys):
    call_command("monitoring_source", "add", "--slug", "prometheus", "--lease-seconds", "60")
    token = capsys.readouterr().out.strip()
    source = MonitoringSource.objects.get()
    assert (source.feed, source.lease_seconds) == ("alertmanager", 60)
    assert authenticate_source(slug="prometheus", token=token) == source.pk
    assert token not in str(vars(source))


def test_command_gives_another_token(db, capsys):
    call_command("monitoring_source", "add", "--slug", "prometheus")
    old = capsys.readouterr().out.strip()
    call_command("monitoring_source", "token", "--slug", "prometheus", "--revoke-others")
    new = capsys.readouterr().out.strip()
    assert authenticate_source(slug="prometheus", token=old) is None
    assert authenticate_source(slug="prometheus", token=new)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["add", "--slug", "x", "--feed", "smoke"], "Unknown feed “smoke”"),
        (["add", "--slug", "taken"], "Source “taken” already exists"),
        (["token", "--slug", "none"], "Source “none” not found"),
    ],
)
def test_command_says_what_is_wrong(db, line, error):
    call_command("monitoring_source", "add", "--slug", "taken")
    with pytest.raises(CommandError, match=error):
        call_command("monitoring_source", *line)


def test_command_lists_the_sources(db, capsys):
    call_command("monitoring_source", "add", "--slug", "prometheus")
    capsys.readouterr()
    call_command("monitoring_source", "list")
    assert capsys.readouterr().out == "prometheus\talertmanager\tlast seen never\t0 services\n"
