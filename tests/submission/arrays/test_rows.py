"""Options of a cluster on their way to the scheduler."""

from dataclasses import fields

from apps.clusters.schedulers.base import BatchJob
from apps.clusters.schedulers.options import SubmissionOptions
from apps.submission.domain.arrays.rows import PASSED_OPTIONS


def test_passed_options_are_fields_of_the_options_and_of_a_batch_job():
    assert PASSED_OPTIONS <= SubmissionOptions.model_fields.keys()
    assert PASSED_OPTIONS <= {field.name for field in fields(BatchJob)}
