"""Sources that are there and cannot be read are faults of the recipe; so is a user without a home folder."""

import os
from pathlib import Path

import pytest

from wordorder.data.cache import default_cache_dir
from wordorder.errors import BadInput
from wordorder.training.recipe.sections import find_source


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_source_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    source = tmp_path / "source"
    source.touch() if kind == "file" else source.mkdir()
    assert find_source(str(source)) == (str(source), [])
    # root may read everything, so the system's answer is planted
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert find_source(str(source))[1] == [f"data.source: {str(source)!r} cannot be read: permission denied"]


def test_a_source_in_a_folder_without_permission_is_named(monkeypatch: pytest.MonkeyPatch):
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    assert find_source("locked/a.txt", "data.test_source")[1] == [
        "data.test_source: 'locked/a.txt' cannot be read: Permission denied"
    ]


def test_a_name_that_is_too_long_is_named():
    assert find_source("a" * 5000)[1] == [f"data.source: {'a' * 200!r} cannot be read: File name too long"]


def test_a_user_without_a_home_folder_is_told_of_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("WORDORDER_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "wordorder"
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it gives where there is none
    with pytest.raises(BadInput, match="no home folder to cache in; set WORDORDER_CACHE to the path of a folder"):
        default_cache_dir()
