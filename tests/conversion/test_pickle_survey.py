"""What a file asks for is never done: nothing is imported or called, and no small file takes much time or memory."""

import argparse
import codecs
import collections
import io
import os
import pickle
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
import torch
import tupe_reference as ref

from wordorder.conversion import convert_tupe, pickle_survey
from wordorder.conversion.pickle_survey import Namespace, Placeholder, Survey, printable
from wordorder.conversion.torch_file import MAGIC, PROTOCOL, read_torch_file
from wordorder.errors import BadInput

STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQ"
LAYOUTS = pytest.mark.parametrize("stream", [False, True], ids=["zip", "stream"])


def torch_file(path: Path, data: bytes, *, stream: bool = False, storages: dict[str, bytes] | None = None) -> Path:
    """Write a torch file around a pickle."""
    storages = storages or {}
    if stream:
        head = [pickle.dumps(value, 2) for value in (MAGIC, PROTOCOL, {"little_endian": True})]
        numbers = [(len(each) // 4).to_bytes(8, "little") + each for each in storages.values()]
        path.write_bytes(b"".join([*head, data, pickle.dumps(list(storages), 2), *numbers]))
        return path
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"data.pkl": data, "version": b"3\n"}.items():
            archive.writestr(f"x/{name}", content)
        for key, content in storages.items():
            archive.writestr(f"x/data/{key}", content)
    return path


@pytest.fixture
def read(tmp_path):
    """Read a pickle as the object of a torch file."""

    def of(data: bytes, *, stream: bool = False, storages: dict[str, bytes] | None = None):
        return read_torch_file(torch_file(tmp_path / "file.pt", data, stream=stream, storages=storages))

    return of


@pytest.fixture
def refused(read):
    """Return why a pickle is refused, within a second."""

    def of(data: bytes, **options):
        started = time.perf_counter()
        with pytest.raises(BadInput) as error:
            read(data, **options)
        assert time.perf_counter() - started < 5
        (fault,) = error.value.faults
        assert "\n" not in fault
        return fault

    return of


class Calls:
    """Asks the reader to call something, as a malicious file does."""

    def __init__(self, called, *arguments):
        self.asked = called, arguments

    def __reduce__(self):
        return self.asked


@LAYOUTS
def test_plain_values_are_what_was_saved(read, stream):
    value = {
        "numbers": [0, 1, -1, 255, 65536, -(2**31), 2**40, -(2**70), 1.5, float("inf"), 1 + 2j],
        "words": ["", "a b", "é\n\u2028", b"bytes", b"", "long" * 100],
        "others": [None, True, False, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}, {"a": {"b": 1}}, {1, 2}],
        "torch": [torch.float16, torch.device("cpu"), torch.Size([2, 3]), collections.Counter("aab")],
        7: "seven",
        None: [[[]]],
        (1, "a"): 2,
    }
    value["same"] = value["words"]
    ours = read(pickle.dumps(value, 2), stream=stream).root
    assert isinstance(ours["words"].pop(4), Placeholder)  # builtins.bytes, which makes empty ones, is none of torch's
    del value["words"][4]
    assert ours == value
    assert ours["same"] is ours["words"]


@LAYOUTS
def test_what_python_2_wrote_is_read(read, stream):
    """Short strings are bytes there."""
    data = b"\x80\x02}q\x00(U\x04argsq\x01cargparse\nNamespace\nq\x02)\x81q\x03}q\x04U\x01\xe9K\x01sb"
    data += b"U\x01sc__builtin__\nset\n]K\x02a\x85Ru."
    ours = read(data, stream=stream).root
    assert ours["args"].fields == {"\xe9": 1}
    assert ours["s"] == {2}


@LAYOUTS
def test_what_contains_itself_is_read(read, stream):
    inside: list[object] = []
    inside.append(inside)
    ours = read(pickle.dumps(inside, 2), stream=stream).root
    assert ours[0] is ours


def test_namespaces_have_their_fields_and_other_classes_none(read):
    with ref.foreign("fairseq.meters", "AverageMeter") as meter:
        data = pickle.dumps([argparse.Namespace(a=1, b=[2]), collections.OrderedDict(x=1), meter, type(meter)], 2)
    file = read(data)
    namespace, ordered, thing, kind = file.root
    assert isinstance(namespace, Namespace)
    assert namespace.fields == {"a": 1, "b": [2]}
    assert ordered == {"x": 1}
    assert isinstance(thing, Placeholder)
    assert thing is kind
    assert vars(thing) == {"name": "fairseq.meters.AverageMeter", "makes": None}
    assert file.placeholders == {"fairseq.meters.AverageMeter": 1}


