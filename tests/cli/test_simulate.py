"""Drives `orch simulate`, `fit` and `validate` as a user would: parallelism, disturbances, outputs, errors.

    test_simulate.py ORCH SOURCE
"""

import csv
import io
import json
import sys
import unittest

from program import DEMO, SOURCE, Run, check_schema, orch

SMALL = ["--trace", DEMO, "--model", "mllm-10b", "--cluster", "h100-8x400g", "--gpus", "16", "--batch", "4", "--steps", "2"]
RUNS = SOURCE / "sim" / "validation" / "runs.csv"
MEMORY = SOURCE / "sim" / "validation" / "memory.csv"


class Simulate(Run):
    def simulate(self, *options):
        result = orch("simulate", *SMALL, *options, "--json", "-")
        self.assertIn(result.returncode, (0, 3), result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["oom"], result.returncode == 3)
        check_schema("simulation", document)
        return document

    def test_every_strategy(self):
        for strategy in ("none", "pre-balance", "llm-only", "megatron", "orchmllm", "orchmllm-allgather", "movement", "movement+split"):
            out = self.simulate("--strategy", strategy)
            self.assertEqual(out["name"], strategy)
            self.assertAlmostEqual(sum(out["breakdown_seconds"].values()), out["step_seconds"], places=6)
            self.assertAlmostEqual(sum(out["peak_memory"].values()), out["peak_memory_bytes"], delta=16)
            self.assertGreaterEqual(out["hfu"], out["mfu"])
            self.assertAlmostEqual(out["gpu_hours"], out["total_seconds"] * 16 / 3600)

    def test_parallelism(self):
        plain = self.simulate("--strategy", "none")
        halves = self.simulate("--strategy", "none", "--tensor", "2")
        self.assertEqual(halves["parallelism"]["tensor"], 2)
        self.assertLess(halves["peak_memory"]["activations llm"], plain["peak_memory"]["activations llm"])
        kept = self.simulate("--strategy", "none", "--recompute", "none")
        self.assertLess(kept["step_seconds"], plain["step_seconds"])
        self.assertGreater(kept["peak_memory_bytes"], plain["peak_memory_bytes"])
        self.assertAlmostEqual(kept["hfu"], kept["mfu"])
        fast = self.simulate("--strategy", "none", "--precision", "fp8")
        self.assertLess(fast["step_seconds"], plain["step_seconds"])
        parts = self.simulate("--strategy", "none", "--micro-batches", "4")
        self.assertLess(parts["peak_memory"]["activations llm"], plain["peak_memory"]["activations llm"])
        shared = self.simulate("--strategy", "none", "--data-parallel", "distributed-optimizer")
        self.assertGreater(shared["peak_memory"]["parameters"], plain["peak_memory"]["parameters"])
        pipe = self.simulate("--strategy", "none", "--pipeline", "4", "--micro-batch", "1")
        self.assertGreater(pipe["breakdown_seconds"]["bubble"], 0)

    def test_padded_sequences(self):
        for strategy in ("none", "orchmllm", "movement"):
            packed = self.simulate("--strategy", strategy)
            padded = self.simulate("--strategy", strategy, "--sequences", "padded")
            self.assertEqual((packed["settings"]["sequences"], padded["settings"]["sequences"]), ("packed", "padded"))
            self.assertEqual([step["tokens"] for step in packed["steps"]], [step["tokens"] for step in padded["steps"]])
            self.assertGreater(padded["step_seconds"], packed["step_seconds"])
            self.assertGreaterEqual(padded["peak_memory"]["activations llm"], packed["peak_memory"]["activations llm"])
            self.assertGreater(padded["hfu"] / padded["mfu"], packed["hfu"] / packed["mfu"])
        pipe = ("--strategy", "none", "--pipeline", "4", "--micro-batch", "4")
        self.assertGreater(self.simulate(*pipe, "--sequences", "padded")["step_seconds"], self.simulate(*pipe)["step_seconds"])
        self.bad(2, "packed sequences", "simulate", *SMALL, "--strategy", "movement+split", "--sequences", "padded")

    def test_what_does_not_add_up(self):
        self.bad(2, "not a multiple", "simulate", *SMALL, "--tensor", "3")
        self.bad(2, "one pipeline stage", "simulate", *SMALL, "--pipeline", "2", "--strategy", "movement")
        self.bad(2, "does not divide", "simulate", *SMALL, "--shard", "3")
        self.bad(2, "multiple of the stages", "simulate", *SMALL, "--strategy", "none", "--pipeline", "4",
                 "--virtual-stages", "7", "--micro-batch", "3")
        self.bad(2, "--slow-gpus 3: expected GPU:FACTOR", "simulate", *SMALL, "--slow-gpus", "3")
        self.bad(2, "--slow-links 3:-1: expected GPU:FACTOR", "simulate", *SMALL, "--slow-links", "3:-1")
        self.bad(2, "GPU 16 cannot be slow", "simulate", *SMALL, "--slow-gpus", "16:2")
        self.bad(2, "cannot be lost in step 2", "simulate", *SMALL, "--lose-node", "2")
        self.bad(2, "no peak_tflops_fp8", "simulate", *SMALL[:4], "--cluster", "a100-8x200g", "--gpus", "16", "--precision", "fp8")
        self.bad(2, "--recompute", "simulate", *SMALL, "--recompute", "half")
        self.bad(2, "unknown strategy", "simulate", *SMALL, "--strategy", "best")
        self.bad(2, "--jitter", "simulate", *SMALL, "--jitter", "-1")

    def test_disturbances(self):
        calm = self.simulate()
        slow = self.simulate("--slow-gpus", "3:1.5")
        self.assertGreater(slow["step_seconds"], 1.1 * calm["step_seconds"])
        self.assertGreater(self.simulate("--slow-links", "3:50")["step_seconds"], calm["step_seconds"])
        self.assertGreater(self.simulate("--jitter", "0.1")["step_seconds"], calm["step_seconds"])
        planned = self.simulate("--plan-seconds", "5", "--expose-planning")
        self.assertAlmostEqual(planned["step_seconds"], calm["step_seconds"] + 5)
        self.assertAlmostEqual(planned["breakdown_seconds"]["planning"], 5)
        lost = self.simulate("--lose-node", "1", "--restart-seconds", "100", "--checkpoint-every", "2")
        self.assertAlmostEqual(lost["lost_seconds"], 100 + 2 * calm["step_seconds"])
        self.assertAlmostEqual(lost["total_seconds"], lost["lost_seconds"] + 2 * calm["step_seconds"])

    def test_same_seed_same_bytes(self):
        run = lambda: self.good("simulate", *SMALL, "--jitter", "0.1", "--json", "-")
        self.assertEqual(run(), run())

    def test_csv_has_a_row_a_step(self):
        rows = list(csv.DictReader(io.StringIO(self.good("simulate", *SMALL, "--csv", "-"))))
        out = self.simulate()
        self.assertEqual([float(row["seconds"]) for row in rows], [step["seconds"] for step in out["steps"]])
        for row in rows:
            parts = [float(row[name]) for name in out["breakdown_seconds"]]
            self.assertAlmostEqual(sum(parts), float(row["seconds"]))

    def test_find_batch(self):
        found = json.loads(self.good("simulate", *SMALL[:6], "--gpus", "16", "--find-batch", "--json", "-"))
        self.assertFalse(found["oom"])
        one_more = orch("simulate", *SMALL[:6], "--gpus", "16", "--batch", found["batch"] + 1, "--json", "-")
        self.assertEqual(one_more.returncode, 3)
        self.bad(3, "not even one sample", "simulate", "--trace", DEMO, "--model", "mllm-84b", "--cluster", "a100-8x200g",
                 "--gpus", "8", "--find-batch")

    def test_texts_can_be_cut(self):
        whole, cut = self.simulate(), self.simulate("--max-text", "10")
        tokens = lambda out: sum(step["tokens"] for step in out["steps"])
        self.assertLess(tokens(cut), tokens(whole))
        self.assertEqual(tokens(self.simulate("--max-text", "1000000")), tokens(whole))

    def test_timeline_ties_exchanges_together(self):
        out = self.folder / "timeline.json"
        self.good("simulate", *SMALL, "--timeline", out)
        events = json.loads(out.read_text())["traceEvents"]
        arrows = {}
        for event in events:
            if event["ph"] in "st":
                arrows.setdefault(event["id"], []).append(event["ph"])
        self.assertTrue(arrows)
        for phases in arrows.values():
            self.assertEqual(phases[0], "s")
            self.assertEqual(phases.count("s"), 1)
        gathers = [event for event in events if event["ph"] == "X" and event["name"].startswith("all-gather")]
        self.assertEqual({event["pid"] for event in gathers}, set(range(8)))


