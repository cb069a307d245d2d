"""Writes the tables of docs/solvers.md from bench/results/balance.json and bench/results/solvers.json."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent


def medians():
    rows = {}
    for row in json.loads((ROOT / "bench/results/balance.json").read_text())["benchmarks"]:
        if row["aggregate_name"] == "median":
            name, *arguments = row["run_name"].split("/")
            key = tuple(int(argument.split(":")[1]) for argument in arguments)
            rows[name, key] = row
    return rows


def speed_table():
    rows = medians()
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


def replace(text, name, lines):
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    assert pattern.search(text), name
    return pattern.sub(lambda _: "\n".join([begin, *lines, end]), text)


def main():
    page = ROOT / "docs/solvers.md"
    text = replace(page.read_text(), "speed", speed_table())
    page.write_text(replace(text, "quality", quality_table()))


if __name__ == "__main__":
    main()
