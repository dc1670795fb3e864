"""The stored ends of logs, as the search reads and indexes them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import zstandard

from apps.diagnosis.models import LogExcerpt, LogHarvest
from apps.search.domain.logs.kept_texts import KeptLog, KeptText


class Excerpts:
    """Reads the excerpts of logs for the search."""

    def texts_of(self, job_pks: Collection[int]) -> Mapping[int, Sequence[KeptText]]:
        """Return the excerpts of these jobs by primary key, stderr first."""
        rows = LogExcerpt.objects.filter(harvest__job__in=job_pks).order_by("stream")
        # Without models, and with one decompressor: a search reads a hundred of them.
        fields = ("stream", "compressed", "first_offset", "first_line_number", "harvest__job_id")
        decompressor = zstandard.ZstdDecompressor()
        texts: dict[int, list[KeptText]] = {}
        for stream, compressed, offset, line, job_pk in rows.values_list(*fields):
            data = decompressor.decompress(bytes(compressed))
            texts.setdefault(job_pk, []).append(KeptText(stream, data, offset, line))
        return texts

    def kept_of(self, job_pks: Collection[int]) -> set[int]:
        """Return the jobs that have excerpts."""
        rows = LogExcerpt.objects.filter(harvest__job__in=job_pks)
        return set(rows.values_list("harvest__job_id", flat=True))

    def before(self, key: int | None, most: int) -> Sequence[tuple[int, KeptLog]]:
        """Return the newest harvests with excerpts before a key, newest first.

        They are locked until the end of the transaction, so that none is replaced meanwhile.
        """
        kept = LogExcerpt.objects.values("harvest")
        harvests = LogHarvest.objects.filter(pk__in=kept).order_by("-pk")
        if key is not None:
            harvests = harvests.filter(pk__lt=key)
        keys = list(harvests.values_list("pk", flat=True)[:most])
        locked = LogHarvest.objects.select_for_update(of=("self",)).filter(pk__in=keys)
        rows = list(locked.order_by("pk").select_related("job"))
        texts = self.texts_of([excerpt.job_id for excerpt in rows])
        logs = []
        for excerpt in reversed(rows):
            log = KeptLog(
                excerpt.job_id,
                excerpt.job.ended_at,
                texts.get(excerpt.job_id, ()),
                excerpt.job.experiment_id,
            )
            logs.append((excerpt.pk, log))
        return logs


EXCERPTS = Excerpts()


def kept_log(harvest: LogHarvest, excerpts: Iterable[LogExcerpt]) -> KeptLog:
    """Return what is kept of the logs of a job, of which these are all excerpts."""
    in_order = sorted(excerpts, key=lambda excerpt: excerpt.stream)
    texts = [kept_text(excerpt) for excerpt in in_order]
    return KeptLog(harvest.job_id, harvest.job.ended_at, texts, harvest.job.experiment_id)


def kept_text(excerpt: LogExcerpt) -> KeptText:
    return KeptText(excerpt.stream, excerpt.data, excerpt.first_offset, excerpt.first_line_number)
