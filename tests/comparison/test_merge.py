import json
from importlib import import_module

import pytest
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare
from wordorder.comparison.merge import merge
from wordorder.comparison.verdict import verdict
from wordorder.errors import BadInput

ROPE, TUPE, NONE = ({"model.encoding": name} for name in ("rope", "tupe-r", "none"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(
        "wordorder.comparison.figures.write_figures", lambda results, folder: folder.mkdir(exist_ok=True)
    )
    monkeypatch.setattr("wordorder.comparison.workers.release_memory", lambda: None)
    # by its name the package has the function, not the file
    monkeypatch.setattr(import_module("wordorder.comparison.compare"), "write_report", lambda results, folder: None)
    monkeypatch.setattr("wordorder.comparison.results.conclusions", lambda results: {"comparisons": []})
    monkeypatch.setattr(
        "wordorder.comparison.merge.conclusions",
        lambda results: {"comparisons": [], "significance": {"sentence": f"over {len(results['rows'])} rows"}},
    )


@pytest.fixture
def done(make_recipe, log, tmp_path):
    """Run a comparison with stand-ins; its folder as --from takes it."""

    def run(name, *overrides, **options):
        compare(make_recipe(*overrides, **options), output_dir=tmp_path / name, progress=False, pipeline=STAND_IN)
        return str(tmp_path / name)

    return run


def merged(*folders, **options):
    path = merge(folders, **options)
    return json.loads(path.read_text())


def change(folder, edit):
    """Write a results file as another machine, or an earlier version, would have."""
    path = f"{folder}/results.json"
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    edit(results)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file)


def faults(*folders, **options):
    with pytest.raises(BadInput) as caught:
        merge(folders, **options)
    return list(caught.value.faults)


def test_arms_of_two_comparisons_stand_in_one_table(done, tmp_path, log):
    a = done("a", arms={"none": NONE, "rope": ROPE}, seeds=[0, 1], baseline="rope")
    b = done("b", arms={"tupe-r": TUPE}, seeds=[0, 1])
    before = [line for line in log() if line.startswith("start")]
    results = merged(a, b)
    assert [line for line in log() if line.startswith("start")] == before
    folder = tmp_path / "a+b"
    assert {path.name for path in folder.iterdir()} == {"results.json", "table.md", "report.html", "figures"}
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [
        (arm, seed) for seed in (0, 1) for arm in ("none", "rope", "tupe-r")
    ]
    assert [entry["arm"] for entry in results["summary"]] == ["none", "rope", "tupe-r"]
    assert results["planned"] | {"arms": 3, "seeds": [0, 1], "runs": 6} == results["planned"]
    assert results["complete"]
    assert results["baseline"] == "rope"
    assert list(results["correlations"]) == ["tupe-r"]
    assert results["significance"]["sentence"] == "over 6 rows"
    assert results["merged_from"] == [
        {"name": "small", "folder": f"../{name}", "device": "cpu: made up", "threads": 1} for name in "ab"
    ]
    for row in results["rows"]:
        assert (folder / row["model"] / "encoding").is_file()
    assert "tupe-r" in (folder / "table.md").read_text()


def test_the_recipe_of_a_merge_trains_all_arms(done, make_recipe, tmp_path):
    from wordorder.training import read_recipe
    from wordorder.training.toml_text import to_toml

    a = done("a", arms={"rope": ROPE}, seeds=[0])
    b = done("b", "model.hidden_size=32", "training.learning_rate=0.004", arms={"tupe-r": TUPE}, seeds=[2])
    recipe = merged(a, b)["recipe"]
    path = tmp_path / "again.toml"
    path.write_text(to_toml(recipe))
    again = read_recipe(path)
    assert again.compare.seeds == (0, 2)
    rope, tupe = (again.for_arm(arm) for arm in again.compare.arms)
    assert (rope.model["hidden_size"], tupe.model["hidden_size"], tupe.model["encoding"]) == (16, 32, "tupe-r")
    assert (rope.training["learning_rate"], tupe.training["learning_rate"]) == (0.002, 0.004)


def test_one_arm_with_other_seeds_is_joined_and_one_run_twice_is_one(done):
    arms = {"none": NONE, "rope": ROPE}
    a, b = done("a", arms=arms, seeds=[0, 1]), done("b", arms=arms, seeds=[1, 2])
    results = merged(a, b, a)
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [(arm, s) for s in (0, 1, 2) for arm in arms]
    assert results["planned"]["seeds"] == [0, 1, 2]
    assert results["complete"]
    assert results["notes"] == []
    assert [entry["loss"]["n"] for entry in results["summary"]] == [3, 3]


def test_arms_with_other_seeds_only_leave_the_table_incomplete(done):
    results = merged(done("a", arms={"none": NONE}, seeds=[0]), done("b", arms={"rope": ROPE}, seeds=[1]))
    assert not results["complete"]
    assert results["planned"]["runs"] == 4
    assert "Not every arm was trained on every seed or fold: 2 of 4 runs are there." in str(verdict(results))


def test_a_run_with_two_results_counts_once_and_is_told(done):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"rope": ROPE}, seeds=[0])
    change(b, lambda results: results["rows"][0].update(loss=9.5))
    (row,) = merged(a, b)["rows"]
    assert row["loss"] == 2.0
    (note,) = merged(a, b)["notes"]
    assert "rope, seed 0, was trained twice with different results" in note
    assert "9.5" in note


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["data.length=8"], "data.length was 16, now 8"),
        (["data.mask_probability=0.3"], "data.mask_probability was 0.15, now 0.3"),
        (["tokenizer.vocab_size=99"], "tokenizer.vocab_size was 120, now 99"),
        (["training.max_steps=7"], "training.max_steps was 6, now 7"),
        (["training.per_device_train_batch_size=8"], "training.per_device_train_batch_size was 4, now 8"),
        (["training.metric_for_best_model=accuracy"], "selection is 'loss' in"),
        (["data.test_fraction=0.3"], "data.test_fraction was 0.2, now 0.3"),
        (["compare.tune=[0.001, 0.002]"], "compare.tune is [] in"),
        (["compare.grid=[0.001, 0.002]"], "statistic is 'mean' in"),
        (["data.task='causal-lm'", "model.network='decoder'"], "task is 'masked-lm' in"),
    ],
)
def test_what_was_not_trained_alike_is_refused_by_name(done, tmp_path, changes, words):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", *changes, arms={"tupe-r": TUPE}, seeds=[0])
    found = faults(a, b)
    assert any(words in fault for fault in found), found
    assert all(fault.startswith("cannot be merged: ") and a in fault and b in fault for fault in found)
    assert not (tmp_path / "a+b").exists()


