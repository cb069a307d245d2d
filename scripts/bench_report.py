"""Writes the tables of docs/solvers.md, method.md, simulator.md, runtime.md and validation.md from bench/results."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent


def medians(file):
    rows = {}
    for row in json.loads((ROOT / "bench/results" / file).read_text())["benchmarks"]:
        if row.get("aggregate_name", "median") == "median":
            name, *arguments = row["run_name"].split("/")
            numbers = [argument.split(":") for argument in arguments]
            key = tuple(int(value) for what, value in numbers if what not in ("min_time", "iterations", "repeats"))
            rows[name, key] = row
    return rows


def speed_table():
    rows = medians("balance.json")
    lines = ["| ranks x 32 | cost | reference LPT ms | LPT | of it sorting | LPT + refinement (gap) | Karmarkar-Karp | to the reference KK |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    for ranks in (8, 64, 320, 2560):
        for law, cost in ((0, "l"), (1, "24576·l + l²")):
            key = (ranks, 32, law)
            time = lambda name: rows[name, key]["real_time"]
            reference = time("reference_lpt")
            refined = rows["lpt_and_refine", key]
            kk_reference = rows.get(("reference_karmarkar_karp", key))
            lines.append(
                f"| {ranks:,} | {cost} | {reference:.3g} | {reference / time('lpt'):.1f}x faster | "
                f"{100 * time('sort_alone') / time('lpt'):.0f}% | {refined['real_time'] / reference:.2f} of the time "
                f"({100 * refined['gap']:.3f}%) | {time('karmarkar_karp'):.3g} ms | "
                + (f"{kk_reference['real_time'] / time('karmarkar_karp'):.0f}x faster |" if kk_reference else "- |"))
    return lines


def quality_table():
    table = {}
    for row in json.loads((ROOT / "bench/results/solvers.json").read_text())["rows"]:
        table.setdefault((row["input"], row["cost"], row["ranks"]), {})[row["solver"]] = row
    lines = ["| input | cost | ranks | largest / mean | LPT | LPT + refinement | Karmarkar-Karp | balance() | balance(), equal counts |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for (name, cost, ranks), solvers in table.items():
        cells = [f"{100 * solvers[s]['gap']:.3f}% · {solvers[s]['milliseconds']:.2g}"
                 for s in ("lpt", "lpt+refine", "karmarkar-karp", "balance", "balance, equal counts")]
        lines.append(f"| {name} | {cost} | {ranks:,} | {solvers['lpt']['over_mean']:.2f} | " + " | ".join(cells) + " |")
    return lines


def mode_table():
    lines = ["| ranks | balance | units | placement | LLM layout | imbalance vision / audio / llm | moved GiB | between nodes GiB | of all | outputs between nodes GiB | direct ms (peers) | node first ms (peers) |",
             "|---:|---|---|---|---|---|---:|---:|---:|---:|---:|---:|"]
    gib = lambda value: f"{value / 2**30:,.2f}"
    for run in json.loads((ROOT / "bench/results/method.json").read_text()):
        for mode in run["modes"]:
            imbalance = " / ".join(f"{value:.3f}" for value in mode["imbalance"].values())
            lines.append(
                f"| {run['ranks']:,} | {mode['balance']} | {mode['granularity']} | {mode['placement']} | {mode['llm_layout']} | {imbalance} | "
                f"{gib(mode['moved_bytes'])} | {gib(mode['inter_node_bytes'])} | {100 * mode['inter_node_part']:.2f}% | "
                f"{gib(mode['outputs_inter_node_bytes'])} | {1e3 * mode['direct_seconds']:.2f} ({mode['direct_most_peers']}) | "
                f"{1e3 * mode['hierarchical_seconds']:.2f} ({mode['hierarchical_most_peers']}) |")
    return lines


def trace_table():
    rows = json.loads((ROOT / "bench/results/solvers.json").read_text())["rows"]
    reference = {(row["input"], row["cost"], row["ranks"]): row["milliseconds"] for row in rows if row["solver"] == "reference-lpt"}
    lines = ["| input | cost | ranks | largest / mean | gap | between nodes, of all | to the bound | to LPT + node-wise placement | of the reference LPT's time |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        if row["solver"] != "movement":
            continue
        over = f"{row['to_bound']:.2f}" if row["to_bound"] > 0 else "-"
        time = row["milliseconds"] / reference[row["input"], row["cost"], row["ranks"]]
        lines.append(f"| {row['input']} | {row['cost']} | {row['ranks']:,} | {row['over_mean']:.2f} | {100 * row['gap']:.2f}% | "
                     f"{100 * row['inter_node_part']:.2f}% | {over} | {row['to_placed_lpt']:.3f} | {time:.2f} |")
    return lines


def step_table():
    rows = medians("step.json")
    reference = rows["reference_lpt", ()]["cpu_time"]
    lines = ["| what | CPU time | to the reference LPT of the LLM phase | memory |", "|---|---:|---:|---:|"]
    names = {"step_movement": "step plan, movement", "step_movement_units": "the same, units on their own",
             "step_movement_auto_exchange": "the same, samples, schedules chosen by estimate",
             "step_lpt_placed": "step plan, LPT and node-wise placement"}
    for name, text in names.items():
        row = rows[name, ()]
        lines.append(f"| {text} | {row['cpu_time']:.1f} ms | {row['cpu_time'] / reference:.1f}x | {row['peak_mib']:.0f} MiB |")
    for name, text in (("rank_view_movement", "one rank's view, movement"), ("rank_view_lpt", "one rank's view, LPT")):
        row = rows[name, ()]
        lines.append(f"| {text} | {row['cpu_time']:.0f} µs | - | {row['largest_kb']:.1f} kB at most, as CBOR |")
    return lines


def movement_table():
    rows = medians("movement.json")
    laws = ("length, at most 32,768", "24576·l + l², at most 32,768", "length, at most 4,096", "24576·l + l², at most 4,096")
    lines = ["| ranks x 32 | cost | reference LPT ms | movement, of its time | gap | between nodes, of all | to the bound | to LPT + node-wise placement |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    for (name, key), row in sorted(rows.items(), key=lambda item: (item[0][1], item[0][0])):
        if name != "movement":
            continue
        ranks, _, law = key
        reference = rows["reference_lpt", key]["cpu_time"]
        over = f"{row['over_bound']:.2f}" if row["over_bound"] > 0 else "-"
        lines.append(f"| {ranks:,} | {laws[law]} | {reference:.2f} | {row['cpu_time'] / reference:.2f} | {100 * row['gap']:.2f}% | "
                     f"{100 * row['inter_node_part']:.2f}% | {over} | {row['to_placed_lpt']:.3f} |")
    return lines


def placement_table():
    rows = medians("placement.json")
    names = {"total_transport": "transport (ours)", "total_boost": "Boost.Graph", "place_total_ilp": "lp_solve, total",
             "place_total": "placement, total", "place_bottleneck": "placement, bottleneck",
             "place_bottleneck_ilp": "lp_solve, bottleneck"}
    lines = ["| nodes x 8 | traffic | " + " | ".join(names.values()) + " |", "|---:|---|" + "---:|" * len(names)]
    for key in sorted({key for _, key in rows}, key=lambda key: (key[1], key[0])):
        cells = []
        for name in names:
            row = rows.get((name, key))
            over = row.get("over_bound", 0) if row else 0
            cells.append(f"{row['cpu_time']:.3g} ms" + (f", {100 * over:.1f}% over its bound" if over > 0 else "") if row else "-")
        traffic = "log-normal LPT" if key[1] == 0 else "sparse, heavy tails"
        lines.append(f"| {key[0]} | {traffic} | " + " | ".join(cells) + " |")
    return lines


def simulator_table():
    rows = medians("sim.json")
    lines = ["| what | GPUs | steps | CPU time | events a second | peak memory |", "|---|---:|---:|---:|---:|---:|"]
    for (name, key), row in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1][1:], item[0][1][0])):
        steps = str(key[1]) if len(key) > 1 else "-"
        memory = f"{row['peak_mib'] / 1024:.2f} GiB" if "peak_mib" in row else "-"
        lines.append(f"| {name} | {key[0]:,} | {steps} | {row['cpu_time'] / 1e3:.2f} s | "
                     f"{row['events_per_second'] / 1e6:.1f} million | {memory} |")
    return lines


def validation():
    return json.loads((ROOT / "bench/results/validation.json").read_text())


def error(value):
    return f"{100 * value:+.1f}"


def validation_summary():
    lines = ["| profile | runs | used for | mean error % | median % | worst % |", "|---|---:|---|---:|---:|---:|"]
    for row in validation()["summary"]:
        lines.append(f"| `{row['cluster']}` | {row['runs']} | {row['use']} | {100 * row['mean_error']:.1f} | "
                     f"{100 * row['median_error']:.1f} | {100 * row['worst_error']:.1f} |")
    return lines


def validation_groups():
    groups = {
        "Megatron on H100, NVIDIA's recipes, 8 to 2,304 GPUs (D, N)": lambda r: r["id"][0] in "DN" and r["cluster"] == "megatron-h100",
        "… its README of 2024 (G, GS)": lambda r: r["id"][0] == "G",
        "Megatron on A100, 2022 (P13, P14)": lambda r: r["id"].startswith(("P13", "P14")),
        "FSDP, all profiles": lambda r: r["cluster"].split("-")[0] in ("mosaic", "titan", "maxtext", "automodel"),
    }
    lines = ["| validation runs (never fitted) | runs | mean error % | median % | worst % |", "|---|---:|---:|---:|---:|"]
    for name, belongs in groups.items():
        errors = sorted(abs(r["error"]) for r in validation()["runs"] if r["use"] == "validate" and belongs(r))
        half = len(errors) // 2
        median = errors[half] if len(errors) % 2 else (errors[half - 1] + errors[half]) / 2
        lines.append(f"| {name} | {len(errors)} | {100 * sum(errors) / len(errors):.1f} | {100 * median:.1f} | {100 * errors[-1]:.1f} |")
    return lines


def validation_runs():
    lines = ["| run | used for | profile | model | GPUs | t · p · v · c | tokens/s/GPU measured | simulated | error % |",
             "|---|---|---|---|---:|---|---:|---:|---:|"]
    for r in validation()["runs"]:
        cut = f" ({r['layers']} layers)" if r["id"] in ("D25", "D27", "D28", "D30") else ""
        lines.append(f"| {r['id']} | {r['use']} | `{r['cluster']}` {r['precision']} | {r['model']}{cut} | {r['gpus']:,} | "
                     f"{r['tensor']} · {r['pipeline']} · {r['virtual_stages']} · {r['context']} | "
                     f"{r['measured_tokens_per_second_per_gpu']:,.0f} | {r['simulated_tokens_per_second_per_gpu']:,.0f} | "
                     f"{error(r['error'])} |")
    return lines


def validation_memory():
    lines = ["| run | activations GiB, published | simulated | error % | weights, gradients, optimizer GiB | simulated | error % |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for r in validation()["memory"]:
        lines.append(f"| {r['id']} | {r['measured_activation_gib']:.1f} | {r['simulated_activation_gib']:.1f} | "
                     f"{error(r['activation_error'])} | {r['measured_state_gib']:.1f} | {r['simulated_state_gib']:.1f} | "
                     f"{error(r['state_error'])} |")
    return lines


def claims_table():
    lines = ["| model, samples a GPU | strategy | MFU % | step s | of `megatron`'s throughput | of `none`'s | exchange, of forward | waiting or bubble | memory GiB | fits |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---|"]
    rows = json.loads((ROOT / "bench/results/claims.json").read_text())
    base = {(r["model"], r["name"]): r.get("tokens_per_second_per_gpu") for r in rows}
    for r in rows:
        if r.get("infeasible"):
            lines.append(f"| {r['model']} | `{r['name']}` | - | - | - | - | - | - | - | no pipeline fits |")
            continue
        parts, step = r["breakdown_seconds"], r["step_seconds"]
        ratio = lambda other: (f"{r['tokens_per_second_per_gpu'] / base[r['model'], other]:.2f}"
                               if base.get((r["model"], other)) else "-")
        lines.append(f"| {r['model']}, {r['batch']} | `{r['name']}` | {100 * r['mfu']:.1f} | {step:.2f} | {ratio('megatron')} | "
                     f"{ratio('none')} | {100 * r['exchange_seconds'] / 2 / (step / 4):.2f} % | "
                     f"{100 * (parts['waiting'] + parts['bubble']) / step:.1f} % | {r['peak_memory_bytes'] / 2**30:.1f} | "
                     f"{'no' if r['oom'] else 'yes'} |")
    return lines


def two_level_table():
    lines = ["| strategy | schedule | between nodes, a step | measured s | predicted s | measured / predicted |",
             "|---|---|---:|---:|---:|---:|"]
    for r in json.loads((ROOT / "bench/results/two-level.json").read_text())["rows"]:
        lines.append(f"| `{r['strategy']}` | {'node first' if r['schedule'] == 'hierarchical' else 'direct'} | "
                     f"{r['inter_node_bytes'] / 1e6:.1f} MB | {r['measured_seconds']:.2f} | {r['predicted_seconds']:.2f} | "
                     f"{r['measured_seconds'] / r['predicted_seconds']:.2f} |")
    return lines


def runtime_table():
    lines = ["| ranks | layout | bytes sent | messages alone | whole exchange | of it packing and unpacking |", "|---:|---|---:|---:|---:|---:|"]
    for r in json.loads((ROOT / "bench/results/runtime.json").read_text()):
        packing = 1 - r["transport"]["runtime_seconds"] / r["exchange"]["runtime_seconds"]
        lines.append(f"| {r['ranks']} | {r['layout']} | {r['bytes']:,} | {r['transport']['throughput_ratio']:.2f} | "
                     f"{r['exchange']['throughput_ratio']:.2f} | {100 * packing:.0f} % |")
    return lines


def replace(text, name, lines):
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    assert pattern.search(text), name
    return pattern.sub(lambda _: "\n".join([begin, *lines, end]), text)


def main():
    pages = {"docs/solvers.md": {"speed": speed_table, "quality": quality_table},
             "docs/method.md": {"modes": mode_table, "step": step_table, "movement": movement_table, "traces": trace_table,
                                "placement": placement_table},
             "docs/simulator.md": {"speed": simulator_table},
             "docs/runtime.md": {"runtime": runtime_table, "two-level": two_level_table},
             "docs/validation.md": {"summary": validation_summary, "groups": validation_groups, "runs": validation_runs,
                                    "memory": validation_memory, "claims": claims_table}}
    for name, tables in pages.items():
        page = ROOT / name
        text = page.read_text()
        for table, rows in tables.items():
            text = replace(text, table, rows())
        page.write_text(text)


if __name__ == "__main__":
    main()
