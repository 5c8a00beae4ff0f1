# SPDX-License-Identifier: GPL-2.0
"""Plots of measurements (qp/sweeps.py), as SVG.

A pure function: the same data give the same SVG text each time. A plot is described by a dict,
which is also written beside it as JSON:

    title   over the plot
    x, y    labels of the axes; y may be logarithmic ("log": true) or begin at 0
            ("from_zero": true)
    at      labels of x, one for each point: points are evenly spaced, so that powers of
            two are too. "labels": N shows about N of them
    series  {name: [a value for each point, or null]}

Other keys describe the measurement, and are not drawn.

pygal draws. It is not in the build root, since only this module needs it: three small packages of
the same archive, without scripts, are unpacked in the cache.
"""

import math
import re
import shutil
import sys

from qp import archive, base, cache

PACKAGES = ("python3-pygal", "python3-importlib-metadata", "python3-zipp")
# Maximum bytes of a picture, since accepted ones are in the repository.
LARGEST = 60_000
# With so many points the line has no dots.
MANY = 30
COLOURS = ("#1f5fa8", "#d1650c", "#2b8a3e", "#8f3fa8", "#5c5c5c")


def library():
    """pygal, from the cache or the archive."""

    def build(folder):
        archive.update()
        for name in PACKAGES:
            versions = archive.versions(name)
            if not versions:
                raise base.Fail(f"the archive lacks {name}", "use a complete mirror of Debian 13 in /etc/apt")
            package = archive.download(name, versions[0])
            base.step(f"unpacking {package.name}", ["dpkg-deb", "-x", package, folder / "new"], quiet=True)
            package.unlink()
        shutil.rmtree(folder / "tree", ignore_errors=True)
        (folder / "new").rename(folder / "tree")

    folder = cache.entry(base.CACHE / "plots" / base.digest(*PACKAGES), build)
    path = str(folder / "tree/usr/lib/python3/dist-packages")
    if path not in sys.path:
        sys.path.append(path)
    import pygal

    return pygal


def check(plot):
    """Raises a Fail if the data are not a valid plot."""
    short = [name for name, values in plot["series"].items() if len(values) != len(plot["at"])]
    if short:
        raise base.Fail(f"{plot['title']}: no value for each place: {', '.join(short)}")
    values = known(plot)
    if not values:
        raise base.Fail(f"{plot['title']}: nothing was measured")
    if plot.get("log") and min(values) <= 0:
        raise base.Fail(f"{plot['title']}: 0 has no logarithm")


def known(plot):
    """All values that are not null."""
    return [value for line in plot["series"].values() for value in line if value is not None]


def decades(values):
    """Powers of ten, from below the least value to above the largest."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10**power for power in range(low, max(high, low + 1) + 1)]


def shown(value):
    """A number in readable form."""
    if value is None:
        return ""
    if value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:.2g}" if abs(value) < 0.01 else f"{value:,.0f}".replace(",", " ")


def svg(plot, pygal=None):
    """The picture of a plot."""
    check(plot)
    pygal = pygal or library()
    style = pygal.style.Style(
        background="white",
        plot_background="white",
        foreground="#333",
        foreground_strong="#111",
        foreground_subtle="#999",
        font_family="sans-serif",
        title_font_size=17,
        label_font_size=13,
        major_label_font_size=13,
        legend_font_size=13,
        colors=COLOURS,
    )
    settings = {
        "style": style,
        "title": plot["title"],
        "x_title": plot["x"],
        "y_title": plot["y"],
        "width": 860,
        "height": 430,
        "legend_at_bottom": True,
        "legend_at_bottom_columns": 3,
        "logarithmic": plot.get("log", False),
        "value_formatter": shown,
        "show_minor_x_labels": False,
        "show_dots": len(plot["at"]) < MANY,
        "dots_size": 3,
        "truncate_legend": -1,
        "truncate_label": -1,
        "js": (),
        "disable_xml_declaration": True,
    }
    if plot.get("from_zero"):
        settings["range"] = (0, 1.1 * max(known(plot)))
    if plot.get("log"):
        settings["y_labels"] = decades(known(plot))
    chart = pygal.Line(**settings)
    # The same text for the same data.
    chart.uuid = "plot"
    chart.x_labels = [str(label) for label in plot["at"]]
    chart.x_labels_major_every = max(1, len(plot["at"]) // plot.get("labels", len(plot["at"])))
    for name, values in plot["series"].items():
        chart.add(name, values)
    # Without the date, and without scripts.
    text = re.sub(r"<!--.*?-->|<script.*?</script>", "", chart.render(is_unicode=True), flags=re.DOTALL) + "\n"
    if len(text) > LARGEST:
        raise base.Fail(f"{plot['title']}: a picture of {len(text)} bytes")
    return text
