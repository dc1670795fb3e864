"""The words by which the logs of a job are found."""

from datetime import UTC, datetime
from itertools import accumulate

from apps.archive.domain.search import words as word_rules

#: A log with more words than the index holds has this one, and is always read.
CUT = "@cut"
_HOUR_SECONDS = 3600


def words_of_log(data: bytes) -> set[str]:
    """Return all words by which a log can be found, and `CUT` if it has more."""
    log_words: set[str] = set()
    # Logs repeat lines, so each is split once.
    for line in set(data.decode("utf-8", "backslashreplace").split("\n")):
        log_words |= word_rules.words_in(line)
    cut = {word[: word_rules.LONGEST_WORD] for word in log_words}
    most_bytes = len(cut) * word_rules.LONGEST_WORD * 4
    if len(cut) <= word_rules.INDEXED_WORDS and most_bytes < word_rules.INDEXED_WORDS_BYTES:
        return cut
    return _first_words(cut)


def _first_words(log_words: set[str]) -> set[str]:
    """Return as many words as a row can hold, with `CUT` if these are not all."""
    kept = sorted(log_words)[: word_rules.INDEXED_WORDS]
    ends = accumulate(len(word.encode()) for word in kept)
    fitting = {
        word for word, end in zip(kept, ends, strict=True) if end < word_rules.INDEXED_WORDS_BYTES
    }
    return fitting if len(fitting) == len(log_words) else {*fitting, CUT}


def hour_word(moment: datetime) -> str:
    return f"@h{int(moment.timestamp()) // _HOUR_SECONDS}"


def time_words(ended_at: datetime) -> list[str]:
    """Return the index words of hour, day and week of a time."""
    day = ended_at.astimezone(UTC).date()
    return [hour_word(ended_at), word_rules.day_word(day), *word_rules.week_words(day, day)]
