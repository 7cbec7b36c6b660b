"""The files of this folder, and those of other tests, can be imported by its tests."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "comparison", HERE.parent / "encodings"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
