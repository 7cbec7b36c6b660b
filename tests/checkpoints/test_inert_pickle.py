"""Pickles are read, never carried out: what they want imported or called stays a name."""

import argparse
import collections
import io
import os
import pickle
import time

import pytest
import torch
import tupe_reference as ref

from wordorder.checkpoints import convert_tupe, inert_pickle
from wordorder.checkpoints.inert_pickle import Machine
from wordorder.checkpoints.inert_records import Damaged, Namespace, Placeholder, Storage, StoredTensor, printable
from wordorder.errors import BadInput

STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQ"


def read(data: bytes):
    return Machine().run(io.BytesIO(data))


class Calls:
    """Asks the reader to call something, as a malicious file does."""

    def __init__(self, called, *arguments):
        self.asked = called, arguments

    def __reduce__(self):
        return self.asked


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_what_pickle_reads(protocol):
    value = {
        "numbers": [0, 1, -1, 255, 65536, -(2**31), 2**40, -(2**70), 1.5, float("inf")],
        "words": ["", "a b", "é\n\u2028", b"bytes" if protocol > 2 else "x", "long" * 100],
        "others": [None, True, False, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}, {"a": {"b": 1}}],
        7: "seven",
        None: [[[]]],
    }
    value["same"] = value["words"]
    assert read(pickle.dumps(value, protocol)) == value


def test_sets_are_lists_and_shared_things_stay_shared():
    shared = []
    ours = read(pickle.dumps([{1}, frozenset({2}), shared, shared], 4))
    assert ours == [[1], [2], [], []]
    assert ours[2] is ours[3]


def test_what_contains_itself_is_read():
    inside: list[object] = []
    inside.append(inside)
    ours = read(pickle.dumps(inside))
    assert ours[0] is ours


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_closed_list_becomes_records(protocol):
    ours = read(pickle.dumps([argparse.Namespace(a=1, b=[2]), collections.OrderedDict(x=1)], protocol))
    assert isinstance(ours[0], Namespace)
    assert ours[0].fields == {"a": 1, "b": [2]}
    assert ours[1] == {"x": 1}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("called", [os.system, exec, eval, open, __import__, os.remove, torch.load, pickle.loads])
def test_nothing_is_called(tmp_path, protocol, called):
    victim = tmp_path / "victim"
    victim.write_text("x")
    machine = Machine()
    data = pickle.dumps([Calls(called, str(victim)), {Calls(called, str(victim)): 1}], protocol)
    ours = machine.run(io.BytesIO(data))
    assert isinstance(ours[0], Placeholder)
    assert ours[0].name.endswith(f".{called.__name__}")
    assert [type(key) for key in ours[1]] == [Placeholder]
    assert machine.placeholders[ours[0].name] >= 1
    assert victim.read_text() == "x"


def test_no_instruction_reaches_a_placeholder():
    """Call, make, build, append, set an item, old-style instance and object: on a foreign name each does nothing."""
    name = b"cposix\nsystem\n"
    for program in (
        name + b"(X\x02\x00\x00\x00lstR",
        name + b"(X\x02\x00\x00\x00lst\x81",
        b"\x8c\x05posix\x8c\x06system\x93(K\x01t}\x92",
        b"\x8c\x05posix\x8c\x06system\x93)}X\x01\x00\x00\x00aK\x01s\x92",
        name + b")R}X\x01\x00\x00\x00aK\x01sb",
        name + b")RK\x01a",
        name + b")R(K\x01K\x02e",
        name + b")RK\x01K\x02s",
        name + b")R(K\x01K\x02u",
        name + b")R(K\x01\x90",
        b"(X\x02\x00\x00\x00lsiposix\nsystem\n",
        b"(" + name + b"X\x02\x00\x00\x00lso",
        name + b"(K\x01tR(K\x02tR",
        b"\x82\x07)R",
    ):
        machine = Machine()
        ours = machine.run(io.BytesIO(b"\x80\x04" + program + b"."))
        assert isinstance(ours, Placeholder), program
        assert list(machine.placeholders) == [ours.name]


def test_a_known_name_in_an_unknown_use_is_foreign():
    for program in (
        b"ccollections\nOrderedDict\n((K\x01K\x02tt\x85R",
        b"cargparse\nNamespace\nK\x01\x85R",
        b"ctorch._utils\n_rebuild_parameter\nK\x01\x85R",
        b"ctorch\nFloatStorage\n)R",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R",
    ):
        ours = read(program + b".")
        assert isinstance(ours, Placeholder)
        assert "unknown arguments" in ours.name


