"""A comparison whose folder is in an object store: fsspec's memory and local file systems."""

import json
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare
from wordorder.comparison.engines import store as module
from wordorder.comparison.engines.store import Store
from wordorder.comparison.results_file import Significance
from wordorder.comparison.statistics.significance import Conclusions
from wordorder.errors import BadInput, RunFailed
from wordorder.training import run
from wordorder.training.checkpoints.checkpoint import write_checkpoint
from wordorder.training.runs.folder import LOCK, locked, read_curve


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.engines.local.release_memory", lambda: None)
    untested = Conclusions(comparisons=(), significance=Significance())
    monkeypatch.setattr("wordorder.comparison.results.compare_arms", lambda results, kept: untested)


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    place = f"memory://{tmp_path}" if request.param == "memory" else (tmp_path / "bucket" / "letters").as_uri()
    yield place
    system, root = fsspec.core.url_to_fs(place)
    if system.exists(root):
        system.rm(root, recursive=True)


def names(url):
    """The files in the store, from its folder on."""
    system, root = fsspec.core.url_to_fs(url)
    return {str(Path(name).relative_to(root)) for name in system.find(root)}


def content(url, name):
    system, root = fsspec.core.url_to_fs(url)
    return system.cat_file(f"{root}/{name}")


def test_a_comparison_leaves_its_results_in_the_store_and_goes_on_from_them(make_recipe, log, tmp_path, url):
    recipe = make_recipe(seeds=[0])
    found = compare(recipe, output_dir=url, progress=False, pipeline=STAND_IN)
    expected = compare(recipe, output_dir=tmp_path / "here", progress=False, pipeline=STAND_IN)
    read = [json.loads(path.read_text()) for path in (found, expected)]
    assert read[0]["rows"] == read[1]["rows"]
    assert json.loads(content(url, "results.json")) == read[0]
    assert {"report.html", "table.md", "rope/seed-0/metrics.json", "rope/seed-0/model/encoding"} <= names(url)
    assert not [name for name in names(url) if name.endswith(".part")]
    before = len(log())
    again = compare(make_recipe(seeds=[0, 1]), output_dir=url, progress=False, pipeline=STAND_IN)
    started = [line for line in log()[before:] if line.startswith("start")]
    assert len(started) == 3
    assert all("seed-1" in line for line in started)
    rows = json.loads(again.read_text())["rows"]
    assert len(rows) == 6
    assert json.loads(content(url, "results.json"))["rows"] == rows


def opened(url):
    store = Store.open(url)
    return store, store.here / "rope" / "seed-0"


def checkpoint(folder, step):
    write_checkpoint(folder, step, lambda to: (to / "weights").write_text(f"of {step}"))


def test_a_run_goes_on_from_its_newest_checkpoint_on_another_machine(url):
    store, run = opened(url)
    with store.working_copy(run) as copy:
        checkpoint(copy, 5)
        checkpoint(copy, 10)
        (copy / "curve.jsonl").write_text("{}\n")
    elsewhere, run = opened(url)
    assert not list(run.glob("checkpoint-*"))  # too large for the driver, which has no use for them
    with elsewhere.working_copy(run) as copy:
        assert sorted(path.name for path in copy.iterdir()) == ["checkpoint-10", "checkpoint-5", "curve.jsonl"]
        shutil.rmtree(copy / "checkpoint-5")
        checkpoint(copy, 15)
        (copy / "metrics.json").write_text("{}")
    kept = {name.split("/")[2] for name in names(url)}
    assert kept == {"checkpoint-10", "checkpoint-15", "curve.jsonl", "metrics.json"}
    elsewhere.fetch(run)
    assert sorted(path.name for path in run.iterdir()) == ["curve.jsonl", "metrics.json"]


def test_what_is_new_is_copied_while_a_run_is_trained_but_never_that_it_is_finished(url, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.01)
    store, run = opened(url)
    with store.working_copy(run) as copy:
        (copy / ".saving-5").mkdir()
        (copy / ".saving-5" / "weights").write_text("half")
        (copy / "metrics.json").write_text("{}")
        checkpoint(copy, 10)
        end = time.monotonic() + 30
        while "rope/seed-0/checkpoint-10/manifest.json" not in names(url) and time.monotonic() < end:
            time.sleep(0.01)
        assert names(url) == {"rope/seed-0/checkpoint-10/manifest.json", "rope/seed-0/checkpoint-10/weights"}
    assert "rope/seed-0/metrics.json" in names(url)


