import pytest

from wordorder.errors import BadInput
from wordorder.hints import MOST_HINTS
from wordorder.models import config_fields, factory
from wordorder.training import read_recipe
from wordorder.training.recipe.comparison_section import check_compare
from wordorder.training.runs.run import differences


def faults(path, *overrides):
    with pytest.raises(BadInput) as error:
        read_recipe(path, overrides)
    return error.value.faults


def test_saves_follow_evaluations_where_nothing_is_said_of_them(recipe_file):
    assert read_recipe(recipe_file).training.save_every is None
    assert read_recipe(recipe_file, ["training.save_every=epoch"]).training.save_every == "epoch"
    for wrong in ("-1", "0", "true", "'x'"):
        assert all("save_every" in fault for fault in faults(recipe_file, f"training.save_every={wrong}"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("evaluate_every=never", "training.select: loss is a score of validation, and evaluate_every is 'never'"),
        ("momentum=0.9", "training.momentum is for optimizer sgd and muon; leave it out"),
        ("micro_batch_size=64", "training.micro_batch_size: must be at most training.batch_size = 4, got 64"),
        ("keep_steps=[400]", "training.keep_steps: must be at most training.max_steps = 12, got (400,)"),
    ],
)
def test_values_that_do_not_go_together_are_one_sentence(recipe_file, change, fault):
    (found,) = faults(recipe_file, f"training.{change}")
    assert found.startswith(fault)


def test_muon_is_not_for_sharded_weights(recipe_file):
    (found,) = faults(recipe_file, "training.optimizer=muon", "training.fsdp=shard")
    assert found.startswith("training.fsdp: muon needs whole matrices")


def test_a_recipe_is_read_with_defaults_filled_in(recipe_file, tmp_path):
    recipe = read_recipe(recipe_file)
    assert (recipe.name, recipe.network, recipe.data.length) == ("tiny", "encoder", 32)
    assert recipe.model["encoding"] == "tupe-a"
    assert "network" not in recipe.model
    assert (recipe.training.batch_size, recipe.training.eval_batch_size) == (4, None)
    assert (recipe.training.evaluate_every, recipe.training.save_every) == (4, None)
    assert recipe.compare is None
    assert recipe.output_dir == tmp_path / "run"


def test_the_run_folder_has_the_recipes_name_by_default(recipe_file):
    text = recipe_file.read_text()
    recipe_file.write_text("\n".join(line for line in text.splitlines() if "output_dir" not in line))
    assert str(read_recipe(recipe_file).output_dir) == "runs/tiny"


def test_what_is_written_is_read_as_the_same_recipe(recipe_file, tmp_path):
    recipe_file.write_text(recipe_file.read_text() + COMPARE)
    recipe = read_recipe(recipe_file, ["training.keep_steps=[3]", "model.num_labels=3"])
    again = tmp_path / "again.toml"
    again.write_text(recipe.to_toml())
    assert read_recipe(again).to_dict() == recipe.to_dict()


def test_overrides_are_toml_or_strings(recipe_file):
    recipe = read_recipe(recipe_file, ["training.learning_rate=1e-4", "model.encoding=rope", "training.warmup_steps=3"])
    assert recipe.training.learning_rate == 1e-4
    assert recipe.model["encoding"] == "rope"
    assert recipe.training.warmup_steps == 3


def test_every_fault_of_every_section_is_reported_at_once(recipe_file):
    recipe_file.write_text(recipe_file.read_text() + "[comparee]\n")
    found = faults(
        recipe_file,
        "data.soruce=sotu",
        "task.nam=masked-lm",
        "data.seed=x",
        "tokenizer.kind=wordpeice",
        "model.encodng=rope",
        "model.hidden_size=15",
        "training.max_step=3",
        "training.learning_rate=-1",
        "training.optimizer=adamww",
        "training.seed=1.5",
        "training.push_to_hub=true",
        "data.length=64",
    )
    expected = [
        ("data.length", "max_position_embeddings=32"),
        ("'comparee'", "did you mean 'compare'?"),
        ("[data]", "'soruce'", "did you mean 'source'?", "valid names", "text_column"),
        ("[task]", "'nam'", "did you mean 'name'?", "mask_probability"),
        ("data.seed", "'x'"),
        ("tokenizer.kind", "wordpiece", "'wordpeice'"),
        ("[model]", "'encodng'", "did you mean 'encoding'?"),
        ("hidden_size", "multiple of num_attention_heads", "15"),
        ("[training]", "'max_step'", "did you mean 'max_steps'?"),
        ("training.learning_rate", "greater than 0", "-1"),
        ("training.optimizer", "did you mean 'adamw'?"),
        ("training.seed", "an integer", "1.5"),
        ("[training]", "'push_to_hub'", "valid names"),
    ]
    for words in expected:
        assert any(all(word in fault for word in words) for fault in found), words
    assert len(found) == len(expected)
    assert not any("\n" in fault for fault in found)


