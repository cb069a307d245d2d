"""orch-run's way over NCCL as a program with real processes: GPUs and NCCL are doubles (tests/doubles), all else is orch-run.

test_nccl.py ORCH-RUN-DOUBLES SOURCE MPIRUN ORCH-RUN  (the last two empty where the build has none)
"""

import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import unittest

ORCH_RUN, MPIRUN = sys.argv.pop(4), sys.argv.pop(3)

from program import check_schema  # noqa: E402  (reads the arguments that are left)
from ranks import ENVIRONMENT, PROGRAM, SMALL, Run, mpirun, other_trace  # noqa: E402


def light_trace():
    """Samples of few bytes, unlike each other: what is checked here is the way, under sanitizers too."""
    path = SMALL[1].with_name("light.jsonl")
    path.write_text("".join(json.dumps({"id": f"s{i}", "text": 10 + i % 7 * 10, "images": [[56 * (1 + i % 4), 112]] * (i % 2),
                                        "audio": [0.5 + i % 5] * (i % 4 == 1)}) + "\n" for i in range(64)))
    return path


INPUTS = ["--trace", light_trace(), *SMALL[2:]]
NCCL = ["--transport", "nccl", *INPUTS]
RANKS = 4
TIMEOUT = 3  # seconds, of waits in runs that must fail
GONE = r"rank 2 is gone: its connection from \S+ ended"
REMOTE_ERROR = r"NCCL: remote process exited or there was a network error \(connection closed by remote peer\)"

Result = collections.namedtuple("Result", "code out err")


def listener(port):
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", port))
    taken.listen()
    return taken


