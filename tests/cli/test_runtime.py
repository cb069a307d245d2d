"""Tests of orch-run with real processes: plans executed and checked, faults that end every rank in time.

test_runtime.py ORCH-RUN SOURCE ORCH
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

ORCH = pathlib.Path(sys.argv.pop(3)).resolve()

from program import SHARED, WHOLE_DEMO, check_schema  # noqa: E402  (reads the arguments that are left)
from ranks import ENVIRONMENT, PROGRAM, SMALL, Run, left_behind, mpirun, other_trace  # noqa: E402

STRATEGIES = ("none", "llm-only", "lpt", "orchmllm", "movement")
TIMEOUT = 5  # seconds, of waits in runs that must fail


class Ranks(Run):
    def setUp(self):
        super().setUp()
        self.json = self.folder / "run.json"

    def ranks(self, count, *arguments):
        return ["-np", count, PROGRAM, *arguments]

    def ends_well(self, count, *arguments):
        process = mpirun(*self.ranks(count, *arguments, "--json", self.json))
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        document = json.loads(self.json.read_text())
        check_schema("run", document)
        self.assertEqual(document["mismatches"], 0, err)
        self.assertEqual(document["mismatch_examples"], [])
        return document, out

    def ends_badly(self, command, *words, code=None, within=90, fault="", launcher=(), act=None):
        """Every rank is gone in time, the reason is on standard error, no half-written file is left."""
        mark = f"ORCH_RUN_TEST_{uuid.uuid4().hex}"
        process = mpirun(*command, launcher=launcher, fault=fault, env={"ORCH_RUN_TEST": mark})
        try:
            if act:
                act(process)
            _, err = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"still running after {within} s: {process.communicate()[1]}")
        deadline = time.monotonic() + 5
        while left_behind(mark) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(left_behind(mark), [], "processes are left behind")
        if code is not None:
            self.assertEqual(process.returncode, code, err)
        elif not launcher:
            self.assertNotEqual(process.returncode, 0, err)
        for word in words:
            self.assertRegex(err, word)
        self.assertEqual([path.name for path in self.folder.iterdir() if path != self.json], [])
        return err


class GoodRuns(Ranks):
    def test_all_strategies_and_schedules(self):
        for strategy in STRATEGIES:
            for exchange in ("direct", "hierarchical"):
                with self.subTest(strategy=strategy, exchange=exchange):
                    out, _ = self.ends_well(4, *SMALL, "--strategy", strategy, "--exchange", exchange,
                                            "--ranks-per-node", 2)
                    self.assertGreater(out["verified_bytes"], 1_000_000)
                    self.assertEqual(out["node_ranks"], [2, 2])
                    sent = sum(rank["sent_bytes"] for step in out["steps"] for rank in step["ranks"])
                    received = sum(rank["received_bytes"] for step in out["steps"] for rank in step["ranks"])
                    self.assertEqual(sent, received)
                    self.assertEqual(sent == 0, strategy == "none")

    def test_plans_are_those_of_the_other_programs(self):
        out, _ = self.ends_well(8, *SMALL, "--steps", 2, "--strategy", "movement", "--verify", "sample")
        simulated = subprocess.run([ORCH, "simulate", *map(str, SMALL), "--gpus", "8", "--steps", "2", "--strategy",
                                    "movement", "--json", "-"], capture_output=True, text=True, timeout=120)
        self.assertEqual(out["plan_hash"], json.loads(simulated.stdout)["plan_hash"])
        self.assertEqual(len({step["plan_hash"] for step in out["steps"]}), 2)

    def test_measures(self):
        out, text = self.ends_well(2, *SMALL, "--steps", 2, "--compute-scale", "1e-7", "--verify", "off", "--exchange",
                                   "auto")
        self.assertEqual(out["verified_bytes"], 0)
        for phase in out["phases"]:
            self.assertGreaterEqual(phase["measured_imbalance"], 1)
            self.assertGreaterEqual(phase["imbalance_before"], phase["imbalance"])
        for step in out["steps"]:
            for rank in step["ranks"]:
                self.assertGreater(rank["compute_seconds"], 0)
                self.assertLessEqual(rank["compute_seconds"] + rank["wait_seconds"] + rank["exchange_seconds"],
                                     rank["seconds"])
        self.assertTrue(0 <= out["straggler_idle_fraction"] < 1)
        self.assertEqual(text.count("mllm-10b on 2 ranks"), 1)  # one rank speaks
        self.assertIn("0 mismatches", text)

    def test_prediction_is_the_simulators(self):
        out, text = self.ends_well(4, *SMALL, "--ranks-per-node", 2, "--exchange", "hierarchical", "--compute-scale",
                                   "1e-7", "--verify", "off")
        self.assertIn("predicted ms", text)
        for step in out["steps"]:
            exchanges = step["exchanges"]
            self.assertAlmostEqual(sum(e["predicted_seconds"] for e in exchanges),
                                   step["predicted"]["exchange_seconds"])
            for exchange in exchanges:
                self.assertEqual(exchange["predicted_seconds"] > 0, exchange["moved_bytes"] > 0)
                back = [e for e in exchanges if (e["from"], e["to"]) == (exchange["to"], exchange["from"])]
                self.assertEqual(len(back), 0 if exchange["from"] == "home" else 1)
            self.assertTrue(any(e["direction"] == "backward" for e in exchanges))
        self.assertGreater(out["predicted"]["compute_seconds"], 0)

    def test_several_strategies(self):
        process = mpirun(*self.ranks(2, *SMALL, "--strategy", "none,movement", "--compute-scale", "1e-7", "--json",
                                     self.json))
        text, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        document = json.loads(self.json.read_text())
        check_schema("runs", document)
        for run in document["runs"]:
            check_schema("run", run)
        none, movement = document["runs"]
        self.assertEqual((none["strategy"], movement["strategy"]), ("none", "movement"))
        self.assertLess(movement["predicted"]["wait_seconds"], none["predicted"]["wait_seconds"])
        for words in ("straggler idle %", "on 2 ranks in 1 node, 2 samples a rank, 1 step, none",
                      "on 2 ranks in 1 node, 2 samples a rank, 1 step, movement"):
            self.assertIn(words, text)

    def test_calibrate(self):
        cluster = self.folder / "my.toml"
        process = mpirun(*self.ranks(4, "calibrate", "--out", cluster, "--ranks-per-node", 2, "--seconds", 4, "--spin", 0))
        text, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        for words in ("between nodes", "within a node", "GFLOP/s", "fitted us"):
            self.assertIn(words, text)
        written = cluster.read_text()
        for key in ("nvlink_gbytes", "nic_gbytes", "exchange_base_us", "exchange_peer_us", "half_depth",
                    "memory_bandwidth_gbytes", "forward_tflops"):
            self.assertIn(f"{key} = ", written)
        self.assertIn('extends = "mpi-localhost"', written)
        arguments = [*map(str, SMALL)]
        arguments[arguments.index("mpi-localhost")] = str(cluster)
        simulated = subprocess.run([ORCH, "simulate", *arguments, "--gpus", "4", "--json", "-"], capture_output=True,
                                   text=True, timeout=120)
        self.assertIn(simulated.returncode, (0, 3), simulated.stderr)
        out, _ = self.ends_well(4, *arguments, "--ranks-per-node", 2)
        self.assertEqual(out["cluster"], "my")

    def test_calibrate_one_rank(self):
        cluster = self.folder / "one.toml"
        process = mpirun(*self.ranks(1, "calibrate", "--out", cluster, "--seconds", 1))
        text, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("Links were not measured: one rank has nobody to exchange with", text)
        self.assertIn("peak_tflops", cluster.read_text())
        self.assertNotIn("[links]", cluster.read_text())

    def test_shipped_trace(self):
        out, _ = self.ends_well(4, "--trace", WHOLE_DEMO, *SMALL[2:], "--strategy", "movement", "--exchange", "auto")
        self.assertEqual(out["trace"]["samples"], 200000)

    def test_real_mix(self):
        trace = SHARED / "traces" / "omni-mix.jsonl.gz"
        if not trace.exists():
            self.skipTest(f"no {trace}")
        out, _ = self.ends_well(8, "--trace", trace, *SMALL[2:], "--steps", 2, "--exchange", "hierarchical",
                                "--ranks-per-node", 4)
        self.assertGreater(out["verified_bytes"], 1_000_000)

    def test_without_a_launcher(self):
        for argument in ("--help", "--version"):
            result = subprocess.run([PROGRAM, argument], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("orch-run", result.stdout)


class BadInput(Ranks):
    def test_ranks_that_differ(self):
        for option, value in (("--seed", 6), ("--trace", other_trace(self)), ("--model", "mllm-18b"),
                              ("--strategy", "movement"), ("--steps", 2)):
            with self.subTest(option):
                other = [*SMALL, "--steps", 1, "--strategy", "none"]
                other[other.index(option) + 1] = value
                command = [*self.ranks(1, *other), ":",
                           *self.ranks(3, *SMALL, "--steps", 1, "--strategy", "none", "--json", self.json)]
                err = self.ends_badly(command, f"error: {option} differs between ranks: .* on ranks 1, 2 and 3, "
                                         "but .* on rank 0", code=2)
                self.assertEqual(err.count("differs"), 1)
                self.assertFalse(self.json.exists())

    def test_clusters_that_differ(self):
        """In any key that plans or predictions use, stated or not; but not in how a file is written."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cluster = pathlib.Path(folder.name) / "mine.toml"
        ranks_with = lambda *cluster: [*SMALL[:4], "--cluster", *cluster, *SMALL[6:], "--json", self.json]
        for lines, differs in (("[links]\nnics_per_node = 1\n", "links.nics_per_node .*: unset on ranks 1, 2 and 3, but 1"),
                               ("[gpu.gemm]\nhalf_depth = 77\n", "gpu.gemm.half_depth .*: .* on ranks 1, 2 and 3, but 77"),
                               ("[software]\nplan_us_per_sample = 3\n", "software.plan_us_per_sample .*, but 3")):
            with self.subTest(lines):
                cluster.write_text(f'extends = "mpi-localhost"\n{lines}')
                err = self.ends_badly([*self.ranks(1, *ranks_with(cluster)), ":", *self.ranks(3, *ranks_with("mpi-localhost"))],
                                      f"error: cluster {differs} on rank 0", code=2)
                self.assertEqual(err.count("differs"), 1)
        cluster.write_text('extends = "mpi-localhost"\ngpus_per_node = 0x10\n')
        same = pathlib.Path(folder.name) / "same.toml"
        same.write_text('# Another file.\ngpus_per_node = 16\nextends = "mine"\n')
        process = mpirun(*self.ranks(1, *ranks_with(cluster)), ":", *self.ranks(1, *ranks_with(same)))
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)

    def test_tasks_that_differ(self):
        run, calibrate = [*SMALL, "--json", self.json], ["calibrate", "--out", self.folder / "new.toml"]
        self.ends_badly([*self.ranks(1, *calibrate), ":", *self.ranks(2, *run)],
                        r"error: --transport differs between ranks: mpi on ranks 1 and 2, but mpi \(calibrate\) on rank 0\n", code=2)
        self.ends_badly(self.ranks(2, *run, *calibrate), r"error: .*--\w+ \(put options behind calibrate\)\n", code=2)

    def test_what_one_rank_cannot_read(self):
        bad = [*SMALL]
        bad[1] = "absent.jsonl"
        self.ends_badly([*self.ranks(2, *SMALL), ":", *self.ranks(1, *bad)], "error: on rank 2: absent.jsonl", code=2)
        self.ends_badly(self.ranks(2, *bad), "error: absent.jsonl", code=2)
        self.ends_badly(self.ranks(2, *SMALL, "--strategy", "best"), "--strategy", code=2)
        self.ends_badly([*self.ranks(1, *SMALL), ":", *self.ranks(1, *SMALL, "--nonsense")], "on rank 1: .*nonsense", code=2)
        self.ends_badly(self.ranks(2, "--model", "mllm-10b"), "--trace is required", code=2)
        self.ends_badly(self.ranks(2, "calibrate"), "--out is required", code=2)
        self.ends_badly(self.ranks(3, "calibrate", "--out", "/nonexistent/x.toml", "--seconds", 1, "--ranks-per-node", 2),
                        "as many ranks on every node, but node 0 has 2 and node 1 has 1", code=2)
        self.ends_badly(self.ranks(2, "calibrate", "--out", self.json, "--extends", "absent"), "absent", code=2)
        self.ends_badly(self.ranks(2, *SMALL, "--json", SMALL[1]), "both read and written", code=2)
        self.ends_badly(self.ranks(2, *SMALL, "--json", "/nonexistent/run.json"), "/nonexistent/run.json")


