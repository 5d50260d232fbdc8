#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what compare.py measured: plot_overhead.py FIGURES.json > OVERHEAD.svg

A panel for each workload, a bar for each technique: ns added to one unit of
work, on a logarithmic scale, with its range. What was not measured, or is not
told from nothing, says so.
"""
import json
import math
import sys
from xml.sax.saxutils import escape

LABELS, WIDTH, BAR, GAP, HEAD = 220, 860, 14, 6, 46
COLORS = {"shim": "#1a7f5a", "shim+companion": "#1a7f5a"}


def svg(width, height, body):
    """A drawing with the styles of all of them."""
    style = ("text{font:12px sans-serif;fill:#1f2328}.head{font-weight:bold}"
             ".dim{fill:#656d76;font-size:11px}.grid{stroke:#d0d7de}"
             ".range{stroke:#1f2328;stroke-width:2}.figure{stroke-width:2}"
             ".budget{stroke-dasharray:2 3}"
             ".slope{stroke:#afb8c1;stroke-width:6;stroke-opacity:0.5}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{style}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *body,
        "</svg>", ""])


def panel(top, workload, low, high):
    """SVG of one workload and the y below it."""
    scale = (WIDTH - LABELS - 150) / (math.log10(high) - math.log10(low))

    def x(ns):
        return LABELS + scale * (math.log10(min(max(ns, low), high)) -
                                 math.log10(low))

    rows = [(v, r) for v, r in workload["variants"].items()
            if v != "bare-again"]
    bottom = top + HEAD + len(rows) * (BAR + GAP)
    out = [f'<text x="8" y="{top + 16}" class="head">'
           f'{escape(workload["what"])}</text>',
           f'<text x="8" y="{top + 32}" class="dim">ns added a '
           f'{escape(workload["unit"])}; without a recorder it takes '
           f'{workload["bare_ns"]["median"]:,.0f}</text>']
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        at = x(10 ** power)
        out += [f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top + HEAD - 4}" '
                f'y2="{bottom}" class="grid"/>',
                f'<text x="{at:.1f}" y="{bottom + 12}" class="dim" '
                f'text-anchor="middle">{10 ** power:,.0f}</text>']
    for i, (variant, row) in enumerate(rows):
        y = top + HEAD + i * (BAR + GAP)
        out.append(f'<text x="{LABELS - 8}" y="{y + 11}" text-anchor="end">'
                   f'{escape(row["title"])}</text>')
        if "skipped" in row:
            out.append(f'<text x="{LABELS + 4}" y="{y + 11}" class="dim">not '
                       'measured</text>')
            continue
        ns = row["added_ns"]
        if ns["low"] <= 0:
            text = f'lost in noise ({ns["low"]:,.0f} to {ns["high"]:,.0f})'
            out.append(f'<text x="{LABELS + 4}" y="{y + 11}" class="dim">'
                       f'{text}</text>')
            continue
        color = COLORS.get(variant, "#7d8590")
        end = x(ns["median"])
        out += [f'<rect x="{LABELS}" y="{y}" width="{end - LABELS:.1f}" '
                f'height="{BAR}" fill="{color}"/>',
                f'<line x1="{x(ns["low"]):.1f}" x2="{x(ns["high"]):.1f}" '
                f'y1="{y + BAR / 2}" y2="{y + BAR / 2}" class="range"/>',
                f'<text x="{max(end, x(ns["high"])) + 6:.1f}" y="{y + 11}">'
                f'{ns["median"]:,.0f}</text>']
    return out, bottom + 28


def draw(figures):
    workloads = [w for w in figures["workloads"].values()
                 if w["unit"] in ("call", "op")]
    ends = [e for w in workloads for r in w["variants"].values()
            if "added_ns" in r for e in (r["added_ns"]["low"],
                                         r["added_ns"]["high"]) if e > 0]
    if not ends:
        sys.exit("plot_overhead: no figure per call in it")
    low = 10 ** math.floor(math.log10(min(ends)))
    high = 10 ** math.ceil(math.log10(max(ends)) + 0.01)
    machine = figures["machine"]
    body, y = [f'<text x="8" y="18" class="dim">'
               f'{escape(str(machine["gpu"]))}; {escape(machine["cpu"])}; '
               f'kernel {escape(machine["kernel"])}</text>'], 30
    for workload in workloads:
        lines, y = panel(y, workload, low, high)
        body += lines
    return svg(WIDTH, y, body)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: plot_overhead.py FIGURES.json > OVERHEAD.svg")
    with open(sys.argv[1], encoding="utf-8") as f:
        sys.stdout.write(draw(json.load(f)))
