"""Write what leaves the service into a folder."""

import sys
import tempfile
from pathlib import Path

from tests.recorded.playing import play

if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in play(Path(folder)).items():
            (target / name).write_bytes(content)
