"""What the tests of orch-run share: a small trace, ranks started by mpirun, a look at what is left behind.

Imported by scripts that are called as `test_x.py ORCH-RUN SOURCE`.
"""

import atexit
import gzip
import os
import pathlib
import shutil
import subprocess
import tempfile

from program import DEMO, ORCH as PROGRAM, Run  # noqa: F401  (for the tests)


def small_trace():
    """The first samples of the shipped trace, unpacked: every rank of every run reads it."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = pathlib.Path(folder) / "small.jsonl"
    with gzip.open(DEMO, "rt") as whole, open(path, "w") as small:
        shutil.copyfileobj(whole, small)
    return path


SMALL = ["--trace", small_trace(), "--model", "mllm-10b", "--cluster", "mpi-localhost", "--batch", 2, "--seed", 5]
ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": "detect_leaks=0",  # MPI's own
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # containers forbid it, at the price of a warning
    "OMPI_MCA_orte_base_help_aggregate": "0",
}


def mpirun(*command, launcher=(), fault="", **options):
    """Starts ranks: a command, or several with their numbers of ranks as mpirun separates them."""
    environment = {**ENVIRONMENT, "ORCH_RUN_FAULT": fault, **options.pop("env", {})}
    line = ["mpirun", "--allow-run-as-root", "--oversubscribe", *launcher, *command]
    return subprocess.Popen([str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment, **options)


def other_trace(test):
    """A trace of two samples, in a folder that goes with the test."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    path = pathlib.Path(folder.name) / "other.jsonl"
    path.write_text('{"id":"a","text":10}\n{"id":"b","text":20}\n')
    return path


def left_behind(mark):
    """Processes that carry a mark in their environment."""
    pids = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() and "Z" not in (folder / "stat").read_text().split()[2]:
                pids.append(int(folder.name))
        except OSError:
            pass
    return pids
