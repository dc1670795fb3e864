"""Who may correct a verdict or re-analyse a log: the OPG and the liaisons of the job's experiment."""

from apps.accounts.models import Principal
from apps.accounts.permissions import is_liaison, is_opg


def may_correct_verdict(user: Principal, experiment_id: int | None) -> bool:
    return is_opg(user) or (experiment_id is not None and is_liaison(user, experiment_id))