def tensor(size=b"K\x02K\x03\x86", stride=b"K\x03K\x01\x86", offset=b"K\x00", hooks=b"N", more=b"", storage=STORAGE):
    arguments = storage + offset + size + stride + b"\x89" + hooks + more
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR."


def test_a_tensor_is_a_record_of_where_its_numbers_are():
    ours = read(tensor())
    assert isinstance(ours, StoredTensor)
    assert (ours.storage.key, ours.storage.kind, ours.storage.numel) == ("0", "float32", 6)
    assert (ours.offset, ours.size, ours.stride) == (0, (2, 3), (3, 1))


@pytest.mark.parametrize(
    "parts",
    [
        {"hooks": b"}K\x01cposix\nsystem\ns"},
        {"hooks": b"cposix\nsystem\n"},
        {"more": b"}X\x03\x00\x00\x00neg\x88s"},
        {"size": b"K\x02"},
        {"size": b"K\x02\x85"},
        {"size": b"J\xff\xff\xff\xffK\x03\x86"},
        {"size": b"G?\xf0\x00\x00\x00\x00\x00\x00K\x03\x86"},
        {"offset": b"J\xff\xff\xff\xff"},
        {"offset": b"X\x01\x00\x00\x000"},
        {"size": b"(" + b"K\x01" * 9 + b"t", "stride": b"(" + b"K\x00" * 9 + b"t"},
        {"storage": STORAGE.replace(b"FloatStorage", b"OtherStorage")},
        {"storage": STORAGE.replace(b"tQ", b"K\x01tQ")},
    ],
)
def test_a_tensor_that_is_not_plain_is_a_placeholder(parts):
    assert isinstance(read(tensor(**parts)), Placeholder)


@pytest.mark.parametrize(
    "parts",
    [
        {"size": b"K\x02K\x04\x86"},
        {"offset": b"K\x01"},
        {"stride": b"K\x06K\x01\x86"},
        {"storage": STORAGE.replace(b"K\x06tQ", b"J\xff\xff\xff\xfftQ")},
        {"storage": STORAGE.replace(b"X\x01\x00\x00\x000", b"K\x00")},
    ],
)
def test_a_tensor_beyond_its_storage_is_damage(parts):
    with pytest.raises(Damaged, match="storage"):
        read(tensor(**parts))


def test_a_storage_has_one_description():
    other = STORAGE.replace(b"FloatStorage", b"HalfStorage")
    assert isinstance(read(STORAGE + b"0" + STORAGE + b"."), Storage)
    with pytest.raises(Damaged, match="two ways"):
        read(STORAGE + b"0" + other + b".")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"N",
        b"\xff",
        b".",
        b"0.",
        b"R.",
        b"K\x01K\x02R.",
        b"K\x01K\x02b.",
        b"K\x01K\x02a.",
        b"}K\x01a.",
        b"]K\x01K\x02s.",
        b"}(K\x01u.",
        b"h\x05.",
        b"q\x05.",
        b"t.",
        b"e.",
        b"X\x05\x00\x00\x00ab.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fab.",
        b"\x8e\x00\x00\x00\x00\x00\x01\x00\x00ab.",
        b"\x8a\xffab.",
        b"Inot a number\n.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"S'no end\n.",
        b"K\x01K\x02\x93.",
        b"Pold persistent id\n.",
        b"\x97.",
        b"cno newline.",
        b"ca\\name\nb\\\n)R",
        b"cargparse\nNamespace\n)\x81Nb.",
    ],
)
def test_nonsense_is_damage(data):
    with pytest.raises(Damaged):
        read(data)


def test_the_file_is_left_behind_the_pickle():
    file = io.BytesIO(pickle.dumps([1]) + pickle.dumps([2]) + b"rest")
    machine = Machine()
    assert (machine.run(file), machine.run(file), file.read()) == ([1], [2], b"rest")


def test_bytes_and_instructions_are_limited(monkeypatch):
    data = pickle.dumps(list(range(100)))
    assert Machine().run(io.BytesIO(data), most_bytes=len(data)) == list(range(100))
    with pytest.raises(Damaged, match="too early, or is larger"):
        Machine().run(io.BytesIO(data), most_bytes=len(data) - 1)
    monkeypatch.setattr(inert_pickle, "MOST_OPCODES", 50)
    with pytest.raises(Damaged, match="more than 50 instructions"):
        Machine().run(io.BytesIO(data))


