"""Generate the Python of every .proto, or with `--check` say which generated files are stale
(`make proto`).

Runs in an environment of its own with a protoc old enough that its code works on every protobuf
runtime we allow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "protocol"
FOLDER = "geminga_protocol/pb"


def generate(target: Path) -> None:
    """Write `*_pb2.py` and `*_pb2.pyi` beneath `target`."""
    protos = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / FOLDER).glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}"]
    command += [f"--python_out={target}", f"--pyi_out={target}", *protos]
    subprocess.run(command, check=True, cwd=SOURCE)
    for stub in target.glob(f"{FOLDER}/*_pb2.pyi"):
        # A member of an enum may be called None, which no stub can declare: reach it by its number.
        lines = stub.read_text().splitlines(keepends=True)
        stub.write_text("".join(line for line in lines if not line.lstrip().startswith("None: ")))


def stale() -> list[str]:
    """Generated files that differ from what the .proto files say."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = sorted((Path(folder) / FOLDER).glob("*_pb2.py*"))
        return [
            path.name
            for path in fresh
            if not (SOURCE / FOLDER / path.name).exists()
            or path.read_bytes() != (SOURCE / FOLDER / path.name).read_bytes()
        ]


def main() -> int:
    """Exit code 1 if `--check` finds a stale file."""
    if "--check" not in sys.argv[1:]:
        generate(SOURCE)
        return 0
    names = stale()
    if names:
        print("generated code is stale, run `make proto`:", ", ".join(names), file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
