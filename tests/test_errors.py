"""What is said of a missing package must be what installs it, wherever wordorder came from."""

import importlib.metadata
import json

import pytest

from wordorder import errors
from wordorder.errors import MissingExtra


class Installed:
    """Stands in for the distribution that pip wrote."""

    def __init__(self, text):
        self.text = text

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.text


@pytest.mark.parametrize(
    ("written", "command"),
    [
        (None, "pip install 'wordorder[train]'"),
        ({"url": "file://{folder}", "dir_info": {}}, "pip install '{folder}[train]'"),
        ({"url": "file:///no/such/folder", "dir_info": {}}, "pip install '.[train]' in the source folder of wordorder"),
        (
            {"url": "https://example.org/wordorder", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
            "pip install 'wordorder[train] @ git+https://example.org/wordorder'",
        ),
    ],
    ids=["an index", "a folder", "a folder that is gone", "a repository"],
)
def test_the_remedy_is_where_the_package_came_from(tmp_path, monkeypatch, written, command):
    folder = tmp_path / "a source"
    folder.mkdir()
    text = None if written is None else json.dumps(written).replace("{folder}", str(folder).replace(" ", "%20"))
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lib" / "python" / "wordorder" / "errors.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(text))
    assert str(MissingExtra("typer", "train")) == f"typer is not installed; run: {command.format(folder=folder)}"
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: importlib.metadata.Distribution.from_name("-"))
    assert "pip install 'wordorder[train]'" in str(MissingExtra("typer", "train"))