def test_a_manifest_comes_after_the_files_that_it_lists_and_goes_before_them(url, monkeypatch):
    order = []
    send, system = module._Upload._send, type(fsspec.core.url_to_fs(url)[0])
    monkeypatch.setattr(module._Upload, "_send", lambda self, name: (order.append(name.name), send(self, name)))
    store, run = opened(url)
    with store.working_copy(run) as copy:
        (copy / "metrics.json").write_text("{}")
        (copy / "z.json").write_text("{}")
        checkpoint(copy, 10)
    assert order == ["weights", "z.json", "manifest.json", "metrics.json"]
    removed, rm_file = [], system.rm_file
    monkeypatch.setattr(system, "rm_file", lambda self, path: (removed.append(Path(path).name), rm_file(self, path)))
    with store.working_copy(run) as copy:
        shutil.rmtree(copy / "checkpoint-10")
    assert removed == ["manifest.json", "weights"]


def full(self, name):
    raise OSError("no space left")


def test_a_store_that_cannot_be_written_fails_the_comparison_and_says_so(make_recipe, log, tmp_path, monkeypatch):
    monkeypatch.setattr(module._Upload, "_send", full)
    with pytest.raises(RunFailed, match=r"memory://.*: cannot be read or written: OSError: no space left"):
        compare(make_recipe(seeds=[0]), output_dir=f"memory://{tmp_path}", progress=False, pipeline=STAND_IN)


def test_a_run_that_cannot_be_kept_has_failed(make_recipe, log, tmp_path, monkeypatch):
    send = module._Upload._send
    monkeypatch.setattr(module._Upload, "_send", lambda self, name: (full if "rope" in self.base else send)(self, name))
    with pytest.raises(RunFailed, match=r"rope, seed 0: memory://.*cannot be read or written: OSError: no space"):
        compare(make_recipe(seeds=[0]), output_dir=f"memory://{tmp_path}", progress=False, pipeline=STAND_IN)
    rows = json.loads(content(f"memory://{tmp_path}", "results.json"))["rows"]
    assert [row["arm"] for row in rows] == ["none", "tupe-r"]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nonsense://bucket/x", "Protocol not known: nonsense"),
        ("file:///proc/letters", "--output-dir: file:///proc"),
        ("memory://bucket", r"name a folder, as in s3://bucket/folder"),
        ("data://x/y", "--output-dir: data://x/y"),
        ("file://", "file:// names no folder; write one"),
        ("file:///", "names no folder"),
        ("memory://", "names no folder"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(make_recipe, place, words):
    with pytest.raises(BadInput, match=words):
        compare(make_recipe(), output_dir=place, progress=False, pipeline=STAND_IN)


def test_a_store_that_fails_for_a_while_is_written_at_the_end(url, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.01)
    failures = threading.Semaphore(3)
    send = module._Upload._send

    def sometimes(self, name):
        if failures.acquire(blocking=False):
            raise OSError("come back later")
        send(self, name)

    monkeypatch.setattr(module._Upload, "_send", sometimes)
    store, run = opened(url)
    with store.working_copy(run) as copy:
        checkpoint(copy, 10)
        time.sleep(0.3)
    assert "rope/seed-0/checkpoint-10/manifest.json" in names(url)


def test_the_memory_of_one_process_is_refused_for_several(make_recipe):
    with pytest.raises(BadInput, match=r"memory://a/b is the memory of one process; it takes compare\.workers=1"):
        compare(make_recipe(workers=2), output_dir="memory://a/b", progress=False, pipeline=STAND_IN)


def test_only_a_comparison_takes_an_address(make_recipe):
    for options in ({"output_dir": "s3://bucket/x"}, {}):
        recipe = make_recipe("training.output_dir=s3://bucket/x")
        with pytest.raises(BadInput, match=r"training\.output_dir: s3://bucket/x: only a comparison writes"):
            run(recipe, **options)


def test_an_address_with_letters_of_patterns_is_taken_as_it_stands(make_recipe, log, tmp_path):
    for place in (f"memory://{tmp_path}/run[1]*", f"file://{tmp_path}/run[1]*"):
        compare(make_recipe(seeds=[0]), output_dir=place, progress=False, pipeline=STAND_IN)
        assert {"results.json", "rope/seed-0/metrics.json"} <= names(place)


def test_a_file_that_the_store_loses_is_an_error_not_a_checkpoint_that_gave_way(url, monkeypatch):
    def gone(self, name):
        raise FileNotFoundError("the bucket does not exist")

    store, _ = opened(url)
    (store.here / "report.html").write_text("<p>")
    monkeypatch.setattr(module._Upload, "_send", gone)
    with pytest.raises(RunFailed, match="the bucket does not exist"):
        store.save()


@pytest.mark.parametrize("key", ["../victim", "rope/../../victim", "rope/..\\victim"])
def test_an_object_whose_name_leads_out_of_the_folder_is_refused_before_anything_is_fetched(tmp_path, monkeypatch, key):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    place = f"memory://{tmp_path}/bucket"
    system, root = fsspec.core.url_to_fs(place)
    # the memory of fsspec resolves names, so it says what a bucket would
    monkeypatch.setattr(type(system), "find", lambda self, base: [f"{root}/results.json", f"{root}/{key}"])
    monkeypatch.setattr(type(system), "exists", lambda self, path: True)
    fetched = []
    monkeypatch.setattr(type(system), "get_file", lambda self, name, target: fetched.append(target))
    with pytest.raises(BadInput, match=r"victim.*leads out of its folder"):
        Store.open(place)
    assert not fetched
    assert not list((tmp_path / "scratch").iterdir())


def test_a_link_in_a_store_of_files_is_refused(tmp_path):
    (tmp_path / "bucket" / "rope").mkdir(parents=True)
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "bucket" / "rope" / "notes").symlink_to(tmp_path / "secret")
    with pytest.raises(BadInput, match=r"rope/notes' is a link"):
        Store.open((tmp_path / "bucket").as_uri())


