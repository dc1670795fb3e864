"""Jobs in the API, to read only."""

from django.db.models import QuerySet
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiViewSet
from apps.jobs.api.serializers import JobSerializer
from apps.jobs.domain.jobs import jobs_for_list
from apps.jobs.filters import JobFilter
from apps.jobs.models import Job


class JobViewSet(ReadOnlyModelViewSet[Job], ApiViewSet[Job]):
    """Finished jobs that you may see, the last collected first; the filters are those of the job list."""

    serializer_class = JobSerializer
    filterset_class = JobFilter

    def get_queryset(self) -> QuerySet[Job]:
        return jobs_for_list(self.request.user)
