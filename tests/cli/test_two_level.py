"""orch-run on several hosts: exchanges over rate-limited links take what the simulator predicts after calibration.

test_two_level.py ORCH-RUN SOURCE ORCH
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from two_level import Network, Unavailable, WORKLOAD, measure, table

PROGRAM, SOURCE, ORCH = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
HOSTS, RANKS_PER_HOST, MEGABITS = 4, 2, 300  # so slow that links, not cores, set the pace
TOLERANCE = 0.20
ATTEMPTS = 3  # calibration and runs are minutes of a machine that others may use, too


class TwoLevels(unittest.TestCase):
    def test_prediction(self):
        try:
            network = Network(HOSTS, MEGABITS, RANKS_PER_HOST).__enter__()
        except Unavailable as reason:
            print(f"SKIPPED: no network of namespaces here: {reason}", file=sys.stderr)
            self.skipTest(str(reason))
        self.addCleanup(network.__exit__)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        folder = pathlib.Path(folder.name)
        trace = SOURCE / "traces" / "omni-demo.jsonl.gz"
        for attempt in range(ATTEMPTS):
            try:
                cluster, said, rows = measure(network, PROGRAM, trace, folder, seconds=30)
            except subprocess.CalledProcessError as error:
                self.fail(error.stdout + error.stderr)
            print(cluster, said, table(rows), sep="\n")
            wrong = misses(rows)
            if not wrong:
                break
            print(f"attempt {attempt + 1} of {ATTEMPTS}:", *wrong, sep="\n", file=sys.stderr)
        self.assertEqual(wrong, [])

        # The other programs read what calibrate wrote.
        out = subprocess.run([ORCH, "simulate", "--trace", trace, *WORKLOAD[:WORKLOAD.index("--verify")], "--cluster",
                              folder / "two-level.toml", "--gpus", str(HOSTS * RANKS_PER_HOST), "--strategy", "movement",
                              "--json", "-"], capture_output=True, text=True, timeout=120)
        self.assertIn(out.returncode, (0, 3), out.stderr)  # 3: the model would not fit into this memory
        self.assertGreater(json.loads(out.stdout)["exchange_seconds"], 0)
        self.assertIn("nics_per_node = 1", cluster)  # hosts have one link


def misses(rows):
    """What is predicted wrongly."""
    wrong = [f"{row['strategy']}, {row['schedule']}: {row['measured_seconds']:.3f} s, predicted {row['predicted_seconds']:.3f} s"
             for row in rows if abs(row["measured_seconds"] / row["predicted_seconds"] - 1) > TOLERANCE]
    for schedule in ("direct", "hierarchical"):
        mine = [row for row in rows if row["schedule"] == schedule]
        measured, predicted = ([row["strategy"] for row in sorted(mine, key=lambda row: row[key])]
                               for key in ("measured_seconds", "predicted_seconds"))
        if measured != predicted:
            wrong.append(f"{schedule}: measured order {measured}, predicted {predicted}")
    return wrong


if __name__ == "__main__":
    unittest.main(argv=["test_two_level"])
