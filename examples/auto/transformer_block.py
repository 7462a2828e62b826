"""A compiled transformer block. Needs a GPU and torch. Run: python transformer_block.py [--steps N] [--save FILE]"""

from __future__ import annotations

import argparse
import hashlib

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~causal, float("-inf")).softmax(dim=-1)
        return self.project((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--save", help="write the outputs and gradients of all steps to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this example needs a GPU")
    torch.manual_seed(0)
    block = Block(options.width, heads=12).to("cuda", torch.bfloat16)
    train = torch.compile(block)
    x = torch.randn(options.batch, options.length, options.width, device="cuda", dtype=torch.bfloat16)
    data = b""
    for step in range(options.steps):
        block.zero_grad()
        out = train(x)
        loss = out.float().square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in block.parameters():
                parameter -= 0.01 * parameter.grad
        for tensor in (out, *(parameter.grad for parameter in block.parameters())):
            data += tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()
        print(f"step {step}: loss {loss.item():.6f}")
    print("block", hashlib.sha256(data).hexdigest())
    if options.save:
        with open(options.save, "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
