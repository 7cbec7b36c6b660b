"""Tables of the speed benchmarks, as `publish_demo.py` and `publish_performance.py` put them into the pages."""

from typing import Any


def speed_table(results: dict[str, Any]) -> str:
    """The table of one file of `benchmarks/results`, with what was measured and where."""
    if "streaming" in results:
        return streaming_of(results)
    if "sections" in results:
        return attention_of(results)
    if "cutoffs" in results["settings"]:
        return output_layer_of(results)
    return speed_of(results)


def output_layer_of(results: dict[str, Any]) -> str:
    """Time and size of the output layer over a large vocabulary, as `benchmarks/adaptive_softmax.py` measured them."""
    lines = ["| Output layer | Ratio | Quartiles | Parameters | MFLOP per token | Kept for the backward pass (MiB) |"]
    lines.append("| :--- |" + " ---: |" * 5)
    for name, row in results["rows"].items():
        low, high = row["ratio_quartiles"]
        cells = [name, f"{row['ratio']:.3f}", f"{low:.3f} to {high:.3f}", f"{row['parameters']:,}"]
        cells += [f"{row['flops_per_token'] / 1e6:,.1f}", f"{row['kept_bytes'] / 2**20:,.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    s, machine = results["settings"], results["machine"]
    what = f"{s['vocabulary']:,} words, width {s['width']}, {s['tokens']} labels by Zipf's law"
    cut = " and ".join(f"{cutoff:,}" for cutoff in s["cutoffs"])
    where = f"CPU ({machine['processor']}), {machine['threads']} thread, CPU time, torch {machine['packages']['torch']}"
    rounds = f"{s['rounds']} interleaved rounds, `full softmax` = 1.00"
    return "\n".join(lines) + f"\n\nForward and backward; {what}, cut at {cut}; {where}; {rounds}."


def speed_of(results: dict[str, Any]) -> str:
    """Time of a training step by encoding, as `benchmarks/training_step.py` measured it."""
    networks: dict[str, Any] = results["networks"]
    heads = [f"{network}, ratio | quartiles | parameters" for network in networks]
    lines = ["| Encoding | " + " | ".join(heads) + " |", "| :--- |" + " ---: |" * (3 * len(networks))]
    for name in dict.fromkeys(name for rows in networks.values() for name in rows):
        cells = [name]
        for rows in networks.values():
            row = rows.get(name)
            if row is None:
                cells += ["refused", "", ""]
                continue
            low, high = row["ratio_quartiles"]
            cells += [f"{row['ratio']:.2f}", f"{low:.2f} to {high:.2f}", f"{row['parameters']:,}"]
        lines.append("| " + " | ".join(cells) + " |")
    s, machine = results["settings"], results["machine"]
    what = f"{s['layers']} layers of width {s['width']} with {s['heads']} heads on {s['batch']} x {s['length']} tokens"
    torch = machine["packages"]["torch"]
    where = f"{s['device']} ({machine['processor']}), {machine['threads']} thread, CPU time, torch {torch}"
    return "\n".join(lines) + (
        f"\n\nForward and backward of {what} in float32; {where}; {s['rounds']} interleaved rounds,"
        f" `{results['limit']}` = 1.00."
    )


def attention_of(results: dict[str, Any]) -> str:
    """Time and memory of attention and of encoders, as `benchmarks/attention.py` measured them."""
    lines: list[str] = []
    for section, rows in results["sections"].items():
        curve = all("ratio" not in row for row in rows.values())
        memory = any("extra_bytes" in row for row in rows.values())
        columns = ["Tokens", "Extra memory (MiB)", "Seconds"] if curve else ["", "Ratio", "Quartiles", "ms"]
        columns += ["Extra memory (MiB)"] if memory else []
        arithmetic = any("flops_ratio" in row for row in rows.values())
        columns += ["FLOPs", "Ratio of time over that of FLOPs"] if arithmetic else []
        lines += ["", f"{section[0].upper()}{section[1:]}:", "", "| " + " | ".join(columns) + " |"]
        lines.append("| :--- |" + " ---: |" * (len(columns) - 1))
        for name, row in rows.items():
            if curve:
                cells = [f"{int(name):,}", f"{row['bytes'] / 2**20:,.0f}", f"{row['seconds']:.2f}"]
            else:
                low, high = row["ratio_quartiles"]
                cells = [name, f"{row['ratio']:.2f}", f"{low:.2f} to {high:.2f}", f"{row['milliseconds']:,.0f}"]
                cells += [f"{row['extra_bytes'] / 2**20:,.1f}"] if memory else []
                cells += [f"{row['flops_ratio']:.2f}", f"{row['time_over_flops']:.2f}"] if arithmetic else []
            lines.append("| " + " | ".join(cells) + " |")
    machine = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    threads = "one thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    lines += ["", f"Forward and backward; {results['clock']}, {threads}; median over interleaved rounds,"]
    lines[-1] += f" {results['limit']} = 1.00. CPU ({machine['processor']}), {packages}."
    return "\n".join(lines).strip()


def streaming_of(results: dict[str, Any]) -> str:
    """Time per token and bytes held along a stream, as `benchmarks/streaming.py` measured them."""
    lines = [
        "| Memory | Tokens | ms per token, first tenth | last tenth | Last over first | Old over young | Held (MiB) |"
    ]
    lines.append("| :--- |" + " ---: |" * 6)
    for row in results["streaming"]:
        pace, (first, last) = row["milliseconds_per_token"], row["cache_bytes"]
        held = f"{first / 2**20:.2f}" if first == last else f"{first / 2**20:.2f} to {last / 2**20:.2f}"
        cells = [f"{row['tokens']:,}", f"{pace[0]:.2f}", f"{pace[-1]:.2f}"]
        cells += [f"{row['last_to_first']:.3f}", f"{row['old_to_young']:.3f}", held]
        lines.append(f"| {row['memory']} | " + " | ".join(cells) + " |")
    sizes, machine = results["model"], results["machine"]
    what = ", ".join(f"{name} {value}" for name, value in sizes.items())
    where = f"CPU ({machine['processor']}), torch {machine['packages']['torch']}"
    lengths = f"Segments of {results['segment_length']} tokens, {results['memory_length']} slots"
    return "\n".join(lines) + f"\n\n{lengths}, the memory full before the first tenth; {what}; one thread, {where}."