def test_what_is_filled_is_a_plain_list_or_dict(read):
    value = [collections.deque([1, 2]), collections.defaultdict(list, a=[3])]
    file = read(pickle.dumps(value, 2))
    assert file.root == [[1, 2], {"a": [3]}]
    assert [type(each) for each in file.root] == [list, dict]
    assert file.placeholders.keys() == {"collections.deque", "collections.defaultdict", "builtins.list"}


def test_numpy_scalars_are_placeholders(read):
    numpy = pytest.importorskip("numpy")
    file = read(pickle.dumps({"loss": numpy.float64(2.5), "kind": numpy.dtype("f4"), "lr": 0.1}, 2))
    assert file.root["lr"] == 0.1
    assert isinstance(file.root["loss"], Placeholder)
    assert file.root["loss"].name.endswith("multiarray.scalar")
    assert file.root["kind"].name == "numpy.dtype"


@pytest.mark.parametrize("protocol", range(6))
@LAYOUTS
@pytest.mark.parametrize(
    "called", [os.system, exec, eval, open, __import__, os.remove, torch.load, pickle.loads, subprocess.call, getattr]
)
def test_nothing_is_called(tmp_path, read, protocol, stream, called):
    victim = tmp_path / "victim"
    victim.write_text("x")
    data = pickle.dumps([Calls(called, str(victim)), {Calls(called, str(victim)): 1}], protocol)
    blocked = called in (os.system, os.remove)
    if protocol in (1, 2, 3) and not blocked:
        file = read(data, stream=stream)
        assert isinstance(file.root[0], Placeholder)
        assert file.root[0].name.endswith(f".{called.__name__}")
        assert [type(key) for key in file.root[1]] == [Placeholder]
        assert file.placeholders[file.root[0].name] >= 1
    else:
        with pytest.raises(BadInput, match=r"runs commands|has protocol|has the instruction"):
            read(data, stream=stream)
    assert victim.read_text() == "x"


