#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what ask_bench.py measured: plot_ask.py [--cpu] FIGURES.json > ASK.svg

--cpu: CPU time, where others had the machine and the clock says nothing.
Seconds against events of the store, both on a logarithmic scale: a line for
each question, a dotted one for its budget, and a slope of "twice the events,
twice the time" to compare with.
"""
import json
import math
import sys
from xml.sax.saxutils import escape

from plot_overhead import svg

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 36, 350
COLORS = ("#1a7f5a", "#0969da", "#bc4c00", "#8250df", "#57606a")


def decades(values):
    """Powers of ten around them: the first and the last."""
    first, last = (round(f(math.log10(v)), 6) for f, v in
                   ((math.floor, min(values)), (math.ceil, max(values))))
    return int(first), int(max(last, first + 1))


def draw(figures, key):
    lines = figures["questions"]
    budgets = [q["budget_s"] for q in lines if "budget_s" in q]
    points = [p for q in lines for p in q["points"]]
    if not points:
        sys.exit("plot_ask: no figure in it")
    x0, x1 = decades([p["events"] for p in points])
    y0, y1 = decades([p[key] for p in points] + budgets)

    def x(events):
        return LEFT + (math.log10(events) - x0) / (x1 - x0) * (
            WIDTH - LEFT - RIGHT)

    def y(seconds):
        return BOTTOM - (math.log10(seconds) - y0) / (y1 - y0) * (
            BOTTOM - TOP)

    def text(at_x, at_y, words, anchor="start", kind="dim", color=None):
        fill = f' style="fill:{color}"' if color else ""
        return (f'<text x="{at_x:.1f}" y="{at_y:.1f}" class="{kind}" '
                f'text-anchor="{anchor}"{fill}>{escape(words)}</text>')

    def line(a, b, kind, color=None):
        stroke = f' style="stroke:{color}"' if color else ""
        return (f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" '
                f'y2="{b[1]:.1f}" class="{kind}"{stroke}/>')

    out = [text(8, 18, ("CPU time" if key == "cpu_s" else "Time") +
                " to ask a store, by its events (dotted: budget; "
                "grey: twice the events, twice the time)", kind="head")]
    for power in range(x0, x1 + 1):
        at = x(10 ** power)
        out += [line((at, TOP), (at, BOTTOM), "grid"),
                text(at, BOTTOM + 16, f"{10 ** power:,}", "middle")]
    for power in range(y0, y1 + 1):
        at = y(10 ** power)
        out += [line((LEFT, at), (WIDTH - RIGHT, at), "grid"),
                text(LEFT - 6, at + 4, f"{10.0 ** power:g} s", "end")]
    out.append(text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 34,
                    "events in the store", "middle"))
    # As steep as linear cost, from the lower left corner.
    rise = min(x1 - x0, y1 - y0)
    out.append(line((x(10 ** x0), y(10 ** y0)),
                    (x(10 ** (x0 + rise)), y(10 ** (y0 + rise))), "slope"))
    labels = []
    for question, color in zip(lines, COLORS * len(lines)):
        rows = sorted(question["points"], key=lambda p: p["events"])
        at = [(x(p["events"]), y(p[key])) for p in rows]
        for a, b in zip(at, at[1:]):
            out.append(line(a, b, "figure", color))
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>'
                for a, b in at]
        labels.append([at[-1][1] + 4, f'{question["name"]} '
                       f'{rows[-1][key]:.2g} s', color])
        if "budget_s" in question:
            limit = y(question["budget_s"])
            out.append(line((LEFT, limit), (WIDTH - RIGHT, limit), "budget",
                            color))
    # Lines that end near each other: their names one below the other.
    labels.sort()
    for above, label in zip(labels, labels[1:]):
        label[0] = max(label[0], above[0] + 14)
    out += [text(WIDTH - RIGHT + 8, at, words, color=color)
            for at, words, color in labels]
    return svg(WIDTH, HEIGHT, out)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    cpu = arguments[:1] == ["--cpu"]
    if len(arguments) != 1 + cpu:
        sys.exit("usage: plot_ask.py [--cpu] FIGURES.json > ASK.svg")
    with open(arguments[-1], encoding="utf-8") as f:
        sys.stdout.write(draw(json.load(f), "cpu_s" if cpu else "wall_s"))
