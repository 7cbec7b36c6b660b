"""Write the made-up texts of the recordings: the same bytes on every machine."""

import csv
import gzip
import json
import random
from pathlib import Path

MARKS = (".", ".", ".", "!", "?", '."', " ...", "。")
"""Ends of sentences: what the rules for sentence borders tell apart."""


def write_texts(folder: Path) -> Path:
    """Write a corpus, pairs, numbers and translations into a new folder, and return it."""
    draw = random.Random(0)
    words = ["".join(draw.choice("abcdefghijklmnoprstuäéß") for _ in range(draw.randint(2, 7))) for _ in range(120)]

    def sentence() -> str:
        text = " ".join(draw.choice(words) for _ in range(draw.randint(2, 9)))
        return text[0].upper() + text[1:] + draw.choice(MARKS)

    (folder / "corpus").mkdir(parents=True)
    for number in range(16):
        paragraphs = [" ".join(sentence() for _ in range(draw.randint(1, 6))) for _ in range(8)]
        (folder / "corpus" / f"{number:02d}.txt").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")

    rows = [{"text": sentence(), "second": sentence(), "label": draw.choice("abc")} for _ in range(150)]
    labelled = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "pairs.jsonl").write_text(labelled, encoding="utf-8")

    with open(folder / "numbers.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("text", "label"))
        writer.writerows((text := sentence(), len(text) / 10) for _ in range(120))

    english, german = "a dog the cat sees runs and".split(), "ein Hund die Katze sieht läuft und".split()
    for name, count in (("train", 150), ("test", 20)):
        numbers = [[draw.randrange(7) for _ in range(draw.randint(2, 9))] for _ in range(count)]
        numbers = list(dict.fromkeys(map(tuple, numbers)))
        for ending, vocabulary in (("en", english), ("de", german)):
            lines = "".join(" ".join(vocabulary[n] for n in row) + "\n" for row in numbers)
            (folder / f"{name}.{ending}").write_text(lines, encoding="utf-8")
    _stand_in(folder, labelled.replace("second", "text_pair"))
    return folder


def _stand_in(folder: Path, labelled: str) -> None:
    """Write small files where the recipes of the repository look for sets that are not part of it."""
    sets = ("trec", "mr", "sst2-sentences", *(f"glue/{name}" for name in ("CoLA", "MRPC", "RTE", "SST-2")))
    for name in sets:
        (folder / name).mkdir(parents=True)
        (folder / name / "train.jsonl").write_text(labelled, encoding="utf-8")
        (folder / name / "test.jsonl").write_text(labelled[: labelled.index("\n") + 1], encoding="utf-8")
    (folder / "glue/STS-B").mkdir()
    numbers = labelled.replace('"label": "a"', '"label": "1.5"').replace('"label": "b"', '"label": "2.5"')
    (folder / "glue/STS-B/train.jsonl").write_text(numbers.replace('"label": "c"', '"label": "4"'), encoding="utf-8")
    (folder / "imdb").mkdir()
    (folder / "imdb/train.jsonl.gz").write_bytes(gzip.compress(labelled.encode(), mtime=0))
    (folder / "scan/length_split").mkdir(parents=True)
    for name in ("train", "test"):
        lines = [f"IN: jump {name} twice OUT: I_JUMP I_JUMP", "IN: walk OUT: I_WALK", "IN: run left OUT: I_TURN I_RUN"]
        (folder / f"scan/length_split/tasks_{name}_length.txt").write_text("\n".join(lines) + "\n")
    (folder / "wikitext-2").mkdir()
    for name in ("train", "valid", "test"):
        text = "".join(f" = {name} {n} = \n\n The fox {n} of {name} ran . It slept . \n\n" for n in range(30))
        (folder / f"wikitext-2/wiki.{name}.tokens").write_text(text)
    (folder / "multi30k").mkdir()
    for name in ("train", "val", "test"):
        for ending in ("en", "de"):
            source = folder / f"{'test' if name == 'test' else 'train'}.{ending}"
            (folder / f"multi30k/{name}.{ending}").write_bytes(source.read_bytes())
