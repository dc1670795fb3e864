"""Why a record cannot be deleted: other records refer to it.

Django would read all of them first, which are millions of jobs for a cluster.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.admin import AdminSite
from django.db import models
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst, get_text_list

#: Records are counted up to this limit.
MOST_COUNTED = 1_000
#: At most this many records are checked in one deletion.
_MOST_RECORDS = 20
_ALWAYS = (models.PROTECT, models.RESTRICT)


@dataclass(frozen=True)
class Use:
    """Rows that refer to a record by a field: their model, and how many there are."""

    model: type[models.Model]
    field_name: str
    count: int

    @property
    def in_words(self) -> str:
        return count_in_words(self.count, self.model._meta)


def reasons_against_deletion(
    records: Iterable[models.Model],
    site: AdminSite,
    *,
    deleted_too: Collection[type[models.Model]] = (),
    any_use: bool = False,
    instead: str = "",
) -> list[str]:
    """Return a sentence for each record that others refer to, with what to do `instead`.

    Records that an admin may delete, and all of `deleted_too`, are deleted with it. With
    `any_use`, every other record prevents it, also one that would only lose the reference.
    """
    sentences = []
    for record in list(records)[:_MOST_RECORDS]:
        uses = list(_uses_of(record, site, deleted_too, any_use=any_use))
        if uses:
            sentences.append(_reason(record, uses, site, instead))
    return sentences


def _reason(record: models.Model, uses: list[Use], site: AdminSite, instead: str) -> str:
    """Name and link the records that people know; fold the internal ones, such as hourly totals."""
    is_internal = cast(Any, site).is_internal
    known = [use for use in uses if not is_internal(use.model)]
    internal = [use.in_words for use in uses if is_internal(use.model)]
    names = [use.in_words for use in known]
    is_folded = bool(known) and len(internal) > 1
    if is_folded:
        names.append("internal records of the portal")
    else:
        names += internal
    sentence = f"{record} cannot be deleted: it is used by {get_text_list(names, 'and')}. {instead}"
    text = format_html("{}", sentence.strip())
    linked = [_line_of(use, record, site) for use in known]
    if linked:
        text += format_html("<ul>{}</ul>", format_html_join("", "<li>{}</li>", linked))
    if is_folded:
        rows = format_html_join("", "<li>{}</li>", [(name,) for name in internal])
        text += format_html(
            "<details><summary>Internal records</summary><ul>{}</ul></details>", rows
        )
    return text


def _line_of(use: Use, record: models.Model, site: AdminSite) -> tuple[str]:
    """Link the records of a use, and say whether they can be deleted."""
    model_admin = site._registry.get(use.model)
    if model_admin is None:
        return (use.in_words,)
    name = use.model._meta.label_lower.replace(".", "_")
    query = urlencode({f"{use.field_name}__exact": record.pk})
    address = f"{reverse(f'admin:{name}_changelist')}?{query}"
    can_go = "delete" not in getattr(model_admin, "never", ())
    if can_go:
        rest = "can be deleted first"
    else:
        instead = getattr(model_admin, "instead_of_deleting", "")
        rest = f"cannot be deleted here. {instead}".removesuffix(". ")
    return (format_html('<a href="{}">{}</a>: {}', address, use.in_words, rest),)


def without_links(
    deleted: list[Any], counts: dict[str, int], site: AdminSite
) -> tuple[list[Any], dict[str, int]]:
    """Leave out rows of tables that only link two records, which have no name of their own.

    Records of the portal that go with a record are counted, not listed. The name of a single record
    is in the singular.
    """
    names = {str(capfirst(name)) for name in names_that_go_with_a_record(site)}
    plurals = set()
    singulars = {}
    for model in apps.get_models(include_auto_created=True):
        plural = str(model._meta.verbose_name_plural)
        singulars[plural] = str(model._meta.verbose_name)
        if model._meta.auto_created:
            names.add(str(capfirst(model._meta.verbose_name)))
            plurals.add(plural)
    shown = {}
    for name, count in counts.items():
        if name not in plurals:
            shown[singulars.get(name, name) if count == 1 else name] = count
    return _without_links(deleted, names), shown


def _without_links(tree: list[Any], names: Collection[str]) -> list[Any]:
    kept: list[Any] = []
    for part in tree:
        if isinstance(part, list):
            if below := _without_links(part, names):
                kept.append(below)
        elif str(part).partition(":")[0] not in names:
            kept.append(part)
    return kept


def _uses_of(
    record: models.Model,
    site: AdminSite,
    deleted_too: Collection[type[models.Model]],
    *,
    any_use: bool,
) -> Iterator[Use]:
    """Yield which rows prevent that a record is deleted, by their models."""
    for relation in record._meta.get_fields(include_hidden=True):
        if not isinstance(relation, models.ManyToOneRel):
            continue
        model = relation.related_model
        if model in deleted_too or not (any_use or _prevents(relation, site)):
            continue
        rows = model._base_manager.filter(**{relation.field.name: record.pk})
        count = rows.order_by()[: MOST_COUNTED + 1].count()
        if count:
            yield Use(model, relation.field.name, count)


def _prevents(relation: Any, site: AdminSite) -> bool:
    """Return whether rows of a relation prevent that what they refer to is deleted."""
    if relation.on_delete in _ALWAYS:
        return True
    admin = site._registry.get(relation.related_model)
    is_record = admin is not None and "delete" in getattr(admin, "never", ())
    is_record = is_record and not getattr(admin, "goes_with_its_record", False)
    return relation.on_delete is models.CASCADE and is_record


def names_that_go_with_a_record(site: AdminSite) -> set[str]:
    """Return the names of models whose rows are deleted with the record that they refer to."""
    names = set()
    for model, admin in site._registry.items():
        if getattr(admin, "goes_with_its_record", False):
            names.add(str(model._meta.verbose_name))
    return names


def count_in_words(count: int, options: Any) -> str:
    """Return `3 requests`, or `more than 1,000 requests`; `options` are those of the model."""
    if count > MOST_COUNTED:
        return f"more than {MOST_COUNTED:,} {options.verbose_name_plural}"
    name = options.verbose_name if count == 1 else options.verbose_name_plural
    return f"{count:,} {name}"