class Validation(Run):
    def test_validate(self):
        out = json.loads(self.good("validate", "--runs", RUNS, "--memory", MEMORY, "--json", "-"))
        check_schema("validation", out)
        recorded = json.loads((SOURCE / "bench" / "results" / "validation.json").read_text())
        self.assertEqual(out, recorded, "run scripts/bench.sh validation")
        for row in out["memory"]:
            self.assertLess(abs(row["activation_error"]), 0.05, row)
            self.assertLess(abs(row["state_error"]), 0.05, row)

    def test_tuned_megatron_is_met(self):
        out = json.loads(self.good("validate", "--runs", RUNS, "--json", "-"))
        errors = [abs(run["error"]) for run in out["runs"]
                  if run["id"][0] in "DN" and run["cluster"] == "megatron-h100" and run["use"] == "validate"]
        self.assertGreater(len(errors), 20)
        self.assertLess(sum(errors) / len(errors), 0.05)
        self.assertLess(max(errors), 0.12)

    def test_bad_runs(self):
        lines = RUNS.read_text().splitlines()
        header, row = lines[0], next(line for line in lines if line.startswith("D3,"))
        for name, text, message in (
                ("use", row.replace("calibrate", "both"), "use is \"both\", expected one of calibrate, validate"),
                ("gpus", row.replace("llama3-8b,,32,", "llama3-8b,,33,"), "gpus 33 is not a multiple of tp"),
                ("model", row.replace("llama3-8b", "llama9"), "llama9"),
                ("batch", row.replace(",1,512,", ",1,500,"), "global_batch 500 is not a multiple"),
                ("tokens", row.replace(",10639", ",-5"), "expected a positive number"),
                ("fields", row + ",1", "fields, expected")):
            self.assertNotEqual(text, row, name)
            path = self.file(f"{name}.csv", f"{header}\n{text}\n")
            self.bad(2, message, "validate", "--runs", path)
            if name != "model":
                self.bad(2, f"{name}.csv:2: ", "validate", "--runs", path)
        self.bad(2, "empty", "validate", "--runs", self.file("empty.csv", ""))

    def test_fit_finds_what_the_runs_were_made_with(self):
        out = json.loads(self.good("validate", "--runs", RUNS, "--json", "-"))
        simulated = {run["id"]: run["simulated_tokens_per_second_per_gpu"] for run in out["runs"]}
        lines = RUNS.read_text().splitlines()
        column = lines[0].split(",").index("tokens_per_second_per_gpu")
        made = [lines[0]]
        for line in lines[1:]:
            cells = next(csv.reader([line]))
            cells[column] = repr(simulated[cells[0]])
            text = io.StringIO()
            csv.writer(text, lineterminator="").writerow(cells)
            made.append(text.getvalue())
        runs = self.file("made.csv", "\n".join(made) + "\n")
        shipped = (SOURCE / "sim" / "clusters" / "megatron-h100.toml").read_text()
        value = lambda text, key: float(next(line for line in text.splitlines() if line.startswith(key)).split()[2])
        moved = shipped.replace(f"half_depth = {value(shipped, 'half_depth'):.4g}", "half_depth = 500", 1)
        moved = moved.replace(f"tensor_overlap = {value(shipped, 'tensor_overlap'):.4g}", "tensor_overlap = 0.8", 1)
        self.assertNotEqual(moved, shipped)
        start = self.file("megatron-h100.toml", moved)
        fitted = self.folder / "fitted.toml"
        self.good("fit", "--runs", runs, "--cluster", start, "--coefficient", "gpu.gemm.half_depth,software.tensor_overlap",
                  "--out", fitted)
        self.assertAlmostEqual(value(fitted.read_text(), "half_depth"), value(shipped, "half_depth"), delta=5)
        self.assertAlmostEqual(value(fitted.read_text(), "tensor_overlap"), value(shipped, "tensor_overlap"), delta=0.01)
        self.assertIn("# fitted", fitted.read_text())

    def test_bad_fits(self):
        cluster = SOURCE / "sim" / "clusters" / "megatron-h100.toml"
        fit = ["fit", "--runs", RUNS, "--cluster"]
        self.bad(2, "cannot be fitted, expected one of", *fit, cluster, "--coefficient", "gpu.magic")
        self.bad(2, "has no number gpu.attention_scale", *fit, cluster, "--coefficient", "gpu.attention_scale")
        self.bad(2, "runs of base to calibrate with", *fit,
                 self.file("base.toml", cluster.read_text().replace('name = "megatron-h100"', 'name = "base"')),
                 "--coefficient", "gpu.gemm.half_depth")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
