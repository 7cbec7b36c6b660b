"""Both of torch's formats are read as torch reads them; what is damaged or a bomb is one clear line."""

import collections
import gzip
import random
import struct
import zipfile
from pathlib import Path

import pytest
import torch
import tupe_reference as ref

from wordorder.conversion import convert_tupe
from wordorder.conversion.reference_file import open_reference_file
from wordorder.conversion.torch_file import detached, read_torch_file
from wordorder.errors import BadInput

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16]
KINDS += [torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]
LAYOUTS = pytest.mark.parametrize("stream", [False, True], ids=["zip", "stream"])


def content():
    whole = torch.randn(6, 8)
    linear = torch.nn.Linear(3, 4)
    return {
        "model": collections.OrderedDict(
            {str(kind): torch.randint(0, 2, (5, 2)).to(kind) for kind in KINDS}
            | {"whole": whole, "same": whole, "part": whole[2:4, 1:], "turned": whole.t(), "every other": whole[::2]}
            | {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 3), "repeated": torch.ones(1).expand(4)}
            | {"parameter": linear.weight, **linear.state_dict()}
        )
    }


def failure(path: Path) -> str:
    with pytest.raises(BadInput) as error:
        read_torch_file(path)
    assert str(path) in str(error.value)
    (fault,) = error.value.faults
    return fault


@LAYOUTS
def test_tensors_are_what_torch_saved(tmp_path, stream):
    saved, path = content(), tmp_path / "file.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=not stream)
    file = read_torch_file(path)
    assert file.layout == ("stream" if stream else "zip")
    ours = detached(path, file.root["model"])
    assert ours.keys() == saved["model"].keys()
    for name, tensor in saved["model"].items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name], tensor), name
        assert not ours[name].requires_grad
    assert ours["whole"].data_ptr() == ours["same"].data_ptr() == ours["turned"].data_ptr()
    assert file.placeholders == {}


@LAYOUTS
def test_another_protocol_is_refused_with_the_remedy(tmp_path, stream):
    path = tmp_path / "file.pt"
    torch.save({"model": {}}, path, _use_new_zipfile_serialization=not stream, pickle_protocol=4)
    assert "save it again with plain torch.save" in failure(path)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the memory of a process is read from /proc")
def test_the_numbers_of_an_archive_stay_in_the_file(tmp_path):
    """Nor is any of it written to: the weights can be changed without changing the file."""
    path = tmp_path / "file.pt"
    torch.save({"model": {"small": torch.ones(2)}, "optimizer": torch.ones(30_000_000)}, path)
    before, own = path.read_bytes()[:4096], own_memory()
    file = read_torch_file(path)
    assert own_memory() - own < 60_000_000
    file.root["model"]["small"].fill_(7)
    assert path.read_bytes()[:4096] == before


