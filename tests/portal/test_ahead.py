from django.template import engines

from apps.portal.pages.health.page import PLUGINS
from apps.portal.web import warm_up


def test_templates_and_plugins_are_loaded_before_the_first_visitor(settings, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "page.html").write_text("{% no_such_tag %}")
    (tmp_path / "whole.html").write_text("whole")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    warm_up.load_ahead()
    loader = engines["django"].engine.template_loaders[0]
    assert list(loader.get_template_cache) == ["whole.html"]
    assert all(registry.names() for registry in PLUGINS)
