"""What a position term that learns costs: attention alone, whole encoders, and memory, against no positions at all.

    python benchmarks/attention.py --json benchmarks/results/attention.json          # or: make bench
    python benchmarks/attention.py --only operation --wall --threads 2 --json benchmarks/results/wall.json   # if quiet

Every section is one run: candidates in turn, ratios within a round, medians (see timing.py). The limit, 1.00, is
torch's scaled_dot_product_attention without any position. Peers: the same with the bias as its mask (what a user of
torch would write), the reference code's sequence of operations (bias copied for every example), Hugging Face's BERT,
and x-transformers with its T5 bias. Memory is the peak of resident memory above the inputs, each in a process of its
own.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import extra_memory, in_a_process, interleave, machine
from torch import Tensor
from torch.nn import functional as F

import wordorder
from wordorder.attention import attention
from wordorder.encodings import Terms
from wordorder.ops import LowRankBias, ToeplitzBias

CHANNELS = 64
SCALE = (2 * CHANNELS) ** -0.5
FARTHEST = 128  # distances beyond it share the number of the farthest, as with T5's buckets
STACKS = (  # width, heads, tokens, batch, rounds
    (768, 12, 512, 2, 9),
    (256, 4, 1024, 2, 15),
)
CURVE = (512, 1024, 2048, 4096, 8192, 16384)


def projected(batch: int, heads: int, tokens: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values in the layout in which a projection leaves them."""
    fused = torch.randn(batch, tokens, 3, heads, CHANNELS, dtype=dtype).permute(2, 0, 3, 1, 4)
    return [part.detach().requires_grad_() for part in fused.unbind(0)]


