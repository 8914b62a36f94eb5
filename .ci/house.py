"""How large the house is: prints what the source counts, and enforces nothing.

.venv/bin/python .ci/house.py [FOLDER]
"""

import ast
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SIZES = (0, 50, 150, 600, 10**6)


def named(tree: ast.Module, package: str) -> set[str]:
    """Modules and names that a file imports, in full."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            above = package.split(".")[: -node.level or None] if node.level else []
            module = ".".join([*above, node.module]) if node.level else node.module
            found |= {module, *(f"{module}.{one.name}" for one in node.names)}
    return found


def options(trees: dict[str, ast.Module], root: str) -> tuple[int, int]:
    """Verbs on the command line, and different options of all verbs."""
    verbs, flags = 0, 0
    for module, tree in trees.items():
        if not module.startswith(f"{root}.cli"):
            continue
        for node in ast.walk(tree):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr == "Option" and ast.unparse(node.func.value) == "typer":
                flags += 1
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("FIRST", "VERBS"):
                verbs += sum(isinstance(one, ast.Constant) for one in ast.walk(node.value))
    return verbs, flags


def main(folder: Path) -> None:
    files = sorted(folder.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {
        ".".join(path.with_suffix("").relative_to(folder.parent).parts).removesuffix(
            ".__init__"
        ): ast.parse(text)
        for path, text in texts.items()
    }
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    defined = [node for node in nodes if isinstance(node, DEFINED)]
    functions = [node for node in defined if not isinstance(node, ast.ClassDef)]
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    used += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
    once = sum(used[node.name] == 1 for node in functions)
    importers: Counter[str] = Counter()
    for module, tree in trees.items():
        importers.update((named(tree, module) & trees.keys()) - {module})
    reexports = sum(
        len(node.names)
        for module, tree in trees.items()
        if f"{folder.parent / module.replace('.', '/')}/__init__.py" in map(str, files)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
    )
    lines = {path: text.count("\n") for path, text in texts.items()}
    sizes = Counter(
        next(f"{low}-{high}" for low, high in pairwise(SIZES) if low <= n < high)
        for n in lines.values()
    )
    others = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".typed"}
    ]
    verbs, flags = options(trees, folder.name)
    long = [node for node in functions if (node.end_lineno or 0) - node.lineno >= 80]
    counts = {
        "lines": sum(lines.values()),
        "statements": sum(isinstance(node, ast.stmt) for node in nodes),
        "modules": len(files),
        "modules by lines": ", ".join(f"{key}: {sizes[key]}" for key in sizes),
        "modules with one importer": sum(importers[module] == 1 for module in trees),
        "functions and classes": len(defined),
        "functions named in one place": f"{once} ({once / max(len(functions), 1):.0%})",
        "functions over 80 lines": ", ".join(node.name for node in long) or "none",
        "names imported by packages": reexports,
        "verbs": verbs,
        "declared options": flags,
        "lines that are not Python": sum(path.read_bytes().count(b"\n") for path in others),
    }
    for name, count in counts.items():
        print(f"{name:30} {count:,}" if isinstance(count, int) else f"{name:30} {count}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "src" / "flipmeter")