@pytest.mark.parametrize("name", ["adafactor", "galore_adamw"])
def test_an_unknown_optimizer_is_one_fault_that_lists_all(recipe_file, name):
    (fault,) = faults(recipe_file, f"training.optimizer={name}")
    for words in ("training.optimizer", repr(name), "adamw", "sgd", "muon"):
        assert words in fault


def test_what_is_no_override_is_said_before_anything_is_loaded(recipe_file, monkeypatch):
    monkeypatch.setattr("wordorder.training.recipe.recipe.check_run", None)
    assert faults(recipe_file, "nonsense", "=3", "training.seed=2") == (
        "--set nonsense: write section.key=value",
        "--set =3: '' is not a dotted name such as training.learning_rate",
    )


def test_the_nearest_name_is_said_first(recipe_file):
    (fault,) = faults(recipe_file, "training.lerning_rate=1")
    assert fault.startswith("[training]: unknown name 'lerning_rate'; did you mean 'learning_rate'?")
    assert "adam_beta1" in faults(recipe_file, "training.zzz=1")[0]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.encoding=roep", ["roep", "rope", "`wordorder list` shows all"]),
        ("task.name=masked", ["masked-lm", "classification"]),
        ("model.network=encodr", ["did you mean 'encoder'?"]),
        ("model.network=3", ["model.network", "encoder"]),
        ("data.length=64", ["data.length", "64", "max_position_embeddings"]),
        ("data.source=nowhere/*.txt", ["data.source", "nowhere/*.txt", "WORDORDER_DATA", "sotu"]),
        ("training.select=perplexity", ["loss, accuracy, macro_f1, f1, matthews_correlation"]),
        ("training.select=macro_f1", ["task masked-lm has no macro_f1", "valid: loss, accuracy"]),
        ("training.keep_steps=[13]", ["training.keep_steps", "at most training.max_steps = 12", "(13,)"]),
        ("training.keep_steps=[0]", ["training.keep_steps", "at least 1"]),
        ("training.keep_steps=3", ["training.keep_steps", "a list"]),
        ("training.decay_all_parameters=1", ["training.decay_all_parameters", "true or false"]),
        ("data.validation_source=nowhere.txt", ["data.validation_source", "nowhere.txt", "WORDORDER_DATA"]),
        ("data.test_source=nowhere.txt", ["data.test_source", "nowhere.txt"]),
        ("training.max_steps=0", ["training.max_steps", "at least 1"]),
        ("training.learning_rate=inf", ["training.learning_rate", "inf"]),
        ("training.fsdp=true", ["training.fsdp", "must be one of", "shard"]),
        ("model=3", ["model", "section"]),
        ("model.encoding.x=1", ["'encoding' is a value"]),
    ],
)
def test_a_wrong_value_is_one_fault_that_says_what_would_be_right(recipe_file, override, words):
    found = faults(recipe_file, override)
    assert len(found) == 1
    assert all(word in found[0] for word in words), found