def test_a_module_is_not_imported(read, tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(read(b"\x80\x02cplanted\nthing\n)R.").root, Placeholder)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", [b"builtins\neval\n", b"__builtin__\neval\n", b"nt.path\nsystem\n", b"a.b\nc\n"])
def test_no_instruction_reaches_a_placeholder(read, name):
    """Call, make, build, append, set an item: on a foreign name each does nothing."""
    for program in (
        b"(X\x02\x00\x00\x00lstR",
        b"(X\x02\x00\x00\x00lst\x81",
        b")R}X\x01\x00\x00\x00aK\x01sb",
        b")R)R",
        b")R(K\x02tR",
    ):
        if name.startswith(b"nt"):
            continue
        file = read(b"\x80\x02c" + name + program + b".")
        assert isinstance(file.root, Placeholder), program
        assert list(file.placeholders) == [file.root.name]
    for program, filled in ((b")RK\x01a", [1]), (b")R(K\x01K\x02e", [1, 2]), (b")RK\x01K\x02s", {1: 2})):
        if not name.startswith(b"nt"):
            assert read(b"\x80\x02c" + name + program + b".").root == filled


def test_what_the_program_allows_torch_elsewhere_is_not_used(read):
    class Own:
        made = 0

        def __new__(cls):
            cls.made += 1
            return super().__new__(cls)

    before = set(torch.serialization.get_safe_globals())
    with torch.serialization.safe_globals([(Own, "own.Own")]):
        file = read(b"\x80\x02cown\nOwn\n)R.")
        assert (Own, "own.Own") in torch.serialization.get_safe_globals()
    assert isinstance(file.root, Placeholder)
    assert Own.made == 0
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(
    "name",
    [
        "builtins bytearray",
        "__builtin__ bytearray",
        "torch FloatTensor",
        "torch Tensor",
        "torch.storage UntypedStorage",
        "torch QInt8Storage",
        "torch._utils _rebuild_qtensor",
        "torch._utils _rebuild_sparse_tensor",
        "torch._utils _rebuild_wrapper_subclass",
        "torch._tensor _rebuild_from_type_v2",
        "torch.nn.parameter Parameter",
    ],
)
def test_what_torch_would_make_of_its_own_is_a_closed_list(refused, name):
    assert "dense tensors of usual types" in refused(f"\x80\x02c{name}\n.".replace(" ", "\n").encode("latin1"))


def test_a_known_name_in_an_unknown_use_is_refused(refused):
    for program in (
        b"ccollections\nOrderedDict\n((K\x01K\x02tt\x85R",
        b"cargparse\nNamespace\nK\x01\x85R",
        b"ctorch._utils\n_rebuild_parameter\nK\x01\x85R",
        b"ctorch\nFloatStorage\n)R",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR",
        b"cbuiltins\nset\n(ctorch\nFloatStorage\ntR",
    ):
        refused(b"\x80\x02" + program + b".")


def tensor(size=b"K\x02K\x03\x86", stride=b"K\x03K\x01\x86", offset=b"K\x00", hooks=b"N", more=b"", storage=STORAGE):
    arguments = storage + offset + size + stride + b"\x89" + hooks + more
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR."


@LAYOUTS
def test_a_tensor_has_the_numbers_of_its_storage(read, stream):
    numbers = torch.arange(6.0)
    storage = STORAGE.replace(b"tQ", b"NtQ") if stream else STORAGE
    ours = read(tensor(storage=storage), stream=stream, storages={"0": numbers.numpy().tobytes()}).root
    assert torch.equal(ours, numbers.view(2, 3))


@LAYOUTS
@pytest.mark.parametrize(
    "parts",
    [
        {"hooks": b"}K\x01cbuiltins\neval\ns"},
        {"hooks": b"cbuiltins\neval\n"},
        {"more": b"}X\x03\x00\x00\x00neg\x88s"},
        {"size": b"K\x02"},
        {"size": b"K\x02\x85"},
        {"size": b"J\xff\xff\xff\xffK\x03\x86"},
        {"size": b"G?\xf0\x00\x00\x00\x00\x00\x00K\x03\x86"},
        {"offset": b"J\xff\xff\xff\xff"},
        {"offset": b"X\x01\x00\x00\x000"},
        {"storage": STORAGE.replace(b"FloatStorage", b"OtherStorage")},
        {"storage": STORAGE.replace(b"tQ", b"K\x01tQ")},
        {"size": b"K\x02K\x04\x86"},
        {"offset": b"K\x01"},
        {"stride": b"K\x06K\x01\x86"},
        {"storage": STORAGE.replace(b"K\x06tQ", b"J\xff\xff\xff\xfftQ")},
        {"storage": STORAGE.replace(b"K\x06tQ", b"\x8a\x06\x00\x00\x00\x00\x00\x10tQ")},
        {"storage": STORAGE.replace(b"X\x01\x00\x00\x000", b"K\x00")},
        {"storage": STORAGE.replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x001")},
    ],
)
def test_a_tensor_that_is_not_plain_or_beyond_its_storage_is_refused(refused, parts, stream):
    assert any(
        word in refused(tensor(**parts), stream=stream, storages={"0": bytes(24)}) for word in ("stor", "tensor")
    )


def test_a_tensor_gets_no_other_state(refused):
    """torch would give it another storage, size and stride."""
    state = STORAGE + b"K\x00K\x02K\x04\x86K\x00K\x00\x86t"
    refused(tensor()[:-1] + b"(" + state + b"b.", storages={"0": bytes(24)})


@LAYOUTS
def test_a_storage_has_one_description(refused, stream):
    other = STORAGE.replace(b"FloatStorage", b"HalfStorage")
    assert "two ways" in refused(b"\x80\x02" + STORAGE + other + b"\x86.", stream=stream, storages={"0": bytes(24)})


@LAYOUTS
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
        b"X\xff\xff\xff\xffab.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fab.",
        b"\x8a\xffab.",
        b"Inot a number\n.",
        b"S'no end\n.",
        b"K\x01K\x02\x93.",
        b"Pold persistent id\n.",
        b"\x97.",
        b"\x82\x07)R.",
        b"cno newline.",
        b"ca\\name\nb\\\n)R",
        b"(K\x01\x86.",
    ],
)
def test_nonsense_is_refused(refused, data, stream):
    refused(data, stream=stream)


def test_bytes_and_instructions_are_limited(refused, monkeypatch):
    data = pickle.dumps(list(range(100)), 2)
    monkeypatch.setattr("wordorder.conversion.torch_file.MOST_BYTES", len(data) - 1)
    assert "larger than any checkpoint's" in refused(data)
    monkeypatch.undo()
    monkeypatch.setattr(pickle_survey, "MOST_OPCODES", 50)
    assert "more than 50 instructions" in refused(data)


NESTED = b"K\x01\x85q\x00" + b"".join(
    b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(28)
)

THOUSAND = b"".join(b"M" + n.to_bytes(2, "little") for n in range(1000))