def is_free(port):
    """Asks without taking it: a process that starts beside this would hold it for a moment."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


PORTS = itertools.count(21000 + os.getpid() * 98 % 8000, 2)


def free_port():
    """One that nobody listens at, nor at the next one, and that no other job of this test has."""
    return next(port for port in PORTS if is_free(port) and is_free(port + 1))


def torch(ranks, port):
    """The variables of launchers of PyTorch, by rank."""
    return [{"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port)} for rank in range(ranks)]


def slurm(ranks, port):
    """Those of srun, in a step whose port is this one."""
    return [{"SLURM_PROCID": str(rank), "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_LOCALID": str(rank),
             "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": "0", "SLURM_STEP_ID": str(port - 20000)}
            for rank in range(ranks)]


class Ranks:
    """Processes with the variables of a launcher, and no launcher that would end them. At the end none is left."""

    def __init__(self, folder, arguments, *, launch=torch, count=RANKS, port=None, instead={}, absent=(), **environment):
        """`instead`: arguments of single ranks. `environment`: of all of them, whatever their launcher sets."""
        self.folder = folder
        self.processes = {}
        for rank, variables in enumerate(launch(count, port or free_port())):
            if rank not in absent:
                with open(folder / f"out{rank}", "w") as out, open(folder / f"err{rank}", "w") as err:
                    command = [str(word) for word in [PROGRAM, *instead.get(rank, arguments)]]
                    self.processes[rank] = subprocess.Popen(command, stdout=out, stderr=err,
                                                            env={**os.environ, **variables, **environment})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def send(self, number, ranks=range(RANKS)):
        for rank in ranks:
            self.processes[rank].send_signal(number)

    def results(self, within=60, without=()):
        """Rank → how it ended."""
        deadline = time.monotonic() + within
        ended = {}
        for rank, process in self.processes.items():
            if rank not in without:
                code = process.wait(max(0.1, deadline - time.monotonic()))
                ended[rank] = Result(code, *((self.folder / f"{name}{rank}").read_text() for name in ("out", "err")))
        return ended


class Jobs(Run):
    def setUp(self):
        super().setUp()
        self.logs = self.folder / "logs"
        self.results = self.folder / "results"
        self.results.mkdir()
        self.json = self.results / "run.json"

    def ranks(self, *arguments, name="", inputs=NCCL, **options):
        logs = self.logs / name
        logs.mkdir(parents=True)
        return Ranks(logs, [*inputs, *arguments], **options)

    def document(self, schema="run"):
        document = json.loads(self.json.read_text())
        check_schema(schema, document)
        for run in document.get("runs", [document]):
            check_schema("run", run)
            self.assertEqual(run["mismatches"], 0)
            self.assertGreater(run["verified_bytes"], 1_000_000 if run["verify"] == "full" else 1000)
        return document

    def ends_well(self, *arguments, schema="run", **options):
        with self.ranks(*arguments, "--json", self.json, **options) as ranks:
            results = ranks.results()
        self.assertEqual({rank: result for rank, result in results.items() if result.code or result.err}, {})
        self.assertEqual([rank for rank, result in results.items() if "verified" in result.out], [0])  # one rank speaks
        return self.document(schema)

    def ends_badly(self, code, words, *arguments, **options):
        """Every rank ends with that code; the reason is said once."""
        with self.ranks(*arguments, "--json", self.json, **options) as ranks:
            results = ranks.results()
        self.assertEqual({result.code for result in results.values()}, {code}, results)
        said = "".join(result.err for result in results.values())
        self.assertRegex(said, words)
        self.assertEqual(said.count("orch-run: error: "), 1, said)
        self.assertEqual(list(self.results.iterdir()), [])

    def by_mpirun(self, program, *arguments):
        process = mpirun("-np", RANKS, program, *arguments, "--spin", 0, "--json", self.json)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)


class GoodRuns(Jobs):
    def test_strategies_and_schedules_as_over_mpi(self):
        for exchange, most_peers in (("direct", 3), ("hierarchical", 1 + 1)):
            with self.subTest(exchange):
                options = ["--strategy", "none,lpt,movement", "--exchange", exchange, "--ranks-per-node", 2]
                runs = self.ends_well(*options, name=exchange, schema="runs")["runs"]
                for run in runs:
                    self.assertEqual(run["node_ranks"], [2, 2])
                    for device in run["devices"]:
                        self.assertEqual((device["name"], device["nccl"]), ("host memory, sm_0", "2.28.0"))
                        self.assertEqual(device["communicator_bytes"], 1 << 20)
                        self.assertLessEqual(device["peers"], most_peers)
                        self.assertEqual(device["peer_bytes"], device["peers"] << 16)
                    self.assertEqual(len(run["devices"]), RANKS)
                self.assertEqual(max(device["peers"] for run in runs for device in run["devices"]), most_peers)
                if not (ORCH_RUN and MPIRUN):
                    self.skipTest("no MPI in this build")
                self.by_mpirun(ORCH_RUN, *INPUTS, *options)
                for mine, other in zip(runs, self.document("runs")["runs"], strict=True):
                    for key in ("strategy", "plan_hash", "verified_bytes"):
                        self.assertEqual(mine[key], other[key])
                    for key in ("sent_bytes", "received_bytes", "messages"):
                        self.assertEqual(*([rank[key] for step in run["steps"] for rank in step["ranks"]]
                                           for run in (mine, other)))

    def test_compute_and_channels(self):
        document = self.ends_well("--compute-scale", "1e-9", "--steps", 2, "--nccl-channels", 2, "--verify", "sample")
        for step in document["steps"]:
            for rank in step["ranks"]:
                self.assertGreater(rank["compute_seconds"], 0)
        for device in document["devices"]:  # the double's buffers of a peer and channel are 8 KiB
            self.assertEqual(device["peer_bytes"], device["peers"] * 2 << 13)

    def test_calibrate(self):
        """What it writes the programs read; every part is measured."""
        out = self.results / "measured.toml"
        with self.ranks("calibrate", "--transport", "nccl", "--seconds", 3, "--out", out, inputs=[], count=2) as ranks:
            for rank, result in ranks.results().items():
                self.assertEqual((result.code, result.err), (0, ""), f"rank {rank}")
        text = out.read_text()
        self.assertIn(": 2 ranks over NCCL, 1 node of 2", text)
        measured = tomllib.loads(text)
        self.assertEqual(measured["extends"], "h100-8x400g")
        self.assertEqual([curve["causal"] for curve in measured["gpu"]["attention"]], [False, True])
        for curve in measured["gpu"]["attention"]:
            self.assertEqual(curve["length"], [512, 1024, 2048, 4096, 8192])
        self.assertEqual(measured["gpu"]["memory_gib"], 1024)  # of the double
        for key in ("nvlink_gbytes", "nvlink_hop_us", "exchange_base_us"):
            self.assertGreater(measured["links"][key], 0)
        inputs = [*NCCL]
        inputs[inputs.index("--cluster") + 1] = out
        self.ends_well("--compute-scale", "1e-6", inputs=inputs, count=2, name="run")

    def test_slurm(self):
        self.assertEqual(len(self.ends_well(launch=slurm, port=free_port())["devices"]), RANKS)

    def test_alone(self):
        document = self.ends_well(launch=lambda ranks, port: [{}], count=1)
        self.assertEqual([device["peers"] for device in document["devices"]], [0])

    @unittest.skipUnless(MPIRUN, "no MPI in this build")
    def test_mpirun(self):
        self.by_mpirun(PROGRAM, *NCCL)
        self.assertEqual(len(self.document()["devices"]), RANKS)

    def test_agent_of_torchrun(self):
        """Its store has the port; what started the agent left its own variables to the ranks."""
        port = free_port()
        with listener(port):
            self.ends_well(port=port, TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="a job",
                           OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_LOCAL_RANK="0", PMIX_RANK="0")

    @unittest.skipUnless(shutil.which("torchrun"), "no torchrun")
    def test_torchrun(self):
        command = ["torchrun", "--nproc-per-node", RANKS, "--no-python", PROGRAM, *NCCL, "--json", self.json]
        result = subprocess.run([str(word) for word in command], env=ENVIRONMENT, capture_output=True, text=True,
                                timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.document()["devices"]), RANKS)


class BadInput(Jobs):
    def test_usage_is_told_once(self):
        for name, (words, arguments) in enumerate((("--nonsense", ["--nonsense"]), ("--strategy", ["--strategy", "best"]),
                                                   ("--trace is required", []),
                                                   ("both read and written", ["--json", INPUTS[1]]))):
            with self.subTest(arguments):
                with self.ranks(*arguments, name=str(name), inputs=NCCL if arguments else NCCL[:2]) as ranks:
                    results = ranks.results()
                self.assertEqual({result.code for result in results.values()}, {2}, results)
                self.assertRegex("".join(result.err for result in results.values()), rf"^orch-run: error: .*{words}")
                self.assertEqual(sum("error" in result.err for result in results.values()), 1)

    def test_mpi_needs_its_launcher(self):
        self.ends_badly(2, "--transport mpi: (these ranks were not started through MPI; launch them with mpirun, or with srun "
                           "--mpi=pmix|this program was built without MPI)", inputs=INPUTS)

    def test_ranks_that_differ(self):
        for option, value in (("--seed", 6), ("--trace", other_trace(self)), ("--model", "mllm-18b")):
            with self.subTest(option):
                other = [*NCCL]
                other[other.index(option) + 1] = value
                self.ends_badly(2, f"^orch-run: error: {option} differs between ranks: .* on ranks 1, 2 and 3, but .* on rank 0",
                                name=option, instead={0: other})

    @unittest.skipUnless(MPIRUN, "no MPI in this build")
    def test_transports_that_differ(self):
        process = mpirun("-np", 1, PROGRAM, *NCCL, ":", "-np", 2, PROGRAM, *INPUTS)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, err)
        self.assertRegex(err, "^orch-run: error: --transport differs between ranks: mpi on ranks 1 and 2, but nccl on rank 0\n")

    def test_one_gpu_for_all(self):
        self.ends_badly(2, r"^orch-run: error: ranks 0, 1, 2 and 3 have one GPU \(\S+, GPU bus 0, boot \w+\): NCCL needs one for each rank",
                        LOCAL_RANK="0")

    @unittest.skipUnless(ORCH_RUN, "neither MPI nor NCCL in this build")
    def test_a_machine_without_gpu(self):
        result = subprocess.run([ORCH_RUN, *map(str, NCCL)], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        if pathlib.Path("/dev/nvidia0").exists():
            self.skipTest("there is a GPU")
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertRegex(result.stderr, r"^orch-run: error: --transport nccl: (no CUDA device can be used on this machine .*|"
                                        r"this program was built without CUDA and NCCL; .*)\n$")


class Faults(Jobs):
    """Nobody but the ranks themselves ends the others; the old result stays whole."""

    def setUp(self):
        super().setUp()
        self.json.write_text("{}")
        self.arguments = ["--steps", 2, "--compute-scale", "1e-9", "--timeout", TIMEOUT, "--json", self.json, "--verify"]

    def tearDown(self):
        self.assertEqual([(path.name, path.read_text()) for path in self.results.iterdir()], [(self.json.name, "{}")])

    def job(self, name, culprit, words, *, stalls=False, absent=(), **environment):
        """All but the culprit end with code 1 and these words, each for itself."""
        with self.ranks(*self.arguments, "off", name=name, absent=absent, **environment) as ranks:
            results = ranks.results(within=25, without=[culprit] if stalls else [])
            if stalls:  # torchrun and srun end it, as soon as they see the others end
                ranks.send(signal.SIGTERM, [culprit])
                self.assertRegex(ranks.results(within=20)[culprit].err, f"^orch-run: error: rank {culprit}: told to end in step 1, ")
        for rank, result in results.items():
            if rank != culprit:
                self.assertEqual(result.code, 1, f"{name}: rank {rank}: {result}")
                self.assertRegex(result.err, rf"^orch-run: error: (rank {rank}: )?({words})", name)
                self.assertEqual(result.err.count("\n"), 1, result.err)
        return results

    def jobs(self, *jobs):
        """Some at a time: most of their time is waiting."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for job in [pool.submit(job) for job in jobs]:
                job.result()

    def killed(self, place, loss):
        step = "step [01], " if place == "planning" else "step 1, "  # plans are made one step ahead
        results = self.job(f"kill-{place}-{loss}", 2, rf"{step}.*({GONE}|{REMOTE_ERROR}; no answer from rank 2)",
                           ORCH_RUN_FAULT=f"kill:2:{place}:1", ORCHMLLM_DOUBLE_LOSS=loss)
        self.assertEqual(results[2].code, -signal.SIGKILL)
        for rank in (0, 1, 3):
            if loss == "silent":
                self.assertRegex(results[rank].err, GONE)

    def store_killed(self):
        self.job("kill-0", 0, rf"step 1, exchange .*(rank 0, which keeps the store, is gone|{REMOTE_ERROR}; no answer from rank 0)",
                 ORCH_RUN_FAULT="kill:0:exchange:1")

    def test_killed(self):
        self.jobs(self.store_killed, *(lambda place=place, loss=loss: self.killed(place, loss)
                                       for place in ("planning", "exchange", "compute") for loss in ("noticed", "silent")))

    def stalled(self, rank, place):
        self.job(f"stall-{rank}-{place}", rank, f"step 1, .*waits for .*no answer from rank {rank}", stalls=True,
                 ORCH_RUN_FAULT=f"stall:{rank}:{place}:1")

    def test_stalled(self):
        self.jobs(*(lambda rank=rank, place=place: self.stalled(rank, place)
                    for rank, place in ((2, "planning"), (2, "exchange"), (2, "compute"), (0, "exchange"))))

    def other_program(self):
        port = free_port()
        with listener(port):
            results = self.job("port", 0, rf"meeting at 127.0.0.1:{port}: rank 0 does not say that all ranks came", port=port)
            self.assertRegex(results[0].err, rf"^orch-run: error: store at 127.0.0.1:{port}: Address already in use; another job "
                                             "may be there: ORCHMLLM_PORT takes another port")
            with self.ranks(name="other-port", port=port, ORCHMLLM_PORT=str(free_port())) as ranks:
                self.assertEqual({result.code for result in ranks.results().values()}, {0})

    def test_ranks_that_do_not_meet(self):
        self.jobs(lambda: self.job("absent-3", 3, rf"meeting at 127.0.0.1:\d+: rank 3 did not come within {TIMEOUT}.0 s", absent=[3]),
                  lambda: self.job("absent-0", 0, rf"meeting at 127.0.0.1:\d+: no store of rank 0 within {TIMEOUT}.0 s", absent=[0]),
                  self.other_program)

    def test_wrong_bit(self):
        with self.ranks(*self.arguments, "full", ORCH_RUN_FAULT="corrupt:2:exchange:1") as ranks:
            results = ranks.results()
        self.assertEqual({result.code for result in results.values()}, {1}, results)
        self.assertRegex(results[0].err, r"^orch-run: error: rank 2, step 1, exchange .*, [a-z-]+: sample \d+ unit \d+, element "
                                         r"\d+ of \d+: expected 0x[0-9a-f]+, found 0x[0-9a-f]+\n"
                                         r"orch-run: error: 1 elements are not what they should be\n$")
        document = json.loads(self.json.read_text())
        check_schema("run", document)
        self.assertEqual(document["mismatches"], 1)
        self.json.write_text("{}")

    def interrupted(self, name, interrupted):
        with self.ranks("--steps", 100000, "--timeout", TIMEOUT, "--json", self.json, name=name) as ranks:
            time.sleep(3)
            ranks.send(signal.SIGINT, interrupted)
            for rank, result in ranks.results(within=20).items():
                if rank in interrupted:
                    self.assertEqual(result.code, -signal.SIGINT)
                    self.assertRegex(result.err, rf"^orch-run: error: rank {rank}: interrupted in ")
                else:
                    self.assertEqual(result.code, 1)
                    self.assertRegex(result.err, f"{GONE}|{REMOTE_ERROR}; no answer from rank 2")

    def test_interrupted(self):
        self.jobs(lambda: self.interrupted("all", range(RANKS)), lambda: self.interrupted("one", [2]))

    def only_nccl_can_notice(self, loss, words):
        process = mpirun("-np", RANKS, PROGRAM, *NCCL, *self.arguments, "off", launcher=["--enable-recovery"],
                         fault="kill:2:exchange:1", env={"ORCHMLLM_DOUBLE_LOSS": loss})
        _, err = process.communicate(timeout=60)
        self.assertRegex(err, rf"orch-run: error: rank [013]: step 1, exchange .*: waits for .*{words}; no answer from rank 2")

    @unittest.skipUnless(MPIRUN, "no MPI in this build")
    def test_killed_and_mpi_does_not_notice(self):
        self.jobs(lambda: self.only_nccl_can_notice("noticed", REMOTE_ERROR),
                  lambda: self.only_nccl_can_notice("silent", f"in vain for {TIMEOUT}.0 s"))


if __name__ == "__main__":
    unittest.main(argv=["test_nccl"])