class Faults(Ranks):
    """Rank 2 of 4 fails; the old result stays whole."""

    def setUp(self):
        super().setUp()
        self.json.write_text("{}")
        self.command = self.ranks(4, *SMALL, "--steps", 3, "--compute-scale", "1e-8", "--timeout", TIMEOUT, "--json",
                                  self.json)

    def tearDown(self):
        self.assertEqual(self.json.read_text(), "{}")

    def test_killed(self):
        for place in ("planning", "exchange", "compute"):
            with self.subTest(place):
                err = self.ends_badly(self.command, r"rank 2 .*signal 9", code=128 + signal.SIGKILL,
                                               fault=f"kill:2:{place}:1")
                self.assertEqual(set(re.findall(r"error: rank (\d): told to end in step", err)), {"0", "1", "3"})

    def test_killed_and_the_launcher_looks_away(self):
        """As under launchers that do not end the others: they find out for themselves."""
        for place in ("planning", "exchange", "compute"):
            with self.subTest(place):
                self.ends_badly(self.command, r"error: rank [013]: step \d, .*: waits for .*, in vain for 5.0 s; "
                                "no answer from rank 2", fault=f"kill:2:{place}:1", launcher=["--enable-recovery"])

    def test_stalled(self):
        for place in ("planning", "exchange", "compute"):
            with self.subTest(place):
                err = self.ends_badly(self.command, r"error: rank [013]: step 1, .*no answer from rank 2",
                                               code=1, fault=f"stall:2:{place}:1")
                for rank in range(4):
                    self.assertRegex(err, f"error: rank {rank}: ")
                self.assertNotIn("no answer from rank 0", err)

    def test_stopped(self):
        """A rank that does not even answer signals, in the middle of anything."""
        def stop(process):
            os.kill(ranks_of(process, 4)[1], signal.SIGSTOP)

        self.ends_badly(self.command, "no answer from rank|not all ranks came|in vain", act=stop)

    def test_interrupted(self):
        for seconds in (0.2, 5):  # while MPI starts; in the middle of a step
            with self.subTest(seconds):
                def interrupt(process, seconds=seconds):
                    ranks_of(process, 4)
                    time.sleep(seconds)
                    process.send_signal(signal.SIGINT)

                self.ends_badly(self.ranks(4, *SMALL, "--steps", 1000, "--json", self.json),
                                *[r"error: rank 1: told to end in "][:int(seconds)], act=interrupt)

    def test_wrong_byte(self):
        self.json.unlink()
        err = self.ends_badly(self.command, r"error: rank 1, step 1, exchange .*, [a-z-]+: sample \d+ unit \d+, "
                                 r"element \d+ of \d+: expected 0x[0-9a-f]+, found 0x[0-9a-f]+",
                                 "error: 1 elements are not", code=1, fault="corrupt:1:exchange:1")
        out = json.loads(self.json.read_text())
        check_schema("run", out)
        self.assertEqual(out["mismatches"], 1)
        self.assertEqual(len(out["mismatch_examples"]), 1)
        self.json.write_text("{}")

    def test_nonsense(self):
        self.ends_badly(self.command, "ORCH_RUN_FAULT=explode", code=2, fault="explode:1:planning:0")


def executable(pid):
    try:
        return pathlib.Path(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None


def ranks_of(launcher, count):
    """The processes of a job's ranks, when they are there."""
    pids = []
    deadline = time.monotonic() + 60
    while len(pids) < count and time.monotonic() < deadline:
        time.sleep(0.02)
        children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        pids = [int(pid) for pid in children if executable(pid) == PROGRAM]
    return pids


if __name__ == "__main__":
    unittest.main(argv=["test_runtime"])
