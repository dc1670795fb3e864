"""Known kinds of catalogues."""

from apps.core.domain.plugins import Registry, UnknownPlugin
from apps.datasets.catalogues.base import Catalogue, CatalogueConfiguration, Refused

CATALOGUES: Registry[type[Catalogue]] = Registry(
    group="opsportal.file_catalogues",
    builtins={
        "json": "apps.datasets.catalogues.json_file:JSONFileCatalogue",
        "metacat": "apps.datasets.catalogues.metacat:MetaCatCatalogue",
        "rucio": "apps.datasets.catalogues.rucio:RucioCatalogue",
        "sam": "apps.datasets.catalogues.samweb:SAMCatalogue",
    },
)


def open_catalogue(kind: str, configuration: CatalogueConfiguration) -> Catalogue:
    """Return the catalogue of a kind, such as `json`. Raises `CatalogueError`."""
    try:
        catalogue_class = CATALOGUES.get(kind)
    except UnknownPlugin as error:
        raise Refused(str(error)) from error
    return catalogue_class.from_configuration(configuration)