def test_a_key_that_takes_for_ever_to_hash_is_not_hashed():
    # every level holds the one below it twice: 2^28 leaves, in 84 bytes
    nested = b"K\x01" + b"\x94h\x00\x86" + b"".join(b"\x94h" + bytes([level]) + b"\x86" for level in range(1, 28))
    started = time.perf_counter()
    ours = read(b"}" + nested + b"K\x01s.")
    assert time.perf_counter() - started < 1
    assert list(ours.values()) == [1]


def test_no_small_pickle_copies_what_it_made_before():
    """A namespace's state is taken as it is: a file can name one dict for a million namespaces."""
    fields = b"}(" + b"".join(b"J" + n.to_bytes(4, "little") + b"N" for n in range(1000)) + b"u\x940"
    ours = read(fields + b"](" + b"cargparse\nNamespace\n)\x81h\x00b" * 3 + b"e.")
    assert len({id(namespace.fields) for namespace in ours}) == 1


def test_what_is_printed_is_short_and_has_no_control_characters():
    assert printable("\x1b[2Jé\n") == "\\x1b[2J\\xe9\\n"
    assert len(printable("x" * 10**6)) < 130
    assert printable(10**6) == "1000000"
    deep: list[object] = []
    for _ in range(10**4):
        deep = [deep]
    assert printable(deep) == "a value of type list"
    assert printable(1 << 10**6) == "a value of type int"
    assert printable(Placeholder("posix.system")) == "<posix.system>"


@pytest.fixture
def trap(tmp_path):
    """A command that leaves a mark, and the check that it did not run."""
    mark = tmp_path / "ran"
    yield Calls(os.system, f"touch {mark}"), mark
    assert not mark.exists()


@pytest.mark.filterwarnings("ignore")
def test_the_trap_is_a_trap(tmp_path):
    mark = tmp_path / "mark"
    path = ref.save(tmp_path / "model.pt", ref.weights(), trap=Calls(os.system, f"touch {mark}"))
    torch.load(path, weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize("stream", [False, True], ids=["zip", "stream"])
@pytest.mark.parametrize("where", ["extra_state", "optimizer_history", "args"])
def test_a_malicious_checkpoint_runs_nothing_and_is_converted(tmp_path, trap, where, stream):
    w = ref.weights()
    with ref.foreign("fairseq.meters", "AverageMeter") as meter:
        planted = {
            "extra_state": {"trap": trap[0]},
            "optimizer_history": {"history": [{"lr_scheduler_state": [trap[0]]}]},
            "args": {"args": ref.arguments(w, planted=trap[0])},
        }[where]
        path = ref.save(tmp_path / "model.pt", w, stream=stream, train_meters={"wps": meter}, **planted)
    report = convert_tupe(path, tmp_path / "out")
    assert report.placeholders == {"fairseq.meters.AverageMeter": 1, "posix.system": 1}
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("stream", [False, True], ids=["zip", "stream"])
@pytest.mark.parametrize("name", ["sentence_encoder.pos_ln.bias", "version", "sentence_encoder.more"])
def test_a_placeholder_among_the_weights_is_refused(tmp_path, trap, name, stream):
    w = {**ref.weights(), name: trap[0]}
    path = ref.save(tmp_path / "model.pt", w, ref.arguments(w), stream=stream)
    with pytest.raises(BadInput, match=r"no plain tensors: decoder\..* = <posix.system>"):
        convert_tupe(path, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt"]


@pytest.mark.parametrize("args", ["a name", 7, [1]])
def test_args_of_another_kind_are_refused(tmp_path, args):
    path = ref.save(tmp_path / "model.pt", ref.weights(), args)
    with pytest.raises(BadInput, match=r"not an argparse\.Namespace"):
        convert_tupe(path, tmp_path / "out")


def test_args_that_are_a_placeholder_are_no_args(tmp_path, trap):
    path = ref.save(tmp_path / "model.pt", ref.weights(relative=False), trap[0])
    with pytest.raises(BadInput, match="encoder_attention_heads is missing"):
        convert_tupe(path, tmp_path / "out")
    report = convert_tupe(path, tmp_path / "out", config={"encoder_attention_heads": ref.H})
    assert report.config["num_attention_heads"] == ref.H


def test_a_placeholder_as_an_argument_that_matters_is_named(tmp_path, trap):
    w = ref.weights()
    path = ref.save(tmp_path / "model.pt", w, ref.arguments(w, dropout=trap[0], encoder_layers=trap[0]))
    with pytest.raises(BadInput, match=r"encoder_layers must be a positive integer, got <posix.system>"):
        convert_tupe(path, tmp_path / "out")
