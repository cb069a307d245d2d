"""Hosts on one machine: network namespaces behind a switch, rate-limited links between them, MPI ranks launched across.

two_level.py ORCH-RUN SOURCE OUT.json   measures strategies and schedules there, beside the simulator's prediction

A host is a network namespace with a host name of its own and one link to a bridge in another namespace. A token bucket
limits the link both ways; its queue holds what a window of all senders can put there, so that nothing is lost. Ranks of a
host share memory. All of it is made here, named by this process, and removed at the end. Imported by test_two_level.py.
"""

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STRATEGIES = ("lpt", "orchmllm", "movement")
SCHEDULES = ("direct", "hierarchical")
WORKLOAD = ("--model", "mllm-10b", "--batch", "4", "--steps", "1", "--seed", "5", "--verify", "off", "--spin", "0")


class Unavailable(Exception):
    """Why there can be no such network here."""


def command(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=30)
    if result.returncode != 0:
        raise Unavailable(f"{' '.join(map(str, words))}: {result.stderr.strip() or result.returncode}")


class Network:
    """So many hosts with links of so many megabits a second. A context: removed at its end, with what runs in it."""

    def __init__(self, hosts, megabits, ranks_per_host):
        self.hosts, self.megabits, self.ranks_per_host = hosts, megabits, ranks_per_host
        self.prefix = f"orch{os.getpid()}"
        self.namespaces = []

    def host(self, index):
        return f"{self.prefix}n{index}"

    def address(self, index):
        return f"10.77.0.{index + 1}"

    def __enter__(self):
        try:
            for tool in ("ip", "tc", "unshare", "mpirun"):
                if not shutil.which(tool):
                    raise Unavailable(f"no {tool} (iproute2, util-linux, openmpi-bin)")
            self.folder = pathlib.Path(tempfile.mkdtemp())
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def namespace(self, name):
        command("ip", "netns", "add", name)
        self.namespaces.append(name)
        command("ip", "-n", name, "link", "set", "lo", "up")

    def limit(self, namespace, link):
        command("ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate",
                f"{self.megabits}mbit", "burst", "128kb", "limit", "32mb")

    def build(self):
        switch = f"{self.prefix}s"
        self.namespace(switch)
        command("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        command("ip", "-n", switch, "link", "set", "br0", "up")
        for index in range(self.hosts):
            host, port = self.host(index), f"port{index}"
            self.namespace(host)
            command("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            command("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            command("ip", "-n", host, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            command("ip", "-n", host, "link", "set", "eth0", "up")
            self.limit(switch, port)
            self.limit(host, "eth0")
        command("ip", "netns", "exec", self.host(0), "unshare", "--uts", "true")
        self.agent = self.folder / "agent"
        self.agent.write_text("#!/bin/sh\n"
                              "# Stands for ssh: a command on the host of an address.\n"
                              "host=" + self.prefix + "n$((${1##*.} - 1))\nshift\n"
                              'exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"\n')
        self.agent.chmod(0o755)
        self.hostfile = self.folder / "hosts"
        self.hostfile.write_text("".join(f"{self.address(i)} slots={self.ranks_per_host}\n" for i in range(self.hosts)))

    def __exit__(self, *_):
        for name in self.namespaces:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:  # whatever runs in these namespaces was started here
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for name in reversed(self.namespaces):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def run(self, *words, within):
        """Ranks on all hosts; returns what they print. Throws CalledProcessError, TimeoutExpired."""
        head = self.host(0)
        options = ["--allow-run-as-root", "--hostfile", self.hostfile, "--map-by", "slot", "--bind-to", "none", "-np",
                   self.hosts * self.ranks_per_host]
        for name, value in (("plm_rsh_agent", self.agent), ("plm_rsh_no_tree_spawn", 1), ("btl", "self,vader,tcp"),
                            ("btl_tcp_if_include", "eth0"), ("oob_tcp_if_include", "eth0"),
                            ("btl_vader_single_copy_mechanism", "none"), ("mpi_yield_when_idle", 1)):
            options += ["--mca", name, value]
        line = ["ip", "netns", "exec", head, "unshare", "--uts", "sh", "-c", f'hostname {head}; exec "$@"', "sh", "mpirun",
                *options, *words]
        return subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=within, check=True).stdout


def measure(network, program, trace, folder, seconds, repeats=3):
    """Calibrates, then runs all strategies by both schedules, several times in turn: medians over these. Returns (the
    calibrated cluster file's text, what calibrate printed, rows)."""
    cluster = folder / "two-level.toml"
    said = network.run(program, "calibrate", "--out", cluster, "--seconds", seconds, "--spin", 0, within=60 + 3 * seconds)
    runs = {}
    for repeat in range(repeats):
        for schedule in SCHEDULES:
            result = folder / f"{schedule}-{repeat}.json"
            network.run(program, "--trace", trace, *WORKLOAD, "--cluster", cluster, "--strategy", ",".join(STRATEGIES),
                        "--exchange", schedule, "--network", "fluid", "--json", result, within=120)
            for run in json.loads(result.read_text())["runs"]:
                assert run["node_ranks"] == [network.ranks_per_host] * network.hosts, run["node_ranks"]
                runs.setdefault((run["strategy"], schedule), []).append(run)
    rows = []
    for (strategy, schedule), repeated in runs.items():
        exchanges = []
        for same in zip(*(run["steps"][0]["exchanges"] for run in repeated)):
            if same[0]["moved_bytes"] > 0:
                exchanges.append({key: same[0][key] for key in ("from", "to", "moved_bytes", "inter_node_bytes",
                                                                "predicted_seconds")} |
                                 {"measured_seconds": statistics.median(e["measured_seconds"] for e in same)})
        rows.append({"strategy": strategy, "schedule": schedule,
                     "inter_node_bytes": sum(e["inter_node_bytes"] for e in exchanges),
                     "measured_seconds": sum(e["measured_seconds"] for e in exchanges),
                     "all_measured_seconds": [run["measured"]["exchange_seconds"] for run in repeated],
                     "predicted_seconds": sum(e["predicted_seconds"] for e in exchanges), "exchanges": exchanges})
    return cluster.read_text(), said, rows


def table(rows):
    lines = [f"{'strategy':10} {'schedule':13} {'between nodes':>14} {'measured s':>11} {'predicted s':>12} {'ratio':>6}"]
    for row in rows:
        lines.append(f"{row['strategy']:10} {row['schedule']:13} {row['inter_node_bytes'] / 1e6:>11.1f} MB "
                     f"{row['measured_seconds']:>11.3f} {row['predicted_seconds']:>12.3f} "
                     f"{row['measured_seconds'] / row['predicted_seconds']:>6.2f}")
    return "\n".join(lines)


def main():
    program, source, out = map(pathlib.Path, sys.argv[1:4])
    hosts, megabits, ranks_per_host, seconds = 4, 300, 2, 30
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Network(hosts, megabits, ranks_per_host) as network:
        cluster, said, rows = measure(network, program.resolve(), source.resolve() / "traces" / "omni-demo.jsonl.gz",
                                pathlib.Path(folder), seconds)
    print(cluster, said, table(rows), f"{time.monotonic() - begin:.0f} s", sep="\n")
    out.write_text(json.dumps({"hosts": hosts, "ranks_per_host": ranks_per_host, "megabits": megabits,
                               "calibration_seconds": seconds, "workload": " ".join(WORKLOAD), "cluster": cluster,
                               "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
