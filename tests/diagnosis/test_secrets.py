"""What is stored of a log has stars in place of secrets, at the same offsets."""

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.diagnosis.domain.excerpts import excerpt_of
from apps.diagnosis.domain.harvest import harvest_batch, queue_harvests
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.secrets import starred
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest, Verdict
from tests.pumps import within

SECRETS = (b"hunter22hunter22", b"eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM", b"alice:pa55word@")
LOG = f"""export GRID_TOKEN={SECRETS[0].decode()} OTHER=fine
sent {SECRETS[1].decode()} along, token=short
Fetching https://{SECRETS[2].decode()}door.example.org/x
[FATAL] Auth failed --password='{SECRETS[0].decode()}'
"""


def test_secrets_are_not_stored_and_offsets_stay(make_job, at):
    queue_harvests(job_ids=[make_job(log=LOG).pk], at=at)
    harvest_batch(at=at)
    kept = LogExcerpt.objects.get().data
    assert len(kept) == len(LOG)
    hit = Evidence.objects.get(pattern="XRD-AUTH")
    assert hit.offset == LOG.index("[FATAL]")
    verdict = Verdict.objects.select_related("group").get()
    stored = (
        kept.decode() + hit.text + str(verdict.reasons) + verdict.summary + verdict.group.line + verdict.group.title
    )
    assert not any(secret.decode() in stored for secret in SECRETS)
    assert "OTHER=fine" in stored
    assert "token=short" in stored


def test_excerpt_of_a_successful_job_has_none_either():
    data = LOG.encode()
    kept = excerpt_of(LogHarvest(), "x", Block(data, 0, len(data), 1)).data
    assert kept == starred(data) != data


@given(
    st.lists(st.sampled_from([*SECRETS, b"token=", b"\n", b"\r\n", b" ", b"x" * 5000, b"://", b"\xff"]), max_size=30)
)
@settings(max_examples=50)
def test_length_and_lines_stay_whatever_is_starred(pieces):
    data = b"".join(pieces)
    kept = starred(data)
    assert len(kept) == len(data)
    assert [at for at, byte in enumerate(kept) if byte == 10] == [at for at, byte in enumerate(data) if byte == 10]


def test_log_of_nothing_but_secrets_keeps_no_worker_busy():
    with within():
        starred(b"A_TOKEN=abcdefgh1234\n" * 10_000)