def test_other_texts_under_the_same_name_are_refused(done, monkeypatch):
    a = done("a", arms={"rope": ROPE}, seeds=[0])
    monkeypatch.setenv("STAND_IN_FINGERPRINT", "other")
    (fault,) = faults(a, done("b", arms={"none": NONE}, seeds=[0]))
    assert "the data differ" in fault


def test_other_budgets_are_refused(done):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"none": NONE}, seeds=[0])

    def budget(target, match="parameters"):
        def edit(results):
            arm = results["rows"][0]["arm"]
            results["rows"][0]["parameters"] = target
            results["recipe"]["compare"]["match"] = match
            results["budget"] = {"match": match, "tolerance": 0.01, "reference": arm, "sentence": "Equal."}
            results["budget"]["arms"] = {arm: {"value": target, "target": target, "unit": match, "changed": {}}}

        return edit

    change(a, budget(1000))
    assert "compare.match is 'parameters' in" in faults(a, b)[0]
    change(b, budget(1020))
    assert "the budgets differ: arms have 1,000 in" in faults(a, b)[0]
    change(b, budget(1005))
    assert list(merged(a, b)["budget"]["arms"]) == ["rope", "none"]


def test_one_name_for_two_arms_is_refused_and_a_prefix_tells_them_apart(done, tmp_path):
    a = done("a", arms={"rope": ROPE, "none": NONE}, seeds=[0])
    b = done("b", "training.weight_decay=0.1", arms={"rope": ROPE}, seeds=[0], baseline="rope")
    (fault,) = faults(a, b)
    assert "arm 'rope' is not the same in" in fault
    assert "training.weight_decay was 0.0, now 0.1" in fault
    assert f"--from {b}:NAME, which calls it NAME-rope" in fault
    results = merged(a, f"{b}:decayed")
    assert [row["arm"] for row in results["rows"]] == ["rope", "none", "decayed-rope"]
    assert [arm["name"] for arm in results["recipe"]["compare"]["arms"]] == ["rope", "none", "decayed-rope"]
    assert merged(f"{b}:decayed", a)["baseline"] == "decayed-rope"