@LAYOUTS
@pytest.mark.parametrize(
    "data",
    [
        # every level holds the one below it twice: 2^28 leaves, in 200 bytes
        b"}" + NESTED + b"K\x01s",
        b"cbuiltins\nset\n]" + NESTED + b"a\x85R",
        # half a million levels: to hash them overflows the C stack
        b"})" + b"\x85" * 500_000 + b"K\x01s",
        b"}" + b"(" * 300_000 + b"t" * 300_000 + b"K\x01s",
        # a thousand values are copied 100,000 times
        b"](" + THOUSAND + b"eq\x00cbuiltins\nset\nq\x01(" + b"h\x01h\x00\x85R" * 100_000 + b"t",
        b"}(" + THOUSAND + b"uq\x00ccollections\nOrderedDict\nq\x01(" + b"h\x01)Rh\x00b" * 100_000 + b"t",
        b"X\xe8\x03\x00\x00" + bytes(1000) + b"q\0ccollections\nCounter\nq\x01(" + b"h\x01h\x00\x85R" * 100_000 + b"t",
        # thirty thousand keys of one hash
        b"}(" + b"".join(pickle.dumps((2**61 - 1) * n, 2)[2:-1] + b"N" for n in range(2**16, 2**16 + 30_000)) + b"u",
        # a thousand names, which torch goes through at every call
        b"(" + b"".join(f"ca\nb{n}\n)R".encode() for n in range(5000)) + b"t",
    ],
    ids=["key", "set", "deep", "deep marks", "sets", "states", "counters", "hashes", "names"],
)  # fmt: skip
def test_a_small_file_that_asks_for_much_is_refused(refused, data, stream):
    assert len(data) < 2**20
    assert any(word in refused(b"\x80\x02" + data + b".", stream=stream) for word in ("more work", "a tuple of more"))


def test_nothing_grows_by_being_encoded_again(refused):
    """Hexadecimal digits of hexadecimal digits: each step doubles the bytes."""
    start = b"\x80\x02c_codecs\nencode\nq\x00X\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R"
    step = b"q\x01h\x00h\x01X\x03\x00\x00\x00hex\x86R"
    assert codecs.encode(b"a", "hex") == b"61"
    refused(start + step * 30 + b".")


def test_no_small_pickle_copies_what_it_made_before(read):
    """A namespace's state is taken as it is: a file can name one dict for a million namespaces."""
    fields = b"}(" + b"".join(b"J" + n.to_bytes(4, "little") + b"N" for n in range(1000)) + b"uq\x00"
    one = b"cargparse\nNamespace\n)\x81h\x00b"
    ours = read(b"\x80\x02(" + fields + one * 3 + b"t.").root
    assert len({id(namespace.fields) for namespace in ours[1:]}) == 1


def test_a_survey_leaves_the_file_behind_the_pickle():
    file = io.BytesIO(pickle.dumps(1, 2) + pickle.dumps("b", 2) + b"rest")
    survey = Survey()
    assert (survey.follow(file), survey.follow(file), file.read()) == (1, "b", b"rest")
    with pytest.raises(ValueError, match="exhausted"):
        survey.follow(io.BytesIO(b"\x80\x02"))


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
    yield Calls(exec, f"__import__('os').mkdir({str(mark)!r})"), mark
    assert not mark.exists()


@pytest.mark.parametrize(("called", "shell"), [(os.system, True), (exec, False)])
def test_the_trap_is_a_trap(tmp_path, called, shell):
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Calls(called, f"touch {mark}" if shell else f"__import__('os').mkdir({str(mark)!r})")))
    assert mark.exists()


@LAYOUTS
def test_a_checkpoint_that_asks_for_a_shell_is_refused(tmp_path, stream):
    mark = tmp_path / "ran"
    path = ref.save(tmp_path / "model.pt", ref.weights(), stream=stream, trap=Calls(os.system, f"touch {mark}"))
    with pytest.raises(BadInput, match=r"model\.pt: its pickle asks for posix.system, which runs commands"):
        convert_tupe(path, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt"]


@LAYOUTS
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
    assert report.placeholders == {"fairseq.meters.AverageMeter": 1, "builtins.exec": 1}
    assert (tmp_path / "out" / "model.safetensors").exists()


@LAYOUTS
@pytest.mark.parametrize("name", ["sentence_encoder.pos_ln.bias", "version", "sentence_encoder.more"])
def test_a_placeholder_among_the_weights_is_refused(tmp_path, trap, name, stream):
    w = {**ref.weights(), name: trap[0]}
    path = ref.save(tmp_path / "model.pt", w, ref.arguments(w), stream=stream)
    with pytest.raises(BadInput, match=r"no plain tensors: decoder\..* = <builtins.exec>"):
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
    with pytest.raises(BadInput, match=r"encoder_layers must be a positive integer, got <builtins.exec>"):
        convert_tupe(path, tmp_path / "out")
