#!/usr/bin/env python3
"""Draw a cascade at work: 128 candidates enter a base encoder, and some leave at each exit.

    python docs/draw_cascade.py          # writes cascade.svg beside this script

The numbers are the worked example of Soldaini and Moschitti 2020, section 4.3.2: exits after layers
4, 6, 8, 10 and 12, and a drop ratio of 0.3. The scores are random; the seed is fixed, so the script
always writes the same file.
"""

from __future__ import annotations

import pathlib
import random
from typing import List, NamedTuple, Sequence, Tuple

EXITS = (4, 6, 8, 10, 12)
CANDIDATES = 128
DROP_PERCENT = 30

# Layout, in pixels.
WIDTH, HEIGHT = 1040, 466
TOP = 118  # of the layers
PITCH = 2  # height of one candidate
LAYER_WIDTH, LAYER_GAP, EXIT_GAP = 34, 7, 46
ENTRY, FIRST_LAYER = 106, 160  # where lines begin, and where the first layer stands
FALL = 408  # where dropped candidates end
RANKING_PITCH = 8  # height of one candidate in the ranking
RANKING_GAP = 54  # from the last exit to the ranking

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  text, .strong { fill: #1f2328 }
  .title { font-size: 19px; font-weight: 600 }
  .count { font-size: 17px; font-weight: 600 }
  .small { font-size: 13px; fill: #59636e }
  .layer { fill: #ddeafd; stroke: #7aa7e9 }
  .idle { fill: none; stroke: #c5ccd4; stroke-dasharray: 3 3 }
  .line { fill: none; stroke: #3373cc; stroke-width: 1; opacity: .55 }
  .leaving { fill: none; stroke: #c2413f; stroke-width: 1; opacity: .45 }
  .answer { fill: none; stroke: #e08600; stroke-width: 2.6 }
  .gate { stroke: #6f42c1; stroke-width: 2 }
  .head { fill: #6f42c1 }
  .initial { fill: #ffffff; font-weight: 600 }
  .left { fill: #c2413f }
  .bar { fill: #6c9ddf }
  .best { fill: #e08600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    text, .strong { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .layer { fill: #15263f; stroke: #3d6ba8 }
    .idle { stroke: #3d444d }
    .line { stroke: #79b0f5; opacity: .5 }
    .leaving { stroke: #ff7b72; opacity: .5 }
    .answer { stroke: #ffb340 }
    .gate { stroke: #a884e8 }
    .head { fill: #a884e8 }
    .initial { fill: #0d1117 }
    .left { fill: #ff7b72 }
    .bar { fill: #4a7fc6 }
    .best { fill: #ffb340 }
  }
"""

Point = Tuple[float, float]


class Stage(NamedTuple):
    """Layers between two exits."""

    layers: List[int]  # numbers, from 1
    start: float  # x of the first layer
    end: float  # x of the exit after the last one
    entering: List[int]  # candidates in the order in which they enter, best first
    ranked: List[int]  # the same in the order of the scores at the exit
    kept: int  # how many go on


def remaining(count: int) -> int:
    """Candidates that an exit lets through: all but floor(alpha k)."""
    return count - count * DROP_PERCENT // 100


def noisy_order(
    candidates: Sequence[int], quality: Sequence[float], noise: float, draw: random.Random
) -> List[int]:
    """Candidates by falling score, where a score is the quality and some noise."""
    scores = {candidate: quality[candidate] + noise * draw.random() for candidate in candidates}
    return sorted(candidates, key=lambda candidate: -scores[candidate])


def make_stages() -> List[Stage]:
    """The stages of the cascade, with an order of the candidates at each exit.

    The noise falls from exit to exit, as deeper classifiers rank better.
    """
    draw = random.Random(11)
    quality = [draw.random() for _ in range(CANDIDATES)]
    entering = noisy_order(range(CANDIDATES), quality, 1.2, draw)
    stages: List[Stage] = []
    start, below = float(FIRST_LAYER), 0
    for number, layer in enumerate(EXITS):
        layers = list(range(below + 1, layer + 1))
        end = start + len(layers) * (LAYER_WIDTH + LAYER_GAP) - LAYER_GAP
        is_last = number == len(EXITS) - 1
        kept = len(entering) if is_last else remaining(len(entering))
        noise = 0.0 if is_last else 0.5 / (number + 1)
        ranked = noisy_order(entering, quality, noise, draw)
        stages.append(Stage(layers, start, end, entering, ranked, kept))
        entering, start, below = ranked[:kept], end + EXIT_GAP, layer
    return stages


def slot(index: int) -> float:
    """Height of a candidate inside the layers, by its index in their order."""
    return TOP + PITCH * index + 0.5


def curve(start: Point, end: Point) -> str:
    """An S from one point to another, flat at both ends."""
    middle = (start[0] + end[0]) / 2
    return f"C{middle:g} {start[1]:g} {middle:g} {end[1]:g} {end[0]:g} {end[1]:g}"


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "middle") -> str:
    """A line of text."""
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{name}>{content}</text>'


def draw_layers(stages: Sequence[Stage]) -> List[str]:
    """A block a layer, as high as the candidates that run it; dashed, what does not run."""
    parts = []
    full = PITCH * CANDIDATES
    for stage in stages:
        height = PITCH * len(stage.entering)
        for place, layer in enumerate(stage.layers):
            x = stage.start + place * (LAYER_WIDTH + LAYER_GAP)
            box = f'x="{x:.0f}" width="{LAYER_WIDTH}" rx="4"'
            if height < full:
                idle = full - height - 6
                parts.append(f'<rect class="idle" {box} y="{TOP + height + 6}" height="{idle}"/>')
            parts.append(f'<rect class="layer" {box} y="{TOP}" height="{height}"/>')
            parts.append(text(x + LAYER_WIDTH / 2, TOP - 7, str(layer), "small"))
        middle = (stage.start + stage.end) / 2
        parts.append(text(middle, TOP - 26, str(len(stage.entering)), "count"))
    return parts


def draw_exits(stages: Sequence[Stage]) -> List[str]:
    """A gate with a classifier at each exit, and how many leave there."""
    parts = []
    for stage in stages:
        x, bottom = stage.end + 9, TOP + PITCH * len(stage.entering)
        parts.append(f'<path class="gate" d="M{x:.0f} {TOP - 22}V{bottom}"/>')
        parts.append(f'<circle class="head" cx="{x:.0f}" cy="{TOP - 31}" r="11"/>')
        parts.append(text(x, TOP - 26, "C", "initial"))
        leaving = len(stage.entering) - stage.kept
        if leaving:
            parts.append(text(x + 18, FALL + 14, f"\N{MINUS SIGN}{leaving}", "left"))
    return parts


def path_of(candidate: int, stages: Sequence[Stage]) -> Tuple[str, str]:
    """The way of a candidate: through the layers, and out at an exit where one drops it."""
    way = ""
    for stage in stages:
        if not way:
            way = f"M{ENTRY} {slot(stage.entering.index(candidate)):g}"
        before = slot(stage.entering.index(candidate))
        index = stage.ranked.index(candidate)
        after = slot(index)
        way += f"H{stage.start:g}" + curve((stage.start, before), (stage.end, after))
        if index >= stage.kept:
            return way, falling(stage, index)
    last = stages[-1]
    index = last.ranked.index(candidate)
    start = (last.end + 9, slot(index))
    end = (last.end + RANKING_GAP, TOP + RANKING_PITCH * index + 4)
    return f"{way}H{start[0]:g}" + curve(start, end), ""


def falling(stage: Stage, index: int) -> str:
    """Down and out from an exit; the lowest candidate falls first."""
    dropped = len(stage.entering) - stage.kept
    share = (len(stage.entering) - 1 - index) / dropped
    x, y = stage.end, slot(index)
    land = f"{x + 14 + 26 * share:.1f}"
    return f"M{x:g} {y:g}H{x + 9:g}Q{land} {y:g} {land} {y + 40:g}V{FALL}"


def draw_candidates(stages: Sequence[Stage]) -> List[str]:
    """A line a candidate; the answer's is the last, above the others."""
    answer = stages[-1].ranked[0]
    parts, out = [], []
    for candidate in stages[0].entering:
        way, fall = path_of(candidate, stages)
        if candidate != answer:
            parts.append(f'<path class="line" d="{way}"/>')
        if fall:
            out.append(f'<path class="leaving" d="{fall}"/>')
    way, _ = path_of(answer, stages)
    best = f'<path class="answer" d="{way}"/>'
    return [*parts, '<g mask="url(#fade)">', *out, "</g>", best]


def draw_ranking(stages: Sequence[Stage]) -> List[str]:
    """The survivors by the last classifier's score, as bars."""
    last = stages[-1]
    x, count = last.end + RANKING_GAP, len(last.ranked)
    parts = [text(x, TOP - 26, "the ranking", "count", "start")]
    for index in range(count):
        y = TOP + RANKING_PITCH * index + 1
        length = 120 * (1 - index / count) ** 1.5 + 8
        kind = "best" if index == 0 else "bar"
        parts.append(
            f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{length:.0f}" height="6" rx="2"/>'
        )
    parts.append(text(x + 134, TOP + 9, "1", "best", "start"))
    parts.append(text(x + 14, TOP + RANKING_PITCH * count, str(count), "small", "start"))
    return parts


def draw_labels(stages: Sequence[Stage]) -> List[str]:
    """The title, the entry, and what the cascade saves."""
    ran = sum(len(stage.layers) * len(stage.entering) for stage in stages)
    saved = 100 - 100 * ran / (EXITS[-1] * CANDIDATES)
    return [
        text(24, 36, "A cascade ranks 128 candidates", "title", "start"),
        text(
            24,
            56,
            "The classifier C of each exit drops 30 % of the candidates that reach it. "
            "Only the rest run the next layers.",
            "small",
            "start",
        ),
        text(ENTRY - 8, TOP + 126, "question,", "", "end"),
        text(ENTRY - 8, TOP + 144, "candidates", "", "end"),
        text(FIRST_LAYER - 10, TOP - 7, "layer", "small", "end"),
        text(
            24,
            FALL + 42,
            "The dropped candidates rank below the others; those dropped last come first.",
            "small",
            "start",
        ),
        text(
            WIDTH - 24,
            FALL + 42,
            f"Dashed: what does not run, {saved:.0f} % of the computation",
            "small",
            "end",
        ),
    ]


def draw() -> str:
    """The picture.

    Returns
    -------
    str
        SVG text.
    """
    stages = make_stages()
    fade = (
        '<defs><linearGradient id="down" x2="0" y2="1">'
        '<stop offset="0.35" stop-color="#fff"/><stop offset="1" stop-color="#000"/>'
        '</linearGradient><mask id="fade" maskUnits="userSpaceOnUse">'
        f'<rect y="{TOP}" width="{WIDTH}" height="{FALL - TOP}" fill="url(#down)"/>'
        "</mask></defs>"
    )
    description = (
        "128 candidates enter the encoder; 90, 63, 45 and 32 are left after the exits at layers "
        "4, 6, 8 and 10; the exit at layer 12 ranks them."
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{description}</title>",
        f"<style>{STYLE}</style>",
        fade,
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
        *draw_layers(stages),
        *draw_candidates(stages),
        *draw_exits(stages),
        *draw_ranking(stages),
        *draw_labels(stages),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pathlib.Path(__file__).with_name("cascade.svg").write_text(draw(), encoding="utf-8")