def test_names_that_differ_by_case_are_refused(done):
    (fault, _) = faults(done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"Rope": ROPE}, seeds=[0]))
    assert "differs from another one by case only" in fault


def test_speeds_of_other_machines_are_marked(done, tmp_path):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"none": NONE}, seeds=[0])
    change(b, lambda results: results["environment"].update(device="cuda: H100", threads=4))
    (note,) = merged(a, b)["notes"]
    assert "Tokens per second and peak memory were measured in different conditions" in note
    assert "cuda: H100 with 4 threads" in note
    assert note in (tmp_path / "a+b" / "table.md").read_text()


def test_probes_are_joined_where_they_were_measured_alike(done):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"none": NONE}, seeds=[0])

    def probe(arm, lengths):
        rows = [{"arm": arm, "seed": 0, "x": length, "value": 1.0} for length in lengths]
        axes = {"title": "Lengths", "x": "tokens", "x_kind": "number", "value": "loss", "higher_is_better": False}
        one = {
            **axes,
            "log": False,
            "meaning": "Made up.",
            "options": {"lengths": lengths},
            "rows": rows,
            "skipped": [],
        }
        return lambda results: results.update(probes={"extrapolation": one})

    change(a, probe("rope", [16, 32]))
    change(b, probe("none", [16, 32]))
    found = merged(a, b, a)["probes"]["extrapolation"]
    assert [(row["arm"], row["x"]) for row in found["rows"]] == [("rope", 16), ("rope", 32), ("none", 16), ("none", 32)]
    change(b, probe("none", [16]))
    found = merged(a, b)["probes"]["extrapolation"]
    assert {row["arm"] for row in found["rows"]} == {"rope"}
    assert "measured with other options" in found["skipped"][0]["reason"]


def test_a_merge_can_be_merged_and_written_again(done, tmp_path):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"none": NONE}, seeds=[0])
    first = merged(a, b, output_dir=tmp_path / "ab")
    assert merged(a, b, output_dir=tmp_path / "ab") == first
    c = done("c", arms={"tupe-r": TUPE}, seeds=[0])
    results = merged(str(tmp_path / "ab"), c, output_dir=tmp_path / "deep" / "abc")
    assert [origin["folder"] for origin in results["merged_from"]] == ["../../a", "../../b", "../../c"]
    for row in results["rows"]:
        assert (tmp_path / "deep" / "abc" / row["model"]).is_dir()


def test_folders_that_cannot_be_read_or_written_are_refused(done, tmp_path):
    a = done("a", arms={"rope": ROPE}, seeds=[0])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "results.json").write_text("{")
    assert "there is no" in faults(a, str(tmp_path / "nothing"))[0]
    assert "is not a results file of this version" in faults(str(tmp_path / "broken"))[0]
    assert "is one of the folders that are merged" in faults(a, output_dir=tmp_path / "a")[0]
    b = done("b", arms={"none": NONE}, seeds=[0])
    assert "holds the results of a comparison" in faults(a, output_dir=tmp_path / "b")[0]
    (tmp_path / "file").touch()
    assert "cannot be written" in faults(a, b, output_dir=tmp_path / "file")[0]
    change(b, lambda results: results["rows"].append({"arm": "none"}))
    assert "it lacks parts of its rows; run the comparison again" in faults(a, b)[0]
    change(b, lambda results: results["recipe"].pop("compare"))
    assert "it lacks parts of the recipe" in faults(a, f"{b}:new")[0]
    change(b, lambda results: results.pop("data"))
    assert "it lacks data" in faults(a, b)[0]
    change(b, lambda results: results.update(rows=[]))
    assert "holds no finished run" in faults(a, b)[0]


