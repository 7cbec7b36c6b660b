"""An encoding of one's own under a name: what is refused, what is remembered, and models that are saved with it."""

import importlib.util
import json
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from wordorder import Encoder
from wordorder.encodings import (
    CATALOG,
    NoEncoding,
    OnDistance,
    OnEmbeddings,
    build_encoding,
    options_of,
    register_encoding,
    registered_encodings,
)
from wordorder.errors import BadInput

SIZES = {"width": 8, "heads": 2, "layers": 2, "max_positions": 16}
SMALL = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


class Slope(OnDistance):
    """A learned slope per head."""

    def __init__(self, heads: int, *, start: float = 0.5) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.full((heads,), start))

    def at_distance(self, distance, dtype=torch.float32):
        return -self.slope.view(-1, *(1,) * distance.dim()) * distance.abs()


class Abstract(OnEmbeddings):
    pass


class Needy(NoEncoding):
    def __init__(self, wavelength: float) -> None:
        super().__init__()


pytestmark = pytest.mark.usefixtures("registries_as_they_were")


def test_it_is_used_by_its_name_alone_and_with_others():
    register_encoding("my-slope", Slope)
    assert build_encoding("my-slope", **SIZES, options={"start": 2.0}).parts["my_slope"].slope[0] == 2
    encoder = Encoder(20, encoding="rope+my-slope", **SIZES)
    assert "encoding.parts.my_slope.slope" in encoder.state_dict()
    assert build_encoding("my-slope,none", **SIZES).parts["my_slope"] is not None
    assert options_of(CATALOG["my-slope"]) == {"start": 0.5}


def test_weights_have_the_names_that_they_would_have_in_the_catalogue(monkeypatch):
    register_encoding("my-slope", Slope)
    own = Encoder(20, encoding="my-slope", **SIZES).state_dict()
    monkeypatch.setattr(Slope, "__module__", "wordorder.encodings.my_slope")  # contributed, in a file of its name
    assert list(Encoder(20, encoding="my-slope", **SIZES).state_dict()) == list(own)


def test_where_it_came_from_is_remembered():
    register_encoding("my-slope", Slope)
    source = registered_encodings()["my-slope"]
    assert source.class_name == "Slope"
    assert source.file == __file__
    assert len(source.sha256) == 64
    assert source.as_dict() == {"class": "Slope", "file": "test_registration.py", "sha256": source.sha256}
    del CATALOG["my-slope"]
    assert "my-slope" not in registered_encodings()


def test_the_same_class_may_be_registered_again_and_another_not():
    register_encoding("my-slope", Slope)
    again = type("Slope", (Slope,), {"__module__": Slope.__module__, "__qualname__": "Slope"})
    register_encoding("my-slope", again)  # a cell of a notebook that was run again
    assert CATALOG["my-slope"] is again
    with pytest.raises(ValueError, match=r"name 'my-slope' is taken by .*Slope; choose another"):
        register_encoding("my-slope", NoEncoding)


@pytest.mark.parametrize(
    ("name", "encoding", "words"),
    [
        ("rope", Slope, r"name 'rope' is taken by wordorder\.encodings\.rope\.Rotary"),
        ("Rope", Slope, "name 'Rope' would be read as 'rope', which is in the catalogue"),
        ("TUPE_A", Slope, "name 'TUPE_A' would be read as 'tupe-a'"),
        *((name, Slope, "name must be of letters") for name in ("a+b", "a,b", "a*2", "my slope", "", "a.b", "-a", 3)),
        ("mine", nn.Linear, "encoding must be a class"),
        ("mine", Slope(2), "encoding must be a class"),
        ("mine", Abstract, "encoding Abstract must define forward"),
        ("mine", Needy, "encoding Needy: wavelength must have a default"),
    ],
)
def test_what_cannot_be_registered(name, encoding, words):
    before = dict(CATALOG)
    with pytest.raises(ValueError, match=words):
        register_encoding(name, encoding)
    assert before == CATALOG


def test_a_saved_model_names_the_class_and_the_file_where_it_is_not_registered(tmp_path):
    from transformers import AutoModelForMaskedLM

    from wordorder.models import build_config, build_model

    register_encoding("my-slope", Slope)
    model = build_model(build_config("encoder", encoding="my-slope", **SMALL), "masked-lm", seed=0).eval()
    model.save_pretrained(tmp_path)
    ids = torch.randint(20, (1, 7))
    again = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=0)
    assert again.config.own_encodings == {"my-slope": registered_encodings()["my-slope"].as_dict()}
    del CATALOG["my-slope"]
    with pytest.raises(BadInput) as error:
        AutoModelForMaskedLM.from_pretrained(tmp_path)
    (line,) = error.value.faults
    assert "the class Slope of test_registration.py" in line
    assert "wordorder.encodings.register_encoding('my-slope', Slope)" in line


def test_a_saved_model_is_never_read_with_an_encoding_of_another_letter_case(tmp_path):
    from transformers import AutoModelForMaskedLM

    from wordorder.models import build_config, build_model

    build_model(build_config("encoder", encoding="alibi", **SMALL), "masked-lm", seed=0).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    given = json.loads(file.read_text("utf-8"))
    own = {"class": "ALiBi", "file": "mine.py", "sha256": ""}
    file.write_text(json.dumps({**given, "encoding": "Alibi", "own_encodings": {"Alibi": own}}), encoding="utf-8")
    with pytest.raises(BadInput, match=r"encoding 'Alibi' of this model is none of the catalogue: .* mine\.py"):
        AutoModelForMaskedLM.from_pretrained(tmp_path)


def test_another_file_under_the_same_name_is_warned_of(tmp_path):
    from transformers import AutoConfig

    from wordorder.models import build_config

    path = tmp_path / "mine.py"

    def registered(text):
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("mine_of_a_test", path)
        module = sys.modules["mine_of_a_test"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        register_encoding("mine", module.Mine)

    body = "from wordorder.encodings import NoEncoding\nclass Mine(NoEncoding):\n    pass\n"
    registered(body)
    build_config("encoder", encoding="mine", **SMALL).save_pretrained(tmp_path)
    AutoConfig.from_pretrained(tmp_path)
    registered(body + "# otherwise\n")
    with pytest.warns(UserWarning, match=r"'mine' is of another file than the model was trained with \(mine\.py"):
        AutoConfig.from_pretrained(tmp_path)


def test_models_of_the_catalogue_say_nothing_of_it():
    from wordorder.models import build_config

    assert "own_encodings" not in build_config("encoder", encoding="rope", **SMALL).to_dict()
