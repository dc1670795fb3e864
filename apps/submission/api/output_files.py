"""Output files in the API, as jobs and users report them."""

from typing import Any

from rest_framework import serializers

from apps.datasets.domain.output_files import (
    LARGEST,
    MAX_CHECKSUM,
    PARENTS_A_FILE,
)
from apps.datasets.models import MAX_FILE_NAME

_MAX_PARENT_NAME = 1_000


class FileWriter(serializers.Serializer[Any]):
    """An output file."""

    name = serializers.CharField(max_length=MAX_FILE_NAME, trim_whitespace=False)
    size_bytes = serializers.IntegerField(min_value=0, max_value=LARGEST)
    events = serializers.IntegerField(
        min_value=0, max_value=LARGEST, required=False, allow_null=True, default=None
    )
    run = serializers.IntegerField(
        min_value=0, max_value=LARGEST, required=False, allow_null=True, default=None
    )
    checksum = serializers.CharField(
        max_length=MAX_CHECKSUM,
        required=False,
        allow_blank=True,
        default="",
        help_text="adler32:, md5: or sha256: and the hexadecimal digits.",
    )
    parents = serializers.ListField(
        child=serializers.CharField(max_length=_MAX_PARENT_NAME, trim_whitespace=False),
        max_length=PARENTS_A_FILE,
        required=False,
        default=list,
        help_text="Names of the input files that it was made of. Empty: all of its job.",
    )
