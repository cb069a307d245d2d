"""What the tests of `orch` share: the program, its schemas, a folder for each test, runs that must end well.

Imported by scripts that are called as `test_x.py ORCH SOURCE`.
"""

import atexit
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None
    print("SKIPPED: no python3-jsonschema; outputs are not checked against docs/schemas", file=sys.stderr)

ORCH = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(sys.argv[2]).resolve()
WHOLE_DEMO = SOURCE / "traces" / "omni-demo.jsonl.gz"
SHARED = pathlib.Path(os.environ.get("ORCHMLLM_SHARED", SOURCE.parent / "shared"))


def beginning_of_demo(samples):
    """The shipped trace's first samples as a trace of the same name: enough for most tests, and soon read."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = pathlib.Path(folder) / WHOLE_DEMO.name
    with gzip.open(WHOLE_DEMO, "rt") as whole, gzip.open(path, "wt") as part:
        part.write(json.dumps(json.loads(next(whole)) | {"samples": samples}) + "\n")
        part.writelines(next(whole) for _ in range(samples))
    return path


DEMO = beginning_of_demo(2000)


def check_schema(name, document):
    if jsonschema:
        schema = json.loads((SOURCE / "docs" / "schemas" / f"{name}.schema.json").read_text())
        jsonschema.validate(document, schema)


def orch(*arguments, **options):
    return subprocess.run([ORCH, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


class Run(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.jsonl"

    def file(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def good(self, *arguments):
        result = orch(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def bad(self, code, message, *arguments):
        """Ends with that code and message, and prints nothing else. Returns what it said."""
        result = orch(*arguments)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertTrue(result.stderr.startswith("orch: error: "), result.stderr)
        self.assertIn(message, result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr
