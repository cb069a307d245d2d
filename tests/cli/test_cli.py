"""Drives the `orch` program as a user would: outputs, exit codes, errors, and what is left behind.

    test_cli.py ORCH SOURCE
"""

import gzip
import json
import os
import subprocess
import sys
import unittest

from program import DEMO, ORCH, SHARED, SOURCE, WHOLE_DEMO, Run, check_schema, orch

SMALL = ["--model", "mllm-10b", "--cluster", "h100-8x400g", "--gpus", "16", "--batch", "4", "--steps", "2"]


class Cli(Run):
    def test_help_has_examples(self):
        for command in ([], ["trace"]):
            self.assertIn("Usage", self.good(*command, "--help"))
        for command in (["trace", "stats"], ["trace", "validate"], ["trace", "generate"], ["balance"], ["plan"], ["simulate"], ["compare"], ["sweep"]):
            text = self.good(*command, "--help")
            self.assertIn("Examples:", text)
            self.assertGreaterEqual(text.count("  orch " + " ".join(command)), 2, text)
        self.assertIn("orch 0.", self.good("--version"))

    def test_bad_usage(self):
        self.bad(2, "subcommand", )
        self.bad(2, "--trace", "plan")
        self.bad(2, "--gpus", "plan", "--trace", DEMO, *SMALL[:4], "--gpus", "0")
        self.bad(2, "--gpus", "plan", "--trace", DEMO, *SMALL[:4], "--gpus", "-3")
        self.bad(2, "nonsense", "nonsense")
        self.bad(2, "two outputs", "plan", "--trace", DEMO, *SMALL, "--json", "-", "--out", "-")
        deep = self.file("deep.json", "[" * 100000 + "]" * 2000)
        self.bad(2, "deep.json:1: length[0] is a list", "balance", deep)
        self.bad(2, "is a folder", "balance", self.folder)
        self.bad(2, "is a folder", "plan", "--trace", DEMO, *SMALL, "--json", self.folder)
        self.bad(2, "strategy", "simulate", "--trace", DEMO, *SMALL, "--strategy", "best")
        self.bad(2, "shard", "simulate", "--trace", DEMO, *SMALL, "--shard", "3")
        self.bad(2, "mllm-84b", "plan", "--trace", DEMO, "--model", "mllm-85b", "--cluster", "h100-8x400g")
        self.bad(2, "h200-8x400g", "plan", "--trace", DEMO, "--model", "mllm-10b", "--cluster", "h300")
        self.bad(2, "absent.jsonl", "plan", "--trace", self.folder / "absent.jsonl", *SMALL)
        self.bad(2, "--timeline-ranks 16", "simulate", "--trace", DEMO, *SMALL, "--timeline", self.folder / "t.json",
                 "--timeline-ranks", "16")
        self.bad(2, "--timeline-ranks requires --timeline", "simulate", "--trace", DEMO, *SMALL, "--timeline-ranks", "1")

    def test_numbers_are_decimal(self):
        for text in ("-1", "010", "0x10", "1e3", " 1", "1 ", "18446744073709551616", "nan"):
            self.bad(2, f'--seed: "{text}" is not an integer', "plan", "--trace", DEMO, *SMALL, f"--seed={text}")
        for option in ("--gpus", "--batch", "--steps", "--rank"):
            self.bad(2, f'{option}: "-1" is not an integer', "plan", "--trace", DEMO, *SMALL[:4], option, "-1")
        for option in ("--gamma", "--capacity", "--min-per-rank", "--max-per-rank", "--multiple-of"):
            self.bad(2, f'{option}: "-1" is not an integer', "balance", "lengths.txt", option, "-1")
        self.bad(2, '--speeds: "-2" is not an integer', "balance", "lengths.txt", "--speeds", "1,-2")
        self.bad(2, '--samples: "-1" is not an integer', "trace", "head", "-n", "-1", DEMO)
        self.bad(2, '--seed: "0x1" is not an integer', "trace", "shuffle", "--seed", "0x1", DEMO, "out.jsonl")
        for text in ("nan", "inf", "0x1p3", "1e999"):
            self.bad(2, f'--tolerance: "{text}" is not a number', "plan", "--trace", DEMO, *SMALL, f"--tolerance={text}")
        for option in ("--seed=", "--tolerance="):
            self.bad(2, option[:-1], "plan", "--trace", DEMO, *SMALL, option)
        self.assertIn("--seed UINT", self.good("plan", "--help"))

    def balance(self, text, *arguments, code=0):
        result = subprocess.run([ORCH, "balance", "-", *map(str, arguments), "--json", "-"], input=text,
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout) if code == 0 else result.stderr

    def test_balance_solvers(self):
        lengths = "\n".join(str(1 + i * i % 977) for i in range(400))
        for solver in ("auto", "lpt", "karmarkar-karp", "refine", "exact", "quadratic"):
            out = self.balance(lengths, "--ranks", 16, "--solver", solver, "--effort", 0.005)
            loads = [0] * 16
            for i, rank in enumerate(out["rank_of"]):
                loads[rank] += 1 + i * i % 977
            self.assertEqual(out["rank_cost"], loads, solver)
            self.assertLessEqual(out["lower_bound"], max(loads))
            self.assertLess(out["gap"], 0.05)
        for cost in ("padded", "conv-packed"):
            out = self.balance(lengths, "--ranks", 16, "--cost", cost, "--conv-alpha", 2)
            self.assertEqual(len(out["rank_of"]), 400)

    def test_balance_constraints(self):
        lengths = "\n".join(map(str, range(1, 207)))
        out = self.balance(lengths, "--ranks", 4, "--counts", "near-equal")
        self.assertEqual(sorted(out["rank_of"].count(rank) for rank in range(4)), [51, 51, 52, 52])
        self.assertIn("near-equal", self.balance(lengths, "--ranks", 4, "--counts", "equal", code=3))
        self.assertIn("12", self.balance("6 \n6\n6\n", "--ranks", 2, "--capacity", 10, code=3))
        out = self.balance("length,group\n5,0\n5,0\n5,1\n5,1\n", "--ranks", 2)
        self.assertEqual(out["rank_of"][0], out["rank_of"][1])
        self.assertEqual(out["max_cost"], 10)
        out = self.balance('{"length":[10,10,10,10],"home":[0,0,0,1]}', "--ranks", 2, "--solver", "movement", "--tolerance", 0)
        self.assertEqual((out["moved_bytes"], out["max_cost"]), (10, 20))
        out = self.balance("\n".join(["1"] * 300), "--ranks", 2, "--speeds", "2,1")
        self.assertEqual(sorted(out["rank_of"].count(rank) for rank in range(2)), [100, 200])

    def test_balance_reads_csv_as_programs_write_it(self):
        plain = self.balance("length,home\n5,0\n6,1\n7,0\n", "--ranks", 2)["plan_hash"]
        for text in ("Length, HOME\n 5 , 0\n6,\t1\n7,0\n", '"length","home"\r\n"5","0"\r\n"6","1"\r\n"7","0"\r\n',
                     '\ufefflength, "Home"\n5, "0" \n\n6,1\n   \n7,0', '{"home":[0,1,0],\n"length":[5,6,7]}'):
            self.assertEqual(self.balance(text, "--ranks", 2)["plan_hash"], plain, text)
        self.assertEqual(self.balance(" 5\n\n6 \r\n\t7", "--ranks", 2)["rank_of"], self.balance("[5,6,7]", "--ranks", 2)["rank_of"])

    def test_balance_plans(self):
        table = "length,home\n6,0\n6,0\n6,0\n2,0\n5,1\n5,1\n1,1\n1,1\n"
        out = self.balance(table, "--ranks", 2, "--microbatches", "--capacity", 10, "--multiple-of", 2)
        self.assertEqual((out["microbatches"], out["dummies"]), (4, []))
        out = self.balance("\n".join(["300000"] + ["100"] * 3000), "--ranks", 16, "--split", "--alpha", 100, "--beta", 1)
        self.assertEqual(len(out["splits"]), 1)
        self.assertEqual(out["splits"][0]["group"], 8)

    def test_balance_bad_input(self):
        for text, message in (("5\nx\n", "standard input:2: length is \"x\""), ("5\n-1\n", "standard input:2"),
                              ("length,size\n1,2\n", "column \"size\""), ("length,home\n1\n", "standard input:2: 1 fields, expected 2"),
                              ("1,2\n", "standard input:1: several columns without a header"),
                              ("length,length\n1,1\n", "standard input:1: column length stands twice"),
                              ("home\n1\n", "standard input:1: no column length"),
                              ("length\n1.5\n", "standard input:2: length is \"1.5\""), ("length\n\"1\n", "standard input:2: a quote"),
                              ("[1,", "standard input:1: not JSON"), ("[1,\n2.5\n]", "standard input:2: length[1] is 2.5"),
                              ("[1,\n\n-2\n]", "standard input:3: length[1] is -2"), ("[\n1\n,[2]]", "standard input:3: length[1] is a list"),
                              ("[1,\n\n2\n,}\n", "standard input:4: not JSON"), ('{"length":[1],\n"home":[\n9\n]}', "standard input:3: home is rank 9"),
                              ('{"length":[1],\n"length":[2]}', "standard input:2: key \"length\" stands twice"),
                              ('{"length":\n5}', "standard input:2: length is 5, expected a list"), ('{"length":{}}', "length is an object"),
                              ('{\n"len":[1]}', "standard input:2: key \"len\""),
                              ('{"length":[1],"home":[0,1]}', "2 values of home"), ("99999999999999999999", "standard input:1"),
                              ("length,home\n1,0\n1,9\n", "standard input:3: home is rank 9, but there are 2 ranks")):
            self.assertIn(message, self.balance(text, "--ranks", 2, code=2))
        self.assertIn("takes no counts", self.balance("1\n2\n", "--ranks", 2, "--solver", "lpt", "--counts", "equal", code=2))
        self.assertIn("does not fit into 64 bits", self.balance("3100000000\n" * 3, "--ranks", 1, "--alpha", 0, "--beta", 1, code=2))

    def test_plan_json(self):
        out = json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--seed", "5", "--json", "-"))
        self.assertEqual(out["schema"], "orchmllm.plan/2")
        check_schema("plan", out)
        self.assertEqual(out["seed"], 5)
        self.assertEqual(out["trace"]["name"], "omni-demo")
        self.assertEqual(len(out["trace"]["hash"]), 16)
        self.assertRegex(out["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(len(out["steps"]), 2)
        for step in out["steps"]:
            self.assertEqual([phase["phase"] for phase in step["phases"]], ["vision", "audio", "llm"])
            for phase in step["phases"]:
                self.assertEqual(phase["samples"], 64)
                self.assertEqual(phase["ranks"], 16)
                self.assertLessEqual(phase["lower_bound"], phase["max_cost"])
                self.assertAlmostEqual(phase["gap"], phase["max_cost"] / phase["lower_bound"] - 1)
                self.assertLessEqual(phase["imbalance_after"], phase["imbalance_before"])
                self.assertLessEqual(phase["inter_node_bytes"], phase["moved_bytes"])
                self.assertGreaterEqual(phase["solve_ms"], 0)

    def test_plan_exchanges_both_ways(self):
        out = json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--exchange", "hierarchical", "--json", "-"))
        for step in out["steps"]:
            self.assertEqual([(e["from"], e["to"]) for e in step["exchanges"]],
                             [("home", "vision"), ("home", "audio"), ("home", "llm"), ("vision", "llm"), ("audio", "llm")])
            for exchange in step["exchanges"]:
                self.assertEqual(exchange["schedule"], "hierarchical")
                direct, staged = exchange["direct"], exchange["hierarchical"]
                self.assertEqual(direct["inter_node_bytes"], staged["inter_node_bytes"])
                self.assertLessEqual(staged["inter_node_messages"], direct["inter_node_messages"])
                self.assertLessEqual(staged["cross_rail_bytes"], 0)

    def test_plan_units_balance_no_worse(self):
        coarse, fine = (json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--granularity", g, "--json", "-"))
                        for g in ("sample", "unit"))
        for a, b in zip(coarse["steps"], fine["steps"]):
            self.assertEqual(a["phases"][0]["units"], b["phases"][0]["units"])
            self.assertLessEqual(b["phases"][0]["lower_bound"], a["phases"][0]["lower_bound"])
            self.assertNotEqual(a["plan_hash"], b["plan_hash"])

    def test_plan_placements_agree_on_the_optimum(self):
        small = [*SMALL[:4], "--gpus", "16", "--batch", "2"]
        figures = [json.loads(self.good("plan", "--trace", DEMO, *small, "--placement", p, "--json", "-"))["steps"][0]
                   for p in ("flow", "auto")]
        for step in figures[1:]:
            self.assertEqual([e["direct"]["inter_node_bytes"] for e in step["exchanges"]],
                             [e["direct"]["inter_node_bytes"] for e in figures[0]["exchanges"]])
        exact = orch("plan", "--trace", DEMO, *small, "--placement", "ilp", "--json", "-")
        if exact.returncode == 0:
            step = json.loads(exact.stdout)["steps"][0]
            self.assertEqual(step["phases"][0]["inter_node_bytes"], figures[0]["phases"][0]["inter_node_bytes"])
        else:
            self.assertIn("built without lp_solve", exact.stderr)
        scattered = json.loads(self.good("plan", "--trace", DEMO, *small, "--placement", "none", "--json", "-"))["steps"][0]
        self.assertLessEqual(figures[0]["phases"][0]["inter_node_bytes"], scattered["phases"][0]["inter_node_bytes"])

    def test_plan_out_holds_whole_plans(self):
        out = self.folder / "plan.json"
        table = self.good("plan", "--trace", DEMO, *SMALL, "--out", out)
        self.assertIn("imbalance before", table)
        plan = json.loads(out.read_text())
        self.assertEqual(plan["schema"], "orchmllm.plans/1")
        summary = json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--json", "-"))
        for step, told in zip(plan["steps"], summary["steps"], strict=True):
            check_schema("step_plan", step)
            self.assertEqual(step["plan_hash"], told["plan_hash"])
            self.assertEqual(len(step["samples"]), 64)
            self.assertEqual(step["home_rank"], [i // 4 for i in range(64)])
            for phase, figures in zip(step["phases"], told["phases"], strict=True):
                self.assertEqual(len(phase["rank_of"]), figures["units"])
                self.assertEqual(len(phase["rank_cost"]), 16)
                self.assertEqual(max(phase["rank_cost"]), figures["max_cost"])
                self.assertTrue(set(phase["rank_of"]) <= set(range(16)))
        self.assertEqual(os.listdir(self.folder), ["plan.json"])
        binary = self.folder / "plan.cbor"
        self.good("plan", "--trace", DEMO, *SMALL, "--out", binary)
        self.assertLess(binary.stat().st_size, out.stat().st_size)
        self.assertEqual(binary.read_bytes()[0] & 0xE0, 0xA0)  # a CBOR map

    def test_plan_of_one_rank(self):
        views = []
        for rank in range(16):
            out = self.folder / f"rank-{rank}.json"
            self.good("plan", "--trace", DEMO, *SMALL, "--out", out, "--rank", rank)
            self.assertLess(out.stat().st_size, 200_000)
            views.append(json.loads(out.read_text())["steps"][0])
            check_schema("rank_view", views[-1])
        self.assertEqual(len({view["plan_hash"] for view in views}), 1)
        self.assertEqual(sorted(s for view in views for s in view["phases"][2]["sample"]), list(range(64)))
        for r, route in enumerate(views[0]["routes"]):
            sent = {(v["rank"], s["rank"]): s["elements"] for v in views for s in v["routes"][r]["stages"][0]["sends"]}
            got = {(s["rank"], v["rank"]): s["elements"] for v in views for s in v["routes"][r]["stages"][0]["receives"]}
            self.assertEqual(sent, got, route)
        self.bad(2, "--rank 16", "plan", "--trace", DEMO, *SMALL, "--out", self.folder / "x.json", "--rank", "16")
        self.bad(2, "--out", "plan", "--trace", DEMO, *SMALL, "--rank", "1")

    def test_plan_traffic_matrix(self):
        path = self.folder / "bytes.txt"
        table = self.good("plan", "--trace", DEMO, *SMALL, "--traffic-matrix", path)
        rows = [[int(cell) for cell in line.split()] for line in path.read_text().splitlines()]
        self.assertEqual([len(row) for row in rows], [16] * 16)
        exchanges = json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--json", "-"))["steps"][0]["exchanges"]
        inter = sum(rows[a][b] for a in range(16) for b in range(16) if a // 8 != b // 8)
        self.assertEqual(inter, sum(e["direct"]["inter_node_bytes"] for e in exchanges))
        self.assertEqual(sum(rows[a][a] for a in range(16)), sum(e["local_bytes"] for e in exchanges))
        largest = max(max(map(sum, rows)), max(map(sum, zip(*rows))))
        self.assertIn(f"NCCL_TESTS_ALLTOALLV_MATRIX_FILE={path} alltoallv_perf -b {largest} -e {largest}", table)

    def test_plan_explain_compares_all_modes(self):
        table = self.good("plan", "--trace", DEMO, *SMALL, "--explain")
        for mode in ("none", "lpt", "auto", "movement"):
            self.assertIn("\n" + mode, table)
        for word in ("independent", "joint", "unit", "flow, bottleneck"):
            self.assertIn(word, table)
        modes = json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--explain", "--json", "-"))
        check_schema("plan_modes", modes)
        self.assertEqual(modes["modes"][0]["moved_bytes"], 0)
        self.bad(2, "--explain", "plan", "--trace", DEMO, *SMALL, "--explain", "--out", self.folder / "x.json")

    def test_plan_without_balancing_moves_nothing(self):
        out = json.loads(self.good("plan", "--trace", DEMO, *SMALL, "--balance", "none", "--json", "-"))
        for step in out["steps"]:
            for phase in step["phases"]:
                self.assertEqual(phase["moved_bytes"], 0)
                self.assertEqual(phase["imbalance_after"], phase["imbalance_before"])

    def test_compare_json(self):
        out = json.loads(self.good("compare", "--trace", DEMO, *SMALL, "--json", "-"))
        self.assertEqual(out["schema"], "orchmllm.compare/2")
        check_schema("compare", out)
        self.assertEqual([s["name"] for s in out["strategies"]], ["none", "llm-only", "orchmllm", "movement"])
        for strategy in out["strategies"]:
            for key in ("mfu", "step_seconds", "tokens_per_second_per_gpu", "idle_fraction", "exchange_seconds",
                        "inter_node_bytes", "peak_memory_bytes", "oom"):
                self.assertIn(key, strategy)
            self.assertEqual(set(strategy["imbalance"]), {"vision", "audio", "llm"})
            self.assertEqual(set(strategy["gap"]), {"vision", "audio", "llm"})
            self.assertAlmostEqual(sum(strategy["peak_memory"].values()), strategy["peak_memory_bytes"], delta=1)
            steps = [step["seconds"] for step in strategy["steps"]]
            self.assertAlmostEqual(sum(steps) / len(steps), strategy["step_seconds"])
            flops = sum(step["model_flops"] for step in strategy["steps"])
            self.assertAlmostEqual(strategy["mfu"], flops / (sum(steps) * 16 * 989e12))
        none, llm_only, balanced, movement = out["strategies"]
        self.assertEqual(none["inter_node_bytes"], 0)
        self.assertLess(balanced["step_seconds"], llm_only["step_seconds"])
        self.assertLess(llm_only["step_seconds"], none["step_seconds"])
        self.assertLess(movement["inter_node_bytes"], balanced["inter_node_bytes"])

    def test_same_seed_same_bytes(self):
        def run(seed):
            out = json.loads(self.good("compare", "--trace", DEMO, *SMALL, "--seed", seed, "--json", "-"))
            return json.dumps(out)

        self.assertEqual(run(3), run(3))
        self.assertNotEqual(run(3), run(4))

    def test_out_of_memory_is_exit_code_3(self):
        result = orch("simulate", "--trace", DEMO, "--model", "mllm-84b", "--cluster", "a100-8x200g", "--gpus", "16",
                      "--batch", "16", "--json", "-")
        self.assertEqual(result.returncode, 3, result.stderr)
        out = json.loads(result.stdout)
        self.assertTrue(out["oom"])
        check_schema("simulation", out)
        table = orch("simulate", "--trace", DEMO, "--model", "mllm-84b", "--cluster", "a100-8x200g", "--gpus", "16",
                     "--batch", "16")
        self.assertIn("out of memory on rank", table.stdout)

    def test_timeline_is_well_formed(self):
        out = self.folder / "timeline.json"
        self.good("simulate", "--trace", DEMO, *SMALL, "--timeline", out, "--timeline-ranks", "0,9")
        events = json.loads(out.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        self.assertEqual({event["pid"] for event in spans}, {0, 9})
        by_track = {}
        for event in spans:
            by_track.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        self.assertEqual({tid for _, tid in by_track}, {0, 1, 2})
        for track in by_track.values():
            track.sort()
            for (_, end), (begin, _) in zip(track, track[1:]):
                self.assertLessEqual(end, begin + 1e-3)

    def test_trace_stats_and_validate(self):
        self.assertIn("valid, 200000 samples", self.good("trace", "validate", WHOLE_DEMO, "--model", "mllm-84b"))
        table = self.good("trace", "stats", DEMO)
        self.assertIn("audio seconds", table)
        out = json.loads(self.good("trace", "stats", DEMO, "--model", "mllm-10b", "--json", "-"))
        self.assertEqual(out["trace"]["samples"], 2000)
        self.assertEqual(sum(out["tasks"].values()), 2000)
        self.assertIn("text+vision+audio", out["combinations"])
        self.assertIn("llm length (model)", out["quantities"])

    def test_generated_traces_are_reproducible(self):
        profile = SOURCE / "traces" / "profiles" / "omni-demo.toml"
        paths = [self.folder / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl")]
        for path, seed in zip(paths, (1, 1, 2)):
            self.good("trace", "generate", "--profile", profile, "--samples", "2000", "--seed", seed, path)
        self.assertEqual(paths[0].read_bytes(), gzip.decompress(paths[1].read_bytes()))
        self.assertNotEqual(paths[0].read_bytes(), paths[2].read_bytes())
        self.assertIn("2000 samples", self.good("trace", "validate", paths[0]))
        for line in paths[0].read_text().splitlines()[:300]:
            check_schema("trace", json.loads(line))
        head = gzip.decompress(DEMO.read_bytes())[: 1 << 16].split(b"\n")[1:500]
        self.assertEqual(head, paths[0].read_bytes().split(b"\n")[1:500])

    def test_bad_profiles(self):
        profile = (SOURCE / "traces" / "profiles" / "omni-demo.toml").read_text()
        for name, old, new in (("weight", "weight = 15", "weight = -1"), ("p", "p = [0, ", "p = [0.5, "),
                               ("unknown", "weight = 15", "weight = 15\nwieght = 1"), ("source", "source = ", "sauce = ")):
            path = self.file(f"{name}.toml", profile.replace(old, new, 1))
            self.bad(2, f"{name}.toml:", "trace", "generate", "--profile", path, self.folder / "out.jsonl")
            path.unlink()
        self.assertEqual(os.listdir(self.folder), [])

    def test_bad_model_and_cluster_files(self):
        for folder, name, old, new, message in (
                ("models", "mllm-10b", "layers = 28", "layers = 0", "layers must be an integer from 1"),
                ("models", "mllm-10b", "layers = 28", "layers = 28.5", "layers must be an integer"),
                ("models", "mllm-10b", "layers = 28", "", "layers is missing"),
                ("models", "mllm-10b", "layers = 28", "layers = 28\nlayer = 28", "unknown key layer"),
                ("models", "mllm-10b", "rule = \"audio-frames\"", "rule = \"waves\"", "expected tiled-images"),
                ("models", "mllm-10b", "kv_heads = 4", "kv_heads = 5", "must divide heads"),
                ("models", "mllm-10b", "[llm]", "[llm", "mllm-10b.toml:"),
                ("clusters", "h100-8x400g", "peak_tflops = 989", "peak_tflops = nan", "peak_tflops must be a number"),
                ("clusters", "h100-8x400g", "peak_tflops = 989", "peak_tflops = -1", "peak_tflops must be a number"),
                ("clusters", "h100-8x400g", "attention_head_dims = [64", "attention_head_dims = [-64", "from 1 to 65536"),
                ("clusters", "h100-8x400g", "length = [512, 1024,", "length = [1024, 512,", "ascending"),
                ("clusters", "h100-8x400g", "length = [512, 1024,", "length = [1024,", "as many entries"),
                ("clusters", "h100-8x400g", "efficiency = 0.95", "efficiency = 1.5", "efficiency must be a number")):
            path = self.file(f"{name}.toml", (SOURCE / "sim" / folder / f"{name}.toml").read_text().replace(old, new, 1))
            settings = ["--model", path, "--cluster", "h100-8x400g"]
            if folder == "clusters":
                settings = ["--model", "mllm-10b", "--cluster", path]
            self.bad(2, message, "plan", "--trace", DEMO, *settings)

    def test_one_bad_line_in_a_hundred_thousand(self):
        line = '{{"id":"s{}","text":{},"audio":[3.5],"images":[[640,480]]}}\n'
        lines = [line.format(i, i % 900) for i in range(100_000)]
        bad_lines = {
            "truncated": '{"id":"x","text":1,"audio":[3.5\n',
            "negative": '{"id":"x","audio":[-3.5]}\n',
            "zero-width": '{"id":"x","images":[[0,480]]}\n',
            "nan": '{"id":"x","audio":[NaN]}\n',
            "huge-number": '{"id":"x","text":1' + "0" * 30 + "}\n",
            "huge-float": '{"id":"x","audio":[1e30]}\n',
            "long-line": '{"id":"' + "x" * 100_000_000 + '"}\n',
            "wrong-type": '{"id":"x","text":"many"}\n',
            "wrong-shape": '{"id":"x","images":[640,480]}\n',
        }
        for name, bad_line in bad_lines.items():
            with self.subTest(name):
                text = "".join(lines[:77_776]) + bad_line + "".join(lines[77_777:])
                path = self.file("bad.jsonl", text)
                out = self.folder / "out.json"
                self.bad(2, f"{path}:77777: ", "plan", "--trace", path, *SMALL, "--out", out)
                self.bad(2, f"{path}:77777: ", "trace", "validate", path)
                self.assertEqual(os.listdir(self.folder), ["bad.jsonl"])
        packed = gzip.compress("".join(lines).encode())
        path = self.file("cut.jsonl.gz", packed[: len(packed) * 2 // 3])
        (self.folder / "bad.jsonl").unlink()
        self.bad(2, "cut short", "compare", "--trace", path, *SMALL, "--json", self.folder / "out.json")
        self.assertEqual(os.listdir(self.folder), ["cut.jsonl.gz"])

    def test_empty_and_tiny_traces(self):
        self.bad(2, "no samples", "plan", "--trace", self.file("empty.jsonl", ""), *SMALL)
        tiny = self.file("tiny.jsonl", '{"text":5}\n{"text":0}\n')
        out = json.loads(self.good("compare", "--trace", tiny, *SMALL, "--json", "-"))
        self.assertEqual(out["strategies"][0]["imbalance"]["vision"], 1)
        zero = self.file("zero.jsonl", '{"text":0}\n')
        out = json.loads(self.good("compare", "--trace", zero, *SMALL, "--json", "-"))
        self.assertEqual(out["strategies"][2]["mfu"], 0)
        one = self.good("compare", "--trace", tiny, *SMALL[:4], "--gpus", "1", "--batch", "1")
        self.assertIn("orchmllm", one)

    def test_unknown_keys_warn_once(self):
        path = self.file("extra.jsonl", '{"text":5,"lang":"en"}\n{"text":6,"lang":"de"}\n')
        result = orch("trace", "validate", path)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count("unknown key \"lang\" ignored (2 lines)"), 1)

    def test_control_characters_of_inputs_are_escaped(self):
        evil = "a\x1b[2J\u009b1m\r\n\tz"
        shown = "a\\x1b[2J\\xc2\\x9b1m\\x0d\\x0a\\x09z"
        lines = [{"orchmllm_trace": 1, "name": evil, "source": evil, "license": evil},
                 {"text": 5, "task": evil, evil: 1, "tokens": {evil: [[5, 1]]}}, {"text": 6, "task": "other", evil: 1}]
        trace = self.file("evil.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        model = self.file("evil.toml", (SOURCE / "sim" / "models" / "mllm-10b.toml").read_text()
                          .replace('name = "mllm-10b"', "name = " + json.dumps(evil)))
        bad_key = self.file("key.jsonl", json.dumps({"video": [{evil: 1}]}) + "\n")
        bad_name = self.file("name.toml", json.dumps(evil) + " = 1\n" +
                             (SOURCE / "sim" / "models" / "mllm-10b.toml").read_text())
        plain = self.file("plain.jsonl", '{"text":5}\n')
        settings = ["--cluster", "h100-8x400g", "--gpus", "2", "--batch", "1"]
        for arguments in (["trace", "stats", trace, "--histogram"], ["trace", "validate", trace], ["trace", "diff", trace, trace],
                          ["plan", "--trace", plain, "--model", model, *settings], ["compare", "--trace", plain, "--model", model, *settings],
                          ["simulate", "--trace", plain, "--model", model, *settings], ["trace", "validate", bad_key],
                          ["plan", "--trace", plain, "--model", bad_name, *settings], [evil], ["trace", "validate", evil],
                          ["trace", "split", trace, self.folder / evil, self.folder / evil, "--parts", "2"]):
            result = subprocess.run([ORCH, *map(str, arguments)], capture_output=True, timeout=60)
            text = (result.stdout + result.stderr).decode()
            self.assertIn(shown, text, arguments)
            self.assertFalse([c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0)], text)

    def test_standard_output_that_cannot_be_written(self):
        small = self.file("small.jsonl", '{"text":5}\n' * 500)
        lengths = self.file("lengths.txt", "5\n6\n")
        settings = ["--trace", small, "--model", "mllm-10b", "--cluster", "h100-8x400g", "--gpus", "2", "--batch", "1"]
        commands = [["--help"], ["--version"], ["trace", "--help"], ["trace", "convert", "--help"],
                    ["trace", "stats", small], ["trace", "stats", small, "--json", "-"], ["trace", "validate", small],
                    ["trace", "head", small], ["trace", "head", "-n", "500", small], ["trace", "diff", small, small],
                    ["balance", lengths], ["balance", lengths, "--json", "-"],
                    ["plan", *settings], ["plan", *settings, "--json", "-"], ["plan", *settings, "--out", "-"],
                    ["plan", *settings, "--traffic-matrix", "-"], ["plan", *settings, "--explain"],
                    ["simulate", *settings], ["simulate", *settings, "--json", "-"], ["compare", *settings]]
        for arguments in commands:
            for output in ("/dev/full", None):
                with open(output or os.devnull, "wb" if output else "rb") as stdout:  # or one that is open for reading
                    result = subprocess.run([ORCH, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, text=True,
                                            timeout=60)
                self.assertEqual(result.returncode, 1, arguments)
                self.assertTrue(result.stderr.startswith("orch: error: standard output: "), result.stderr)

    def test_output_that_cannot_be_written(self):
        self.bad(2, "cannot be written", "plan", "--trace", DEMO, *SMALL, "--json", self.folder / "no" / "plan.json")

    def test_shared_trace_on_2560_gpus(self):
        trace = SHARED / "traces" / "omni-mix.jsonl.gz"
        if not trace.exists():
            print(f"SKIPPED: no {trace}; set ORCHMLLM_SHARED", file=sys.stderr)
            self.skipTest("no shared traces")
        out = json.loads(self.good("compare", "--trace", trace, "--model", "mllm-84b", "--cluster", "h100-8x400g", "--gpus",
                                   "2560", "--batch", "32", "--steps", "1", "--strategy", "none,orchmllm", "--json", "-"))
        none, balanced = out["strategies"]
        self.assertLess(balanced["imbalance"]["vision"], 1.02)
        self.assertGreater(none["imbalance"]["vision"], 1.5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