def test_a_folder_of_something_else_is_named_by_its_address(make_recipe, log, tmp_path):
    (tmp_path / "bucket" / "rope" / "seed-0").mkdir(parents=True)
    (tmp_path / "bucket" / "rope" / "seed-0" / "mine.txt").write_text("mine")
    place = (tmp_path / "bucket").as_uri()
    with pytest.raises(BadInput, match=rf"^{place}/rope/seed-0 holds files of something else"):
        compare(make_recipe(seeds=[0]), output_dir=place, progress=False, pipeline=STAND_IN)


@pytest.mark.parametrize("when", ["before", "at the end"])
def test_a_damaged_file_is_named_by_its_address(make_recipe, log, tmp_path, monkeypatch, when):
    place, recipe = (tmp_path / "bucket").as_uri(), make_recipe(seeds=[0])
    if when == "before":
        compare(recipe, output_dir=place, progress=False, pipeline=STAND_IN)
        (tmp_path / "bucket" / "rope" / "seed-0" / "metrics.json").write_text("{")
    else:

        def spoil(results, folder):
            (folder.parent / "rope" / "seed-0" / "curve.jsonl").write_text("[]")
            read_curve(folder.parent / "rope" / "seed-0")

        monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", spoil)
    name = "metrics.json" if when == "before" else "curve.jsonl"
    with pytest.raises(RunFailed, match=rf"^{place}/rope/seed-0/{name}: cannot be read") as caught:
        compare(recipe, output_dir=place, progress=False, pipeline=STAND_IN)
    assert tempfile.gettempdir() + "/wordorder-" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_two_comparisons_in_one_folder_of_files_are_held_apart(make_recipe, log, tmp_path, scheme):
    bucket = tmp_path / "bucket"
    place, recipe = f"{scheme}://{bucket}", make_recipe(seeds=[0])
    with locked(bucket), pytest.raises(BadInput, match=rf"{bucket}.* is being written by .*; wait for its end"):
        compare(recipe, output_dir=place, progress=False, pipeline=STAND_IN)
    assert not bucket.exists()
    locks = []

    def train(*arguments, **options):
        locks.append((bucket / LOCK).exists())
        STAND_IN.train(*arguments, **options)

    found = compare(recipe, output_dir=place, progress=False, pipeline=replace(STAND_IN, train=train))
    assert locks == [True] * 3
    assert not (bucket / LOCK).exists()
    assert not (found.parent / LOCK).exists()  # the copy holds what the store has, and that is no part of it
