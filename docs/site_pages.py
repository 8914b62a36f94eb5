"""Hooks of the documentation site: pages from the repository's root and the code, links, a gallery.

README.md, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md are pages of the site. A link to a file of
the repository that is not a page keeps its text. The gallery has real reports of small studies, run
by the build.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import flipmeter as fm

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?<!\!)\[([^\]\n]+)\]\(([^)\s]+)\)")
FOR_DEVELOPERS = ("adr/", "calibration.md", "log.md")
"""Pages that others link to, and that a search does not find."""
RATERS = ["sim/honest", "sim/first-slot", "sim/biased-noisy"]
GALLERY: dict[str, tuple[str, dict[str, Any]]] = {
    "raters": (
        "Three simulated raters on the bundled reviews",
        {"models": RATERS, "test_size": 60, "repeats": 2, "base": {"shots": 1}},
    ),
    "configurations": (
        "Two raters under several prompts: choose axes, split by a factor, pick configurations",
        {
            "models": ["sim/honest", "sim/biased-noisy"],
            "test_size": 60,
            "probes": ["label_order", "demo_order"],
            "vary": {
                "label_format": ["letter", "natural_language"],
                "mood": ["interrogative"],
                "shots": [1],
            },
        },
    ),
}
"""Studies of simulated raters, so that a build needs no weights; what is planted is known."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root and the gallery."""
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relinked(text, ROOT)))
    sys.path.insert(0, str(DOCS))
    from cli_reference import reference

    files.append(File.generated(config, "reference/cli.md", content=reference()))
    lines = ["# Gallery of reports", "", "Real reports, made when this site was built.", ""]
    lines += ["![Configurations of two raters](images/configurations.png)", ""]
    for name, (about, study) in GALLERY.items():
        files.append(File.generated(config, f"gallery/{name}.html", content=report(name, study)))
        lines.append(f"- [{about}](gallery/{name}.html)")
    files.append(File.generated(config, "gallery.md", content="\n".join(lines) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files of the repository to the pages that they are here."""
    if page.file.src_uri.startswith(FOR_DEVELOPERS):
        page.meta["search"] = {"exclude": True}
    source = page.file.abs_src_path
    return relinked(markdown, Path(source).parent) if source else markdown


def report(name: str, study: dict[str, Any]) -> str:
    """The report of a study that is run on the spot."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = fm.Study(name=name, datasets=["reviews"], **study).run(
            place / "run", store=place / "replies.sqlite", is_quiet=True, anyway=True
        )
        run.report(place / "report.html")
        return (place / "report.html").read_text(encoding="utf-8")


def relinked(markdown: str, folder: Path) -> str:
    """The links of a page, seen from the site instead of from a folder of the repository."""
    return LINK.sub(lambda link: _relinked(link, folder), markdown)


def _relinked(link: re.Match[str], folder: Path) -> str:
    text, target = link[1], link[2]
    path, _, anchor = target.partition("#")
    if "://" in target or target.startswith("mailto:") or not path:
        return link[0]
    found = Path(os.path.normpath(folder / path))
    place = _place(found)
    if place is None:
        return text
    start = "." if folder == ROOT else str(folder.relative_to(DOCS))
    where = os.path.relpath(place, start)
    return f"[{text}]({where}{'#' + anchor if anchor else ''})"


def _place(path: Path) -> str | None:
    """The page that a file of the repository is here, None if it is none."""
    if path.is_relative_to(DOCS) and path.suffix == ".md":
        return str(path.relative_to(DOCS))
    return ROOT_PAGES.get(str(path.relative_to(ROOT))) if path.is_relative_to(ROOT) else None