def test_an_encoding_of_ones_own_needs_no_file_to_be_merged(done):
    a, b = done("a", arms={"rope": ROPE, "none": NONE}, seeds=[0]), done("b", arms={"rope": ROPE}, seeds=[1])

    def own(scale):
        def edit(results):
            arms = (results["arms"][0], results["recipe"]["compare"]["arms"][0])
            for arm, table in zip(arms, (arms[0]["overrides"], arms[1]), strict=True):
                arm["name"] = "mine"
                table |= {"model.encoding": "mine", "model.encoding_options": {"scale": scale}}
            results["rows"][0]["arm"] = "mine"

        return edit

    change(a, own(1))
    change(b, own(2))
    assert "model.encoding_options was {'scale': 1}, now {'scale': 2}" in faults(a, b)[0]
    change(b, own(1))
    assert [(row["arm"], row["seed"]) for row in merged(a, b)["rows"]] == [("mine", 0), ("none", 0), ("mine", 1)]


def test_one_name_for_two_encodings_of_ones_own_is_refused(done):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"rope": ROPE}, seeds=[1])

    def own(name, sha256):
        source = {"class": "Mine", "file": "mine.py", "sha256": sha256}
        return lambda results: results.update(own_encodings={name: source})

    change(a, own("mine", "0a"))
    change(b, own("mine", "0b"))
    (fault,) = faults(a, b)
    assert "the encoding of your own 'mine' is Mine of mine.py in" in fault
    assert "--arm FILE.py:CLASS=name" in fault
    change(b, own("mine", "0a"))
    assert list(merged(a, b)["own_encodings"]) == ["mine"]
    change(b, own("other", "0b"))
    assert list(merged(a, b)["own_encodings"]) == ["mine", "other"]


def test_arms_of_one_seed_that_were_fed_other_batches_are_refused(done, tmp_path):
    a, b = done("a", arms={"rope": ROPE}, seeds=[0]), done("b", arms={"none": NONE}, seeds=[0])
    change(a, lambda results: results["rows"][0].update(batches={"6": "one"}))
    change(b, lambda results: results["rows"][0].update(batches={"6": "other"}))
    assert "none, seed 0: was trained on other batches than rope of that seed" in faults(a, b)[0]
    assert not (tmp_path / "a+b").exists()
    change(b, lambda results: results["rows"][0].update(batches={"6": "one"}))
    assert len(merged(a, b)["rows"]) == 2


def test_folds_of_one_seed_are_runs_of_their_own(done):
    a = done("a", "data.folds=3", arms={"rope": ROPE}, seeds=[0], folds=[0, 1])
    b = done("b", "data.folds=3", arms={"none": NONE}, seeds=[0], folds=[0, 1])
    results = merged(a, b)
    assert [(row["arm"], row["fold"]) for row in results["rows"]] == [
        ("rope", 0), ("none", 0), ("rope", 1), ("none", 1),
    ]  # fmt: skip
    assert results["complete"]
    c = done("c", "data.folds=3", arms={"none": NONE}, seeds=[0], folds=[0, 2])
    assert "compare.folds is [0, 1] in" in faults(a, c)[-1]


def broken(*_):
    raise TypeError("a mistake of ours")


def test_a_mistake_of_ours_is_not_called_a_damaged_file(done, monkeypatch):
    one, two = done("one", **{"arms": {"rope": ROPE}}), done("two", **{"arms": {"tupe-r": TUPE}})
    monkeypatch.setattr("wordorder.comparison.merge.summarise", broken)
    with pytest.raises(TypeError, match="a mistake of ours"):
        merge([one, two])
    change(two, lambda results: results["rows"][0].update(loss="x"))  # now one of the files is another's work
    assert "a results.json was changed or is damaged (TypeError: a mistake of ours)" in faults(one, two)[0]


def test_results_hold_the_digest_of_the_rest(done):
    from wordorder.comparison.earlier_results import is_as_written

    one = done("one", **{"arms": {"rope": ROPE}})
    assert is_as_written(one)
    assert is_as_written(f"{one}:x")
    change(one, lambda results: results.update(name="other"))
    assert not is_as_written(one)
    assert not is_as_written("nowhere")