def own_memory() -> int:
    """Return bytes that this process has for itself: files that are only looked at do not count."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty"))


@LAYOUTS
def test_a_file_cut_anywhere_is_one_clear_line(tmp_path, stream):
    path = ref.save(tmp_path / "whole.pt", ref.weights(dtype=torch.float16), stream=stream)
    data, cut = path.read_bytes(), tmp_path / "cut.pt"
    for keep in sorted({*range(0, 40, 3), *(len(data) * part // 40 for part in range(40)), len(data) - 1}):
        cut.write_bytes(data[:keep])
        assert "\n" not in failure(cut)


@LAYOUTS
def test_a_file_with_any_byte_changed_is_read_or_refused(tmp_path, stream):
    path = ref.save(tmp_path / "whole.pt", ref.weights(dtype=torch.float16), stream=stream)
    data, changed, chance = path.read_bytes(), tmp_path / "changed.pt", random.Random(0)
    refused = 0
    for _ in range(200):
        spoilt = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            # the first 12,000 bytes are pickles and what leads to them, the others mostly numbers
            at = chance.randrange(12_000) if chance.random() < 0.9 else chance.randrange(len(data))
            spoilt[at] = chance.choice([chance.randrange(256), spoilt[at] ^ (1 << chance.randrange(8))])
        changed.write_bytes(spoilt)
        try:
            with open_reference_file(changed) as file:
                file.load(list(file.shapes))
        except BadInput:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is no torch file"),
        (b"\x80\x02K\x01.", "it is no torch file"),
        (b"\x80\x02\x88.", "it is no torch file"),
        (gzip.compress(b"x", mtime=0), "unpack it"),
        (b"PK\x03\x04 and nothing more", "cut short or damaged"),
    ],
)
def test_something_else_is_named(tmp_path, data, said):
    (tmp_path / "file.pt").write_bytes(data)
    assert said in failure(tmp_path / "file.pt")


def zipped(path: Path, entries: dict[str, bytes], **options) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def entries(tmp_path) -> dict[str, bytes]:
    torch.save({"model": {"a": torch.ones(3), "b": torch.zeros(2)}}, tmp_path / "good.pt")
    return {name.partition("/")[2]: data for name, data in entries_of(tmp_path / "good.pt").items()}


def rezipped(tmp_path, entries, root="x/", **options):
    return zipped(tmp_path / "file.pt", {root + name: data for name, data in entries.items()}, **options)


def test_a_good_archive_may_have_any_root(tmp_path, entries):
    file = read_torch_file(rezipped(tmp_path, entries, "any name/"))
    assert torch.equal(file.root["model"]["a"], torch.ones(3))


def test_big_endian_numbers_are_turned(tmp_path, entries):
    swapped = {"byteorder": b"big", "data/0": struct.pack(">3f", 1, 1, 1), "data/1": struct.pack(">2f", 2, 3)}
    model = read_torch_file(rezipped(tmp_path, {**entries, **swapped})).root["model"]
    assert (model["a"].tolist(), model["b"].tolist()) == ([1, 1, 1], [2, 3])


def test_what_is_wrong_with_an_archive_is_named(tmp_path, entries):
    for changes, said in (
        ({"data.pkl": None}, "no data.pkl"),
        ({"constants.pkl": b""}, "TorchScript"),
        ({"byteorder": b"odd"}, "endianness"),
        ({"DATA.pkl": b"N."}, "or two"),
        ({"data/0": None}, "data/0 is missing"),
        ({"data/0": b"12345678"}, "data/0 has 8 bytes instead of 12"),
    ):
        changed = {name: data for name, data in {**entries, **changes}.items() if data is not None}
        assert said in failure(rezipped(tmp_path, changed)), said


def test_a_compressed_archive_is_refused_before_it_grows(tmp_path, entries):
    assert "compressed" in failure(rezipped(tmp_path, entries, compression=zipfile.ZIP_DEFLATED))
    bomb = {**entries, "data.pkl": bytes(50_000_000)}
    path = rezipped(tmp_path, bomb, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    assert "compressed" in failure(path)


def test_an_encrypted_entry_is_refused(tmp_path, entries):
    path = rezipped(tmp_path, entries)
    data = bytearray(path.read_bytes())
    for sign, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(sign) + flags] |= 1
    path.write_bytes(data)
    assert "encrypted" in failure(path)


def test_a_changed_number_is_found_by_the_checksum(tmp_path, entries):
    path = rezipped(tmp_path, entries)
    data = path.read_bytes()
    ones = struct.pack("<3f", 1, 1, 1)
    assert data.count(ones) == 1
    path.write_bytes(data.replace(ones, struct.pack("<3f", 1, 2, 1)))
    assert "data/0 is cut short or damaged (its checksum is another)" in failure(path)


@LAYOUTS
def test_views_that_claim_more_than_the_file_are_refused(tmp_path, stream):
    w = ref.weights(relative=False)
    for name in w:
        if w[name].dim() == 2 and name != "lm_head.weight":
            w[name] = torch.ones(1, dtype=torch.float64).expand(w[name].shape)
    w["sentence_encoder.embed_tokens.weight"] = torch.ones(1).expand(10**6, ref.D)
    w["lm_head.weight"], w["lm_head.bias"] = w["sentence_encoder.embed_tokens.weight"], torch.ones(1).expand(10**6)
    path = ref.save(tmp_path / "model.pt", w, stream=stream)
    assert path.stat().st_size < 100_000
    with pytest.raises(BadInput, match="its weights claim"):
        convert_tupe(path, tmp_path / "out")


def test_an_archive_that_claims_the_same_bytes_many_times_is_refused(tmp_path, entries):
    """As a bomb of overlapping entries does."""
    path = rezipped(tmp_path, {**entries, "more": bytes(5000)})
    with zipfile.ZipFile(path, "a") as archive:
        more = archive.getinfo("x/more")
        for n in range(20):
            other = zipfile.ZipInfo(f"x/more{n}")
            other.header_offset, other.CRC = more.header_offset, more.CRC
            other.file_size = other.compress_size = 5000
            archive.filelist.append(other)
        archive._didModify = True
    assert "larger than the file" in failure(path)


def stream_file(path: Path) -> bytes:
    torch.save({"model": {"a": torch.ones(3)}}, path, _use_new_zipfile_serialization=False)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"\x80\x02M\xe9\x03.", b"\x80\x02M\xe8\x03.", "unknown version"),
        (struct.pack("<q3f", 3, 1, 1, 1), struct.pack("<q3f", 4, 1, 1, 1), "cut short"),
        (b"FloatStorage", b"OtherStorage", "has no known type"),
    ],
)
def test_what_is_wrong_with_a_stream_is_named(tmp_path, old, new, said):
    path = tmp_path / "file.pt"
    data = stream_file(path)
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    assert said in failure(path)


def test_a_file_without_a_model_is_named(tmp_path):
    for saved, said in (
        ({"args": 1, "state_dict": {}}, 'has no state dict under "model"'),
        ({"model": torch.ones(3)}, 'has no state dict under "model"'),
        (torch.ones(3), "not the dict of a checkpoint"),
        ({}, "this one has nothing"),
        ({"model": {}}, "holds no model of TUPE's reference code"),
        ({"model": {3: torch.ones(3)}}, "no plain tensors: 3 ="),
        ({"model": {"\x1b[2J": torch.ones(3)}}, "cannot be printed: \\x1b[2J"),
        (
            {"model": {"classification_heads.\ud800.x": torch.ones(3)}},
            "cannot be printed: classification_heads.\\ud800.x",
        ),
    ):
        torch.save(saved, tmp_path / "file.pt")
        with pytest.raises(BadInput) as error:
            convert_tupe(tmp_path / "file.pt", tmp_path / "out")
        assert said in str(error.value)
        assert len(error.value.faults) == 1
        assert not (tmp_path / "out").exists()


def test_files_that_are_not_there_are_named(tmp_path):
    (tmp_path / "half.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    for name, said in (
        ("missing.pt", "does not exist"),
        (".", "is no file"),
        ("half.safetensors", "no whole safetensors file"),
        ("empty.safetensors", "no whole safetensors file"),
    ):
        with pytest.raises(BadInput, match=said):
            convert_tupe(tmp_path / name, tmp_path / "out")