def factors(heads: int, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Both low-rank factors of TUPE ([CLS] features included) and the numbers of distances."""
    a, c = (0.1 * torch.randn(1, heads, tokens, CHANNELS + 2) for _ in range(2))
    numbers = 0.1 * torch.randn(heads, 2 * FARTHEST + 1)
    return a.requires_grad_(), c.requires_grad_(), numbers.requires_grad_()


def of_distances(numbers: Tensor, tokens: int) -> ToeplitzBias:
    """The relative bias, constant beyond the farthest distance."""
    column = torch.arange(1 - tokens, tokens).clamp(-FARTHEST, FARTHEST) + FARTHEST
    edges = (tokens - 1 - FARTHEST, tokens - 1 + FARTHEST) if tokens > FARTHEST else None
    return ToeplitzBias(numbers[:, column], tokens, may_hide=False, edges=edges)


def operations(batch: int, heads: int, tokens: int, dtype: torch.dtype = torch.float32) -> dict[str, Callable[[], Any]]:
    """One attention, forward and backward, down to the factors and the numbers."""
    torch.manual_seed(0)
    (q, k, v), (a, c, numbers) = projected(batch, heads, tokens, dtype), factors(heads, tokens)
    upstream = torch.randn(batch, tokens, heads, CHANNELS, dtype=dtype).transpose(1, 2)

    def step(output: Tensor, *terms: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(output, [q, k, v, *terms], upstream)

    def bias(relative: bool) -> Any:
        low_rank = LowRankBias(a, c)
        return low_rank + of_distances(numbers, tokens) if relative else low_rank

    def ours(relative: bool, backend: str | None = None) -> tuple[Tensor, ...]:
        terms = (a, c, numbers) if relative else (a, c)
        return step(attention(q, k, v, Terms(SCALE, bias(relative)), backend=backend), *terms)

    def reference_code() -> tuple[Tensor, ...]:
        dense = bias(True).dense().to(dtype).expand(batch, -1, -1, -1).reshape(batch * heads, tokens, tokens)
        flat_q, flat_k, flat_v = (x.reshape(batch * heads, tokens, CHANNELS) for x in (q * SCALE, k, v))
        weights = torch.softmax((torch.bmm(flat_q, flat_k.transpose(1, 2)) + dense).float(), -1).to(dtype)
        return step(torch.bmm(weights, flat_v).view(batch, heads, tokens, CHANNELS), a, c, numbers)

    plain = F.scaled_dot_product_attention
    return {
        "SDPA, no position": lambda: step(plain(q, k, v, scale=SCALE)),
        "TUPE-A": lambda: ours(False),
        "TUPE-R": lambda: ours(True),
        "TUPE-R, SDPA with the bias as mask": lambda: ours(True, "sdpa"),
        "TUPE-R, operations of the reference code": reference_code,
    }


def stacks(width: int, heads: int, tokens: int, batch: int) -> dict[str, Callable[[], Any]]:
    """Four layers, forward and backward, on embeddings; the peers where they are installed."""
    torch.manual_seed(0)
    x = torch.randn(batch, tokens, width)
    upstream = torch.randn(batch, tokens, width)
    options: dict[str, Any] = {"layers": 4, "heads": heads, "max_positions": tokens}
    options |= {"dropout": 0.0, "attention_dropout": 0.0}

    def step(network: torch.nn.Module, call: Callable[[torch.nn.Module], Tensor]) -> Callable[[], Any]:
        parameters = list(network.parameters())

        def run() -> Any:
            return torch.autograd.grad(call(network), parameters, upstream, allow_unused=True)

        return run

    found = {}
    for name, encoding in (("SDPA, no position", "none"), ("T5", "t5"), ("TUPE-A", "tupe-a"), ("TUPE-R", "tupe-r")):
        encoder = wordorder.Encoder(8, width=width, encoding=encoding, **options)
        found[name] = step(encoder, lambda net: net(inputs_embeds=x).hidden)
    dense = wordorder.Encoder(8, width=width, encoding="tupe-r", **options)
    found["TUPE-R, SDPA with the bias as mask"] = step(dense, lambda net: net(inputs_embeds=x, backend="sdpa").hidden)
    return found | peers(width, heads, tokens, x, step)


def peers(width: int, heads: int, tokens: int, x: Tensor, step: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Encoders of the same sizes from other libraries."""
    found = {}
    try:
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=width,
            num_hidden_layers=4,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=tokens,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            vocab_size=8,
        )
        bert = BertModel(config, add_pooling_layer=False)
        found["Hugging Face BERT (sdpa)"] = step(bert, lambda net: net(inputs_embeds=x).last_hidden_state)
    except ImportError:
        pass
    try:
        from x_transformers import Encoder

        sizes = {"dim": width, "depth": 4, "heads": heads, "attn_dim_head": width // heads}
        found["x-transformers, no position (flash)"] = step(Encoder(**sizes, attn_flash=True), lambda net: net(x))
        found["x-transformers, T5 bias"] = step(Encoder(**sizes, rel_pos_bias=True), lambda net: net(x))
    except ImportError:
        pass
    return found


def step_of_two_layers(encoding: str, tokens: int) -> Callable[[], Any]:
    """A training step of a two-layer encoder of width 128 on one text."""
    torch.manual_seed(0)
    encoder = wordorder.Encoder(
        256,
        width=128,
        layers=2,
        heads=2,
        max_positions=tokens,
        encoding=encoding,
        dropout=0.0,
        attention_dropout=0.0,
    )
    ids = torch.randint(256, (1, tokens))
    optimizer = torch.optim.AdamW(encoder.parameters())

    def run() -> None:
        encoder(ids).hidden.pow(2).mean().backward()
        optimizer.step()

    return run


def measure_alone(what: str, name: str, tokens: int) -> None:
    """Print the extra memory and the CPU seconds of one candidate; for a process of its own."""
    from timing import seconds

    torch.set_num_threads(1)
    warm = operations(1, 1, 64) if what == "operation" else {"": step_of_two_layers("none", 64)}
    for run in warm.values():  # libraries allocate on first use
        run()
    run = operations(1, 4, tokens)[name] if what == "operation" else step_of_two_layers(name, tokens)
    taken: list[float] = []
    memory = extra_memory(lambda: taken.append(seconds(run, torch.device("cpu"))))
    print(json.dumps({"bytes": memory, "seconds": taken[0]}))


def alone(what: str, name: str, tokens: int) -> dict[str, Any]:
    """The same, from here."""
    return json.loads(in_a_process(__file__, "--alone", what, name, str(tokens)))


def measure(only: Sequence[str], *, wall: bool, rounds: int | None) -> dict[str, Any]:
    """All sections that are asked for."""
    found: dict[str, Any] = {}
    if "operation" in only:
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
            batch = 8 if wall else 2  # wall time is for batches that keep several threads busy
            candidates = operations(batch, 12, 512, dtype)
            rows = interleave(candidates, limit="SDPA, no position", rounds=rounds or 21, wall=wall)
            found[f"operation, {batch} x 12 heads x 512, {name}"] = rows
    if "long" in only:
        rows = interleave(operations(1, 4, 4096), limit="SDPA, no position", rounds=rounds or 5, wall=wall)
        for name, row in rows.items():
            row["extra_bytes"] = alone("operation", name, 4096)["bytes"]
        found["operation, 1 x 4 heads x 4096, float32"] = rows
    if "stack" in only:
        for width, heads, tokens, batch, times in STACKS:
            candidates = stacks(width, heads, tokens, batch)
            rows = interleave(candidates, limit="SDPA, no position", rounds=rounds or times, wall=wall)
            found[f"encoder, 4 layers of width {width}, {heads} heads, {batch} x {tokens}, float32"] = rows
    if "memory" in only:
        curve = {str(tokens): alone("step", "tupe-r", tokens) for tokens in CURVE}
        found["training step, 2 layers of width 128, 2 heads, 1 text, TUPE-R"] = curve
    return found


def main() -> None:
    """Print the tables, and write the file that was asked for."""
    if sys.argv[1:2] == ["--alone"]:
        measure_alone(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    sections = ("operation", "long", "stack", "memory")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wall", action="store_true", help="wall clock instead of CPU time; on a quiet machine")
    parser.add_argument("--rounds", type=int, help="default: enough for quartiles within a few percent")
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = measure(arguments.only, wall=arguments.wall, rounds=arguments.rounds)
    for section, rows in found.items():
        print(f"\n{section}")
        for name, row in rows.items():
            low, high = row.get("ratio_quartiles", (0, 0))
            ratio = f"{row['ratio']:6.2f} ({low:.2f} to {high:.2f}) {row['milliseconds']:9.1f} ms" if low else ""
            memory = row.get("extra_bytes", row.get("bytes"))
            print(f"  {name:42} {ratio}", f"{memory / 2**20:8.1f} MiB" if memory is not None else "")
    if arguments.json:
        clock = "wall time" if arguments.wall else "CPU time"
        document = {"limit": "SDPA, no position", "clock": clock, "machine": machine(), "sections": found}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
