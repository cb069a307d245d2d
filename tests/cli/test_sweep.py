"""Drives `orch sweep`: order of points, errors, the same bytes on any number of threads and processes and after any
interruption.

    test_sweep.py ORCH SOURCE
"""

import csv
import fcntl
import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from program import DEMO, ORCH, SOURCE, Run, check_schema, orch

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
# Open MPI keeps memory until the end, which the leak checker of a sanitized build would report.
MPI_ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}


def built_with_mpi():
    if not shutil.which("mpirun"):
        return False
    result = subprocess.run([*MPIRUN, "-np", "2", ORCH, "sweep", "absent.toml", "--out", "absent.csv"],
                            capture_output=True, text=True, timeout=120, env=MPI_ENVIRONMENT)
    return "built without MPI" not in result.stderr


HAVE_MPI = built_with_mpi()
if not HAVE_MPI:
    print("SKIPPED: no mpirun, or orch is built without MPI; sweeps under mpirun are not tested", file=sys.stderr)


class Sweep(Run):
    long_steps = 0
    long_expected = b""

    @classmethod
    def setUpClass(cls):
        with gzip.open(DEMO, "rt") as trace:
            cls.trace = "".join(next(trace) for _ in range(401)).split("\n", 1)[1]  # without the metadata

    def setUp(self):
        super().setUp()
        self.small = self.file("small.jsonl", self.trace)
        self.journal = self.folder / "out.jsonl.journal"

    def sweep_file(self, text, run="steps = 1", name="sweep.toml"):
        return self.file(name, f"""[run]
trace = "{self.small}"
model = "mllm-10b"
cluster = "h100-8x400g"
{run}
{text}""")

    def grid(self):
        """Twelve points that are done at once."""
        return self.sweep_file("""[grid]
strategy = ["none", "orchmllm", "movement"]
gpus = [8, 16]
batch = [2, 4]
""")

    def long_grid(self):
        """Twelve points, each about a sixth of a second; and the bytes that an undisturbed sweep gives."""
        if not Sweep.long_steps:
            begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.good("simulate", "--trace", self.small, "--model", "mllm-10b", "--cluster", "h100-8x400g", "--gpus", 16,
                      "--batch", 8, "--steps", 50)
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
            Sweep.long_steps = max(1, round(50 / 6 / seconds))
        sweep = self.sweep_file("""[grid]
strategy = ["orchmllm", "movement"]
seed = [1, 2, 3, 4, 5, 6]
""", f"gpus = 16\nbatch = 8\nsteps = {Sweep.long_steps}")
        if not Sweep.long_expected:
            Sweep.long_expected = self.expected(sweep)
        return sweep, Sweep.long_expected

    def bad(self, code, message, *arguments):
        return super().bad(code, message, "sweep", *arguments)

    def rows(self, path=None):
        rows = [json.loads(line) for line in (path or self.out).read_text().splitlines()]
        for row in rows:
            check_schema("sweep", row)
        return rows

    def mpirun(self, processes, *arguments, options=()):
        return [*MPIRUN, *options, "-np", str(processes), ORCH, "sweep", *map(str, arguments)]

    def good_mpirun(self, processes, *arguments, options=()):
        result = subprocess.run(self.mpirun(processes, *arguments, options=options), capture_output=True, text=True,
                                timeout=300, env=MPI_ENVIRONMENT)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def expected(self, sweep):
        """The bytes of an undisturbed sweep."""
        out = self.folder / "expected.jsonl"
        self.good("sweep", sweep, "--out", out, "--jobs", 1)
        return out.read_bytes()

    def wait_for_lines(self, lines, process):
        """Until the journal has so many, or the sweep is over."""
        while process.poll() is None:
            if self.journal.exists() and self.journal.read_bytes().count(b"\n") >= lines:
                return
            time.sleep(0.01)

    def interrupt(self, command, lines, kill, in_time):
        """Starts a sweep and kills it, or a part of it, once its journal has so many lines; all over again where it was
        done before that. Returns exit code, output and errors."""
        for _ in range(10):
            self.journal.unlink(missing_ok=True)
            self.out.unlink(missing_ok=True)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=MPI_ENVIRONMENT)
            self.addCleanup(process.kill)
            self.wait_for_lines(lines, process)
            try:
                kill(process)
            except (KeyError, FileNotFoundError, ProcessLookupError):
                pass  # it is over
            output, errors = process.communicate(timeout=300)
            if in_time(errors):
                return process.returncode, output, errors
        self.fail("the sweep was always done before it was killed")

    def stopped(self, _):
        return self.journal.exists()

    # --- what a sweep is ---------------------------------------------------------------------------------------

    def test_grid_order(self):
        text = self.good("sweep", self.grid(), "--out", self.out)
        rows = self.rows()
        self.assertEqual([(row["strategy"], row["gpus"], row["batch"]) for row in rows],
                         [(s, g, b) for s in ("none", "orchmllm", "movement") for g in (8, 16) for b in (2, 4)])
        self.assertEqual([row["point"] for row in rows], list(range(12)))
        self.assertEqual(len([line for line in text.splitlines() if " ok" in line or " oom" in line]), 12)
        self.assertFalse(self.journal.exists())

    def test_the_same_as_simulate(self):
        self.good("sweep", self.grid(), "--out", self.out)
        row = self.rows()[6]
        result = orch("simulate", "--trace", self.small, "--model", "mllm-10b", "--cluster", "h100-8x400g", "--steps", 1,
                      "--strategy", row["strategy"], "--gpus", row["gpus"], "--batch", row["batch"], "--json", "-")
        one = json.loads(result.stdout)
        self.assertEqual(row["status"], "oom" if result.returncode == 3 else "ok")
        self.assertEqual(row["trace.hash"], one["trace"]["hash"])
        self.assertEqual(row["imbalance.llm"], one["imbalance"]["llm"])
        self.assertEqual(row["peak_memory.parameters"], one["peak_memory"]["parameters"])
        for key, value in one.items():
            if not isinstance(value, (dict, list)) and key != "schema":
                self.assertEqual(row[key], value, key)
        self.assertFalse([key for key, value in row.items() if isinstance(value, (dict, list))])

    def test_zip_and_exclude(self):
        sweep = self.sweep_file("""[[zip]]
gpus = [8, 16]
batch = [4, 2]
[grid]
strategy = ["none", "orchmllm"]
seed = [1, 2]
[[exclude]]
strategy = "none"
gpus = 16
[[exclude]]
seed = [2, 1]
strategy = "orchmllm"
batch = 4
""")
        self.good("sweep", sweep, "--out", self.out)
        self.assertEqual([(row["gpus"], row["batch"], row["strategy"], row["seed"]) for row in self.rows()],
                         [(8, 4, "none", 1), (8, 4, "none", 2), (16, 2, "orchmllm", 1), (16, 2, "orchmllm", 2)])

    def test_run_alone(self):
        self.good("sweep", self.sweep_file("gpus = 8\nbatch = 2"), "--out", self.out)
        self.assertEqual(len(self.rows()), 1)

    def test_csv_has_the_same_figures(self):
        out = self.folder / "out.csv"
        self.good("sweep", self.grid(), "--out", out)
        self.good("sweep", self.grid(), "--out", self.out)
        with out.open(newline="") as file:
            table = list(csv.DictReader(file))
        self.assertEqual(list(table[0])[:6], ["schema", "version", "point", "strategy", "gpus", "batch"])
        for cells, row in zip(table, self.rows(), strict=True):
            for key, cell in cells.items():
                value = row.get(key)
                self.assertEqual(cell, "" if value is None else value if isinstance(value, str) else json.dumps(value), key)

    def test_shipped_example(self):
        example = (SOURCE / "sim" / "sweeps" / "strategies.toml").read_text()
        sweep = self.file("example.toml", example.replace("traces/omni-demo.jsonl.gz", str(self.small))
                          .replace("[64, 128, 256]", "[8, 16, 32]").replace("256", "32"))
        self.good("sweep", sweep, "--out", self.out)
        self.assertEqual(len(self.rows()), 16)
        self.assertIn("16 points", example)

    # --- what is refused ---------------------------------------------------------------------------------------

    def test_errors_have_lines(self):
        for text, line, message in (
                ("[grid]\nbatch = [2, 0]", 7, "--batch"),
                ("[grid]\nbatch = [2,\n'many']", 8, "--batch"),
                ("[grid]\nbatches = [2]", 7, "called batches, expected one of trace, model, cluster, gpus"),
                ("[grid]\njson = ['a.json']", 7, "called json"),
                ("[grid]\ntimeline = ['a.json']", 7, "called timeline"),
                ("[grid]\nhelp = [true]", 7, "called help"),
                ("[grid]\nbatch = 2", 7, "batch must be a list"),
                ("[grid]\nbatch = []", 7, "batch must be a list"),
                ("[grid]\nbatch = [2, [4]]", 7, "batch must be a string, a number, true or false"),
                ("[grid]\nbatch = [2, 4, 2]", 7, "batch has 2 twice"),
                ("[grid]\nmodel = ['mllm-10b']", 7, "model is already set in line 3"),
                ("[grid]\nstrategy = ['none', 'best']", 7, "movement"),
                ("[grid]\nstrategy = ['']", 7, "must not be empty"),
                ("[[zip]]\ngpus = [8, 16]\nbatch = [2]", 8, "batch has 1 values, expected 2 as gpus has"),
                ("[[zip]]", 6, "zip is empty"),
                ("[zip]\ngpus = [8]", 6, "[[zip]]"),
                ("[[exclude]]\nbatch = 2", 7, "batch is never 2"),
                ("[grid]\nbatch = [2, 4]\n[[exclude]]\nbatch = 3", 9, "batch is never 3"),
                ("[grid]\nbatch = [2, 4]\n[[exclude]]\nbatch = [2, 4]", 1, "exclude leaves no point"),
                ("[grid]\ngpus = [8, 16]\nranks = [8, 16]", 7, "--gpus"),
                ("[points]\nbatch = [2]", 6, "unknown key points, expected run, grid, zip or exclude"),
                ("[grid]\nseed = [" + ",".join(map(str, range(400))) + "]\nsteps = [" + ",".join(map(str, range(1, 400))) + "]",
                 8, "more than 100000 points"),
                ("[grid]\nbatch = [", 7, "")):
            sweep = self.sweep_file(text, "# steps")
            self.bad(2, f"sweep.toml:{line}: ", sweep, "--out", self.out)
            self.assertIn(message, self.bad(2, message, sweep, "--out", self.out))
            self.assertFalse(self.out.exists() or self.journal.exists())

    def test_missing_and_bad_inputs(self):
        self.bad(2, "sweep.toml:1: --trace is required", self.file("sweep.toml", "[run]\nmodel = 'mllm-10b'"), "--out", self.out)
        run = "[run]\ntrace = '{}'\nmodel = '{}'\ncluster = 'h100-8x400g'\n"
        self.bad(2, "sweep.toml:3: no file \"mllm-9b\"", self.file("sweep.toml", run.format(self.small, "mllm-9b")), "--out", self.out)
        self.bad(2, "sweep.toml:2: absent.jsonl", self.file("sweep.toml", run.format("absent.jsonl", "mllm-10b")), "--out", self.out)
        broken = self.file("broken.jsonl", self.trace + "{\n")
        self.bad(2, f"sweep.toml:2: {broken}:401: ", self.file("sweep.toml", run.format(broken, "mllm-10b")), "--out", self.out)
        self.bad(2, "absent.toml", "absent.toml", "--out", self.out)

    def test_bad_usage(self):
        sweep = self.grid()
        self.bad(2, "--out is required", sweep)
        self.bad(2, "expected a name that ends in .jsonl or .csv", sweep, "--out", self.folder / "out.json")
        (self.folder / "folder.csv").mkdir()
        self.bad(2, "is a folder", sweep, "--out", self.folder / "folder.csv")
        self.bad(2, "absent/out.csv.journal: cannot be written", sweep, "--out", self.folder / "absent" / "out.csv")
        self.bad(2, "--jobs", sweep, "--out", self.out, "--jobs", 0)
        self.bad(2, "is both read and written", sweep, "--out", self.small)

    def test_a_failing_point_fails_alone(self):
        sweep = self.sweep_file("[grid]\nshard = [8, 3]\nbatch = [2, 4]\n", "gpus = 8")
        result = orch("sweep", sweep, "--out", self.out)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("orch: error: 2 of 4 points failed", result.stderr)
        self.assertIn("point 2: a shard group of 3 ranks does not divide 8 ranks", result.stdout)
        rows = self.rows()
        self.assertEqual([row["status"] for row in rows], ["ok", "ok", "error", "error"])
        self.assertIn("shard group of 3", rows[3]["message"])
        out = self.folder / "out.csv"
        self.assertEqual(orch("sweep", sweep, "--out", out).returncode, 1)
        with out.open(newline="") as file:
            self.assertEqual([row["mfu"] == "" for row in csv.DictReader(file)], [False, False, True, True])

    def test_out_of_memory_is_a_result(self):
        result = orch("sweep", self.sweep_file("[grid]\nbatch = [2, 512]\n", "gpus = 8\nstrategy = 'none'"), "--out", self.out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([row["status"] for row in self.rows()], ["ok", "oom"])

    # --- the same bytes, always --------------------------------------------------------------------------------

    def test_threads(self):
        sweep = self.grid()
        expected = self.expected(sweep)
        for jobs in (2, 5):
            self.good("sweep", sweep, "--out", self.out, "--jobs", jobs)
            self.assertEqual(self.out.read_bytes(), expected)

    def test_resume_after_kill(self):
        sweep, expected = self.long_grid()
        for jobs in (1, 2):
            def kill(process):
                time.sleep(random.uniform(0, 0.2))
                process.kill()

            self.interrupt([ORCH, "sweep", sweep, "--out", self.out, "--jobs", str(jobs)], random.randint(2, 6), kill,
                           self.stopped)
            done = self.journal.read_bytes().count(b"\n") - 1
            result = orch("sweep", sweep, "--out", self.out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"orch: {done} of 12 points are done already", result.stderr)
            self.assertEqual(self.out.read_bytes(), expected)
            self.assertFalse(self.journal.exists())

    def interrupted(self, sweep, points):
        """A journal of so many points, as a killed sweep leaves it."""
        self.interrupt([ORCH, "sweep", sweep, "--out", self.out, "--jobs", "1"], points + 1, lambda process: process.kill(),
                       self.stopped)
        lines = self.journal.read_bytes().splitlines(keepends=True)
        self.journal.write_bytes(b"".join(lines[:points + 1]))
        return lines

    def test_journal_that_is_cut_short(self):
        sweep, expected = self.long_grid()
        lines = self.interrupted(sweep, 3)
        for cut, done in ((b"", 0), (lines[0][:20], 0), (b"".join(lines[:3]) + lines[3][:-1], 2), (b"".join(lines[:3]) + lines[3][:9], 2),
                          (b"".join(lines[:2]) + b"\0" * 100 + b"\n" + lines[3], 1)):
            self.journal.write_bytes(cut)
            result = orch("sweep", sweep, "--out", self.out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr, f"orch: {done} of 12 points are done already\n" if done else "")
            self.assertEqual(self.out.read_bytes(), expected)

    def test_journal_of_a_finished_sweep(self):
        sweep, expected = self.long_grid()
        lines = self.interrupted(sweep, 1)
        self.journal.write_bytes(lines[0] + b"".join(reversed(expected.splitlines(keepends=True))))
        self.assertIn("ok", self.good("sweep", sweep, "--out", self.out))
        self.assertEqual(self.out.read_bytes(), expected)

    def test_journal_of_another_sweep(self):
        sweep, _ = self.long_grid()
        self.interrupted(sweep, 2)
        journal = self.journal.read_bytes()
        trace = self.small.read_bytes()
        self.small.write_bytes(trace + trace.splitlines(keepends=True)[-1])
        self.bad(2, "an input file has changed since); --restart discards it", sweep, "--out", self.out)
        self.small.write_bytes(trace)
        other = self.sweep_file("[grid]\nseed = [1, 2]\n", "gpus = 8\nbatch = 2", "other.toml")
        self.bad(2, "the sweep's options have changed since", other, "--out", self.out)
        self.journal.write_bytes(b"my notes\n")
        self.bad(2, "it is no journal of a sweep", sweep, "--out", self.out)
        self.assertEqual(self.journal.read_bytes(), b"my notes\n")
        self.journal.write_bytes(journal.replace(b'"program":"', b'"program":"9'))
        self.bad(2, "it was written by another build of orch", sweep, "--out", self.out)
        result = orch("sweep", other, "--out", self.out, "--restart")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(len(self.rows()), 2)
        self.assertFalse(self.journal.exists())

    def test_two_sweeps_with_one_output(self):
        with self.journal.open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.bad(2, "another sweep writes this output", self.grid(), "--out", self.out)

    # --- under mpirun ------------------------------------------------------------------------------------------

    @unittest.skipUnless(HAVE_MPI, "no MPI")
    def test_processes(self):
        sweep = self.grid()
        expected = self.expected(sweep)
        table = self.good("sweep", sweep, "--out", self.out)
        for processes, arguments in ((1, []), (3, []), (2, ["--jobs", 2])):
            self.out.unlink()
            result = self.good_mpirun(processes, sweep, "--out", self.out, *arguments)
            self.assertEqual(self.out.read_bytes(), expected)
            self.assertEqual(result.stdout, table)
            self.assertFalse(self.journal.exists())

    @unittest.skipUnless(HAVE_MPI, "no MPI")
    def test_processes_bad_input(self):
        sweep = self.sweep_file("[grid]\nbatch = [2, 0]")
        result = subprocess.run(self.mpirun(3, sweep, "--out", self.out), capture_output=True, text=True, timeout=120,
                                env=MPI_ENVIRONMENT)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stderr.count("orch: error: "), 1, result.stderr)
        self.assertIn("sweep.toml:7: --batch", result.stderr)

    def workers(self, mpirun):
        """Process ids of mpirun's children by rank."""
        ranks = {}
        for children in pathlib.Path(f"/proc/{mpirun.pid}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                        ranks[int(entry.split(b"=")[1])] = pid
        return ranks

    def kill_rank(self, sweep, rank, lines, in_time, options=()):
        return self.interrupt(self.mpirun(3, sweep, "--out", self.out, options=options), lines,
                              lambda process: os.kill(self.workers(process)[rank], signal.SIGKILL), in_time)

    @unittest.skipUnless(HAVE_MPI, "no MPI")
    def test_a_process_that_dies_ends_the_job_and_loses_nothing(self):
        sweep, expected = self.long_grid()
        for rank in (0, 1):
            code, output, _ = self.kill_rank(sweep, rank, random.randint(2, 6), self.stopped)
            self.assertNotEqual(code, 0)
            self.assertEqual(output, "")
            self.assertFalse(self.out.exists())
            done = self.journal.read_bytes().count(b"\n") - 1
            self.assertGreaterEqual(done, 1)
            result = self.good_mpirun(2, sweep, "--out", self.out)
            self.assertIn(f"{done} of 12 points are done already", result.stderr)
            self.assertEqual(self.out.read_bytes(), expected)

    @unittest.skipUnless(HAVE_MPI, "no MPI")
    def test_a_worker_that_dies_is_replaced(self):
        sweep, expected = self.long_grid()
        code, _, errors = self.kill_rank(sweep, 2, 2, lambda errors: "rank 2 is silent" in errors, ["--enable-recovery"])
        self.assertEqual(code, 0, errors)
        self.assertEqual(self.out.read_bytes(), expected)
        self.assertFalse(self.journal.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
