"""WikiText's files of tokens (.tokens): one document per article, whose title stands between single equals signs.

Merity et al. 2016, "Pointer Sentinel Mixture Models", https://arxiv.org/abs/1609.07843.
"""

import re
from itertools import pairwise
from pathlib import Path

from wordorder.data.corpora.document import Row
from wordorder.data.corpora.plain_text import decode

# A title has a blank line before and after it; " = 0 = ", a formula that the tokeniser broke off, has not. Sections
# have two equals signs or more.
_TITLE = re.compile(r"^[^\S\n]*\n = [^=\n](?:.*[^=\n])? = \n[^\S\n]*\n", re.MULTILINE)


def read_wikitext(path: Path) -> list[Row]:
    """Return one row per article, with its title in the text; one row in all where there is no title.

    `<unk>` and the marks of numbers and hyphens (`@,@`, `@.@`, `@-@`) stay as they are. The label is the name of the
    folder, as for .txt.

    Raises:
        BadInput: the file is empty, binary or not UTF-8.
    """
    text, label = decode(path), path.resolve().parent.name
    starts = [match.start() for match in _TITLE.finditer(text)]
    borders = [0, *starts[1:], len(text)] if starts else [0, len(text)]
    return [{"text": text[a:b], "label": label} for a, b in pairwise(borders)]