def test_an_output_layer_that_cannot_share_the_words_table_is_a_fault_of_the_recipe(recipe_file):
    shared = ["model.encoding=complex-order", "model.encoding_options.amplitude=word-sharing"]
    lm = ["task.name=causal-lm", "model.network=decoder"]
    for task in ([], lm):
        (fault,) = faults(recipe_file, *shared, *task)
        assert fault.startswith("[model]: tie_word_embeddings=true: the output layer (")
        assert "cannot share" in fault
        read_recipe(recipe_file, [*shared, *task, "model.tie_word_embeddings=false"])
    whole = ["model.encoding=complex-order"]
    (fault,) = faults(recipe_file, *whole, "model.encoding_options.as_real=pair")
    assert "amplitude='full' without as_real='pair'" in fault
    for right in (whole, [*whole, "model.complex_valued=true"]):
        read_recipe(recipe_file, right)


def test_encodings_without_a_table_may_be_longer(recipe_file):
    assert read_recipe(recipe_file, ["data.length=64", "model.encoding=rope"]).data.length == 64


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no such file"), (b"[data", "not valid TOML"), (b"\xff\xfe\x00", "not UTF-8"), (b"", "[data] is missing")],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path, content, words):
    path = tmp_path / "recipe.toml"
    if content is not None:
        path.write_bytes(content)
    assert words in "\n".join(faults(path))


def test_a_folder_is_no_recipe(tmp_path):
    assert "is a folder" in faults(tmp_path)[0]


def test_a_relative_source_is_looked_up_in_wordorder_data(recipe_file, corpus, monkeypatch):
    monkeypatch.setenv("WORDORDER_DATA", str(corpus.parent))
    recipe = read_recipe(recipe_file, [f"data.source={corpus.name}/*/*.txt"])
    assert recipe.data.source == str(corpus / "*" / "*.txt")
    assert recipe.to_dict()["data"]["source"] == f"{corpus.name}/*/*.txt"


COMPARE = """
[compare]
seeds = [0, 3]
tune = [1e-3, 1]
workers = 2

[[compare.arms]]
name = "quoted"
"model.encoding" = "rope"

[[compare.arms]]
name = "nested"
model.encoding = "alibi"
training.learning_rate = 1
"""


def test_every_source_is_looked_up_and_stays_as_it_was_written(recipe_file, corpus, monkeypatch):
    monkeypatch.setenv("WORDORDER_DATA", str(corpus.parent))
    overrides = [f"data.validation_source={corpus.name}/left/*.txt", "data.test_source=none"]
    recipe = read_recipe(recipe_file, overrides)
    assert recipe.data.validation_source == str(corpus / "left" / "*.txt")
    assert recipe.data.test_source == "none"
    assert recipe.to_dict()["data"]["validation_source"] == f"{corpus.name}/left/*.txt"


def test_every_default_that_decides_the_result_is_written_out(recipe_file, tmp_path, monkeypatch):
    recipe = read_recipe(recipe_file, ["model.norm_placement=post"])
    model, training = (recipe.to_dict()[name] for name in ("model", "training"))
    assert {name: model[name] for name in ("intermediate_size", "num_key_value_heads", "embedding_norm")} == {
        "intermediate_size": 64,
        "num_key_value_heads": 2,
        "embedding_norm": True,
    }
    assert (model["norm"], model["hidden_dropout_prob"], model["initializer_range"]) == ("layer", 0.2, 0.02)
    assert not {"vocab_size", "pad_token_id"} & model.keys()  # the data decides them
    assert training["weight_decay"] == 0.0
    assert (training["adam_beta1"], training["adam_beta2"], training["max_grad_norm"]) == (0.9, 0.999, 1.0)
    assert (training["lr_schedule"], training["learning_rate"], training["epochs"]) == ("linear", 3e-3, 3.0)

    written = tmp_path / "written.toml"
    written.write_text(recipe.to_toml())
    monkeypatch.setattr(factory, "config_fields", lambda network: {**config_fields(network), "norm": "rms"})
    assert read_recipe(recipe_file).model["norm"] == "rms"  # a later version, with another default
    assert read_recipe(written).to_dict() == recipe.to_dict()


def test_defaults_that_follow_others_stay_open_where_arms_may_change_those(recipe_file):
    recipe_file.write_text(recipe_file.read_text() + COMPARE)
    assert read_recipe(recipe_file).to_dict()["model"]["intermediate_size"] == 64
    recipe_file.write_text(recipe_file.read_text() + "model.hidden_size = 8\n")
    recipe = read_recipe(recipe_file)
    assert "intermediate_size" not in recipe.to_dict()["model"]
    assert recipe.to_dict()["model"]["norm"] == "layer"
    assert recipe.compare is not None
    (first, *_) = recipe.compare.arms
    arm = recipe.with_overrides({"model.hidden_size": 32}).for_arm(first)
    assert (arm.model["intermediate_size"], arm.to_dict()["model"]["norm"]) == (128, "layer")


def test_what_a_block_has_is_written_out_unless_arms_change_the_block(recipe_file):
    modern = read_recipe(recipe_file, ["model.block=modern"]).to_dict()["model"]
    assert (modern["norm"], modern["hidden_act"], modern["qk_norm"], modern["use_bias"]) == (
        "rms",
        "swiglu",
        "rms",
        False,
    )
    arms = COMPARE + 'model.block = "modern"\n'
    recipe_file.write_text(recipe_file.read_text() + arms)
    recipe = read_recipe(recipe_file)
    assert not {"norm", "hidden_act", "qk_norm", "use_bias"} & recipe.to_dict()["model"].keys()
    assert recipe.compare is not None
    assert {recipe.for_arm(arm).to_dict()["model"]["norm"] for arm in recipe.compare.arms} == {"layer", "rms"}


def test_only_what_changes_results_is_a_difference(recipe_file):
    now = read_recipe(recipe_file).to_dict()
    changed = {**now, "model": {**now["model"], "norm": "rms"}, "training": {**now["training"], "weight_decay": 0.1}}
    assert differences(now, changed) == [
        "model.norm was 'layer', now 'rms'",
        "training.weight_decay was 0.0, now 0.1",
    ]
    assert differences(now, {**now, "training": {**now["training"], "threads": 2}}) == []


def test_arms_are_dotted_names_quoted_or_nested(recipe_file):
    recipe_file.write_text(recipe_file.read_text() + COMPARE)
    recipe = read_recipe(recipe_file)
    compare = recipe.compare
    assert compare is not None
    assert (compare.seeds, compare.tune, compare.workers, compare.match) == ((0, 3), (1e-3, 1), 2, "none")
    assert (compare.history, compare.baseline, compare.reference, compare.confidence) == ("segment", "", "quoted", 0.95)
    assert {arm.name: arm.overrides for arm in compare.arms} == {
        "quoted": {"model.encoding": "rope"},
        "nested": {"model.encoding": "alibi", "training.learning_rate": 1},
    }
    arm = recipe.with_overrides(compare.arms[1].overrides)
    assert (arm.model["encoding"], arm.training.learning_rate) == ("alibi", 1)
    assert recipe.model["encoding"] == "tupe-a"


def test_all_arms_are_checked_at_once(recipe_file):
    text = COMPARE.replace("rope", "roep").replace("training.learning_rate = 1", "training.learning_rat = 1")
    text = text.replace("[0, 3]", "[0, 0]").replace("workers = 2", 'match = "flop"')
    extra = '[[compare.arms]]\nname = "nested"\ndata.seed = 1\n[[compare.arms]]\nname = "a/b"\n'
    recipe_file.write_text(recipe_file.read_text() + text + extra)
    found = faults(recipe_file)
    for words in [
        ("compare.seeds", "twice"),
        ("compare.match", "'flop'", "'flops'?", "none, parameters, flops"),
        ("two arms are named 'nested'",),
        ("number 4", "'a/b'"),
        ("arm 'quoted'", "roep"),
        ("arm 'nested'", "did you mean 'learning_rate'?"),
        ("arm 'nested'", "data.seed", "share data"),
    ]:
        assert any(all(word in fault for word in words) for fault in found), (words, found)
    assert len(found) == 7


SHARED = """
match = "parameters"
history = "equal"
baseline = "nested"
confidence = 0.9
probes.extrapolation = { lengths = [32, 64] }
"""


def test_what_is_matched_and_measured_is_read_and_written_back(recipe_file, tmp_path):
    recipe_file.write_text(recipe_file.read_text() + COMPARE.replace("workers = 2\n", SHARED))
    compare = read_recipe(recipe_file).compare
    assert compare is not None
    assert (compare.match, compare.history, compare.reference, compare.confidence) == (
        "parameters",
        "equal",
        "nested",
        0.9,
    )
    assert compare.probes == {"extrapolation": {"lengths": [32, 64]}}
    written = tmp_path / "written.toml"
    written.write_text(read_recipe(recipe_file).to_toml())
    assert read_recipe(written).compare == compare


def test_what_is_matched_and_measured_is_checked(recipe_file):
    for value, words in {
        "baseline = 'nestet'": ("compare.baseline", "did you mean 'nested'?"),
        "confidence = 0.5": ("compare.confidence", "greater than 0.5 and less than 1"),
        "confidence = 1": ("compare.confidence", "got 1"),
        "history = 'longer'": ("compare.history", "segment, equal"),
        "probes = { extrapolation = 3 }": ("compare.probes.extrapolation", "a table", "got 3"),
        "probes = 3": ("compare.probes", "a table"),
    }.items():
        text = recipe_file.read_text()
        recipe_file.write_text(text + COMPARE.replace("workers = 2", value))
        (found,) = faults(recipe_file)
        assert all(word in found for word in words), found
        recipe_file.write_text(text)


def test_a_fault_of_the_recipe_is_not_said_again_for_each_arm(recipe_file):
    recipe_file.write_text(recipe_file.read_text() + COMPARE)
    assert len(faults(recipe_file, "training.seed=-1")) == 1


def test_with_overrides_checks(recipe_file):
    with pytest.raises(BadInput, match="unknown"):
        read_recipe(recipe_file).with_overrides({"model.encoding": "unknown"})


def test_names_of_hugging_face_lead_to_ours(recipe_file):
    for name, ours in (
        ("per_device_train_batch_size", "batch_size"),
        ("num_train_epochs", "epochs"),
        ("bf16", "precision"),
    ):
        (fault,) = faults(recipe_file, f"training.{name}=1")
        assert fault.startswith(f"training.{name}: is {ours} here")


def test_batches_come_in_their_order(recipe_file):
    """With several workers torch would give them as they are ready, otherwise in each run."""
    with pytest.raises(BadInput, match=r"unknown name 'in_order'"):
        read_recipe(recipe_file, ("training.workers=2", "training.in_order=false"))


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (
            {"folds": 300_000_000},
            "compare.folds: must be at least 1 and at most 10,000, or a list of folds, got",
        ),
        ({"workers": 100_000}, "compare.workers: must be at least 1 and at most 256, got 100000"),
        ({"seeds": [0, 2**32]}, "compare.seeds[1]: must be at least 0 and at most 4,294,967,295, got 4294967296"),
        ({"tune_seed": 2**32}, "compare.tune_seed[0]: must be at least 0 and at most 4,294,967,295, got 4294967296"),
        ({"arms": [{"name": f"a{i}"} for i in range(3000)]}, "[compare]: has 3,000 arms, more than the 500"),
        (
            {"seeds": list(range(30)), "folds": 9000},
            "[compare]: its arms, seeds, folds and grid make 270,000 trainings",
        ),
    ],
)
def test_a_comparison_that_never_ends_is_one_fault(table, fault):
    config, faults = check_compare({"arms": [{"name": "a"}]} | table)
    assert [fault in found for found in faults] == [True]
    assert len(config.folds) <= 10_000
    assert len(config.arms) <= 500


def test_of_many_unknown_names_of_an_arm_the_first_have_hints():
    names = [f"modell{number}" for number in range(200)]
    _, faults = check_compare({"arms": [{"name": "a"} | dict.fromkeys(names, 1)]})
    assert [name in fault for name, fault in zip(names, faults, strict=True)] == [True] * 200
    assert sum("did you mean 'model'?" in fault for fault in faults) == MOST_HINTS


@pytest.mark.parametrize("path", [r"C:\Users\mine", r"C:\data"])
def test_a_path_with_backslashes_has_a_remedy(tmp_path, path):
    (tmp_path / "r.toml").write_text(f'[data]\nsource = "{path}"\n')
    with pytest.raises(BadInput, match=r"not valid TOML: .*between single quotes"):
        read_recipe(tmp_path / "r.toml")
