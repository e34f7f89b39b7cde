"""`python -m tests.recording`: a real run of `keep demo` in a terminal, drawn as docs/pictures/demo.svg.

`draw` is pure: the same output is the same picture. Only what the demo uses is understood: colours, bold, plain lines.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

PICTURE: Final = Path(__file__).parents[1] / "docs" / "pictures" / "demo.svg"

_COLUMNS: Final = 104
_WIDE: Final = 7.8
_HIGH: Final = 18
_EDGE: Final = 18
_COLOURS: Final = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "35": "#d2a8ff",
    "36": "#79c0ff",
}
_PLAIN: Final = "#d0d7de"
_GROUND: Final = "#0d1117"
_ESCAPE: Final = re.compile(r"\x1b\[([0-9;]*)m")


def draw(output: str) -> str:
    """What a terminal showed, with its colours, as an SVG."""
    lines = output.replace("\r\n", "\n").rstrip("\n").split("\n")
    width = round(_COLUMNS * _WIDE + 2 * _EDGE)
    height = len(lines) * _HIGH + 2 * _EDGE
    texts = [_line(line, _EDGE + (number + 0.75) * _HIGH) for number, line in enumerate(lines) if line]
    font = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            f' font-family="{font}" font-size="13" role="img" aria-label="keep demo in a terminal">',
            f'<rect width="{width}" height="{height}" rx="8" fill="{_GROUND}"/>',
            *texts,
            "</svg>",
            "",
        ]
    )


def _line(line: str, y: float) -> str:
    spans: list[str] = []
    colour, weight, at = _PLAIN, "", 0
    for place, part in enumerate(_ESCAPE.split(line)):
        if place % 2:
            for code in part.split(";"):
                colour = _COLOURS.get(code, _PLAIN if code in ("", "0") else colour)
                weight = ' font-weight="bold"' if code == "1" else "" if code in ("", "0") else weight
        elif part:
            # Each span says how wide it is: columns stay columns, whatever the font.
            x, wide = _EDGE + at * _WIDE, len(part) * _WIDE
            length = f' textLength="{wide:.1f}" lengthAdjust="spacingAndGlyphs"'
            spans.append(
                f'<tspan x="{x:.1f}" fill="{colour}"{weight}{length} xml:space="preserve">{escape(part)}</tspan>'
            )
            at += len(part)
    return f'<text y="{y:.1f}">{"".join(spans)}</text>'


def record() -> str:
    """What `keep demo` shows in a terminal."""
    keep = Path(sys.executable).with_name("keep")
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = pty.openpty()
        env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"PATH": f"{keep.parent}:{os.environ['PATH']}"}
        with subprocess.Popen(["keep", "demo"], cwd=name, env=env, stdout=theirs, stdin=subprocess.DEVNULL) as process:
            os.close(theirs)
            parts: list[bytes] = []
            while part := _read(ours):
                parts.append(part)
        os.close(ours)
        assert process.returncode == 0, b"".join(parts)
        return b"".join(parts).decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        # That is how a terminal says that nobody is at its other end any more.
        return b""


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw("\x1b[32m$\x1b[0m keep demo\n" + record()), "utf-8")


if __name__ == "__main__":
    main()
