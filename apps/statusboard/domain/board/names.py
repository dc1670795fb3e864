"""How the status board names the services that logs and known errors name."""

from collections.abc import Iterable

from apps.statusboard.models import Service


def service_names(texts: Iterable[str]) -> dict[str, str]:
    """Return how the status board names these services, by the text that names them.

    Texts that name no service of the board stay as they are. One query.
    """
    board: dict[str, str] = {}
    for slug, name in Service.objects.order_by("pk").values_list("slug", "name"):
        board.setdefault(slug.lower(), name)
        board.setdefault(name.lower(), name)
    return {text: board.get(text.lower(), text) for text in texts}
