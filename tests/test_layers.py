"""The arrows between modules point one way, and some things have one home.

The tree is read with ``ast``, never imported, so that an import inside a function or under
``TYPE_CHECKING`` counts like any other.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A module may import what its row names and all that those may import. The longest name that fits is a
# module's row, so a package needs one row and its modules may import each other. No row, no import.
ARROWS = {
    "planner.__main__": ["planner.cli"],
    "planner.cli": [
        "planner.arguments",
        "planner.backends.files",
        "planner.generate",
        "planner.modelling",
        "planner.scenario",
        "planner.telemetry",
    ],
    "planner.modelling": ["planner.arguments", "planner.printing"],
    "planner.printing": ["planner.report"],
    "planner.arguments": ["planner.scenario"],
    "planner.generate": ["planner.scenario"],
    "planner.scenario": ["planner.epoch", "planner.traces"],
    "planner.traces": ["planner.edit", "planner.tables"],
    "planner.report": ["planner.epoch"],
    "planner.telemetry": ["planner.model"],
    "planner.backends.files": ["planner.scenario"],
    "planner.epoch": [
        "planner.backends",
        "planner.explain",
        "planner.formulate",
        "planner.predict",
        "planner.validate",
        "solvers.thresholds",
    ],
    "planner.explain": ["planner.formulate", "planner.validate"],
    "planner.formulate": ["planner.edit", "planner.predict", "solvers"],
    "planner.predict": ["planner.plan", "planner.tables"],
    "planner.validate": ["planner.predict"],  # solver-free: the second opinion on every plan
    # The protocol and its helpers; each backend has a row above.
    "planner.backends": ["planner.formulate", "planner.tables", "planner.validate"],
    "planner.edit": ["planner.plan"],
    "planner.plan": ["planner.policy"],
    "planner.policy": ["planner.model"],
    "planner.model": ["planner.gpu_models", "planner.quantities"],
    "planner.tables": ["planner.quantities"],  # CSV, read defensively
    "planner.gpu_models": ["planner.errors"],
    "planner.quantities": ["planner.errors"],
    "planner.errors": ["planner"],
    "planner": [],  # holds the version
    "solvers": ["solvers.run"],
    "solvers.run": ["solvers.engines", "solvers.mend", "solvers.record", "solvers.workers"],
    "solvers.record": ["solvers.check", "solvers.child", "solvers.dump"],
    "solvers.engines": [
        "solvers.bound",
        "solvers.child",
        "solvers.cpsat",
        "solvers.memory",
        "solvers.mip",
        "solvers.node_exact",
        "solvers.patterns",
        "solvers.search",
    ],
    "solvers.memory": [],
    "solvers.patterns": [
        "solvers.bound",
        "solvers.guide",
        "solvers.mend",
        "solvers.node_generation",
        "solvers.node_rounding",
        "solvers.repair",
        "solvers.shortfall",
    ],
    "solvers.guide": [
        "solvers.bound",
        "solvers.incumbent",
        "solvers.makespan_ranges",
        "solvers.memory",
        "solvers.sliced",
    ],
    "solvers.shortfall": ["solvers.kernels"],
    "solvers.node_rounding": ["solvers.node_master"],
    "solvers.node_generation": ["solvers.node_master", "solvers.threads"],
    "solvers.threads": [],
    "solvers.sliced": ["solvers.slice_packing", "solvers.urgent"],
    "solvers.slice_packing": ["solvers.mend", "solvers.slices"],
    "solvers.slices": ["solvers.patterns_master", "solvers.slice_program"],
    "solvers.slice_program": [],
    "solvers.urgent": ["solvers.spots"],
    "solvers.node_master": ["solvers.node_columns"],
    "solvers.node_columns": ["solvers.kernels", "solvers.node_shapes"],
    "solvers.kernels": ["solvers.contents", "solvers.facts"],
    "solvers.contents": ["solvers.problem"],
    "solvers.patterns_bound": ["solvers.movers", "solvers.patterns_master"],
    "solvers.patterns_master": ["solvers.relaxation"],
    "solvers.movers": ["solvers.relaxation"],
    "solvers.relaxation": ["solvers.slots"],
    "solvers.slots": ["solvers.entries"],
    "solvers.entries": ["solvers.stocks"],
    "solvers.stocks": ["solvers.kernels", "solvers.kins"],
    "solvers.kins": ["solvers.facts"],
    "solvers.parts": ["solvers.deal", "solvers.last_end", "solvers.run"],
    "solvers.deal": ["solvers.facts"],
    "solvers.search": ["solvers.greedy"],
    "solvers.greedy": ["solvers.check", "solvers.spots"],
    "solvers.spots": ["solvers.spread"],
    "solvers.spread": ["solvers.terms"],
    "solvers.terms": ["solvers.state"],
    "solvers.state": ["solvers.sharing"],
    "solvers.sharing": ["solvers.facts"],
    "solvers.facts": ["solvers.problem"],
    "solvers.cpsat": ["solvers.check", "solvers.cpsat_rules", "solvers.cpsat_terms", "solvers.workers"],
    "solvers.cpsat_rules": ["solvers.cpsat_model"],
    "solvers.cpsat_terms": ["solvers.cpsat_model"],
    "solvers.cpsat_model": ["solvers.modes", "solvers.twins", "solvers.view"],
    "solvers.twins": ["solvers.problem"],
    "solvers.view": ["solvers.measure", "solvers.modes"],
    "solvers.mip": ["solvers.check", "solvers.mip_model", "solvers.workers"],
    "solvers.mip_model": ["solvers.modes"],
    "solvers.modes": ["solvers.columns"],
    "solvers.bound": ["solvers.state"],
    "solvers.child": ["solvers.problem"],
    "solvers.dump": ["solvers.problem"],
    "solvers.workers": [],
    "solvers.columns": ["solvers.problem"],
    "solvers.check": ["solvers.measure"],  # the referee shares no code with the engines
    "solvers.measure": ["solvers.problem"],
    "solvers.problem": ["solvers.warm"],
    "solvers.warm": [],
    "solvers.mend": ["solvers.check"],
    "solvers.incumbent": ["solvers.problem"],
    "solvers.node_exact": [
        "solvers.bound",
        "solvers.check",
        "solvers.makespan_ranges",
        "solvers.node_program",
        "solvers.search",
    ],
    "solvers.node_program": ["solvers.node_choice", "solvers.node_shapes", "solvers.patterns_bound"],
    "solvers.node_shapes": ["solvers.problem"],
    "solvers.node_choice": ["solvers.node_enumeration"],
    "solvers.node_enumeration": ["solvers.node_filling"],
    "solvers.node_filling": ["solvers.node_items"],
    "solvers.node_items": ["solvers.facts"],
    "solvers.repair": ["solvers.cpsat", "solvers.facts", "solvers.last_end"],
    "solvers.last_end": ["solvers.twins"],
    "solvers.thresholds": ["solvers.in_time", "solvers.run"],
    "solvers.in_time": ["solvers.facts"],
    "solvers.makespan_ranges": ["solvers.in_time", "solvers.patterns_bound"],
}

# Imported nowhere else than here.
HOMES = {
    "pynvml": {"planner.telemetry"},
    "numba": {"solvers.kernels.jit"},
    "pickle": set(),
    "cPickle": set(),
    "cloudpickle": set(),
    "dill": set(),
    "joblib": set(),
    "marshal": set(),
    "shelve": set(),
}

FORBIDDEN_CALLS = {
    "os.system": "runs a shell",
    "os.popen": "runs a shell",
    "subprocess.getoutput": "runs a shell",
    "subprocess.getstatusoutput": "runs a shell",
    "asyncio.create_subprocess_shell": "runs a shell",
    "pd.read_pickle": "reads a pickle",
    "pandas.read_pickle": "reads a pickle",
}


def modules(root):
    """Name -> path of every module of the two packages under ``root``."""
    found = {}
    for package in ("planner", "solvers"):
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, path, known):
    """Line and full name of all that the module imports; an imported module, else the module it is from."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*up, node.module] if node.module else up)
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield node.lineno, whole if whole in known else source


def row(name, arrows):
    """The longest name in the table that is the module or a package around it."""
    while name not in arrows and "." in name:
        name = name.rpartition(".")[0]
    return name


def reachable(start, arrows):
    """All rows that the arrows lead to from ``start``."""
    seen, todo = set(), [start]
    while todo:
        new = set(arrows[todo.pop()]) - seen
        seen |= new
        todo += new
    return seen


def wrong_arrows(root, arrows):
    """One sentence for every import against the table, and for every module without a row of its own."""
    known = modules(root)
    wrong = []
    for name, path in known.items():
        home = row(name, arrows)
        if home != name and home in ("planner", "solvers"):
            wrong.append(f"{name} has no row in ARROWS")
            continue
        allowed = reachable(home, arrows) | {home}
        for line, target in imports(name, path, known):
            if target.split(".")[0] in ("planner", "solvers") and row(target, arrows) not in allowed:
                wrong.append(f"{name}:{line} must not import {target}")
    return wrong


def strays(root):
    """One sentence for every library, call or shell that is used outside its home."""
    known = modules(root)
    wrong = []
    for name, path in known.items():
        for line, target in imports(name, path, known):
            library = target.split(".")[0]
            if name not in HOMES.get(library, {name}):
                wrong.append(f"{name}:{line} must not import {library}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                wrong += [f"{name}:{node.lineno} {why}" for why in faults(name, node)]
    return wrong


def faults(name, call):
    """What is wrong with one call, if anything."""
    called = ast.unparse(call.func)
    if called == "print" and name != "planner.printing":
        yield "prints; only the command line does"
    if called in FORBIDDEN_CALLS:
        yield FORBIDDEN_CALLS[called]
    if called.endswith(".to_pickle"):
        yield "writes a pickle"
    for keyword in call.keywords:
        if keyword.arg in ("shell", "allow_pickle") and ast.unparse(keyword.value) != "False":
            yield f"passes {keyword.arg}={ast.unparse(keyword.value)}"


@pytest.fixture
def tree(tmp_path):
    """Write a made-up tree, source by module path, and return its root."""

    def write(**sources):
        for name, source in sources.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return tmp_path

    return write


def test_the_table_has_no_circle():
    assert list(TopologicalSorter(ARROWS).static_order())


def test_every_import_follows_an_arrow():
    assert wrong_arrows(ROOT, ARROWS) == []


def test_solvers_reach_no_planner_module():
    assert {r for r in reachable("solvers", ARROWS) if r.startswith("planner")} == set()


def test_the_checks_of_a_plan_share_no_code():
    shared = reachable("planner.validate", ARROWS) & (reachable("solvers.check", ARROWS) | {"solvers.check"})
    assert shared == set()


def test_libraries_prints_and_shells_stay_at_home():
    assert strays(ROOT) == []


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("planner__model", "from planner import epoch", "planner.model:1 must not import planner.epoch"),
        ("planner__model", "from . import epoch", "planner.model:1 must not import planner.epoch"),
        ("planner__model", "from .epoch import run", "planner.model:1 must not import planner.epoch"),
        ("planner__model", "def f():\n    import planner.epoch", "planner.model:2 must not import planner.epoch"),
        ("planner__predict__usage", "from ..epoch import a", "planner.predict.usage:1 must not import planner.epoch"),
        ("planner__validate", "import solvers.check", "planner.validate:1 must not import solvers.check"),
        ("solvers__greedy", "from planner.model import Job", "solvers.greedy:1 must not import planner.model"),
        ("planner__helpers", "", "planner.helpers has no row in ARROWS"),
    ],
)  # fmt: skip
def test_an_import_against_the_arrows_is_found(tree, module, source, expected):
    assert wrong_arrows(tree(planner__epoch="", **{module: source}), ARROWS) == [expected]


def test_an_import_along_the_arrows_is_not_found(tree):
    root = tree(
        planner__epoch="from planner.predict import usage\nfrom .model import Job",
        planner__predict__usage="from .graph import features\nimport numpy",
        planner__predict__graph="from planner.model import Job",
        planner__model="",
    )
    assert wrong_arrows(root, ARROWS) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pynvml", "planner.model:1 must not import pynvml"),
        ("from numba import njit", "planner.model:1 must not import numba"),
        ("import pickle", "planner.model:1 must not import pickle"),
        ("np.load(path, allow_pickle=True)", "planner.model:1 passes allow_pickle=True"),
        ("frame.to_pickle(path)", "planner.model:1 writes a pickle"),
        ("print(1)", "planner.model:1 prints; only the command line does"),
        ("subprocess.run(line, shell=True)", "planner.model:1 passes shell=True"),
        ("subprocess.run(line, shell=yes)", "planner.model:1 passes shell=yes"),
        ("os.system(line)", "planner.model:1 runs a shell"),
    ],
)
def test_a_stray_is_found(tree, source, expected):
    assert strays(tree(planner__model=source)) == [expected]


def test_what_is_at_home_is_not_a_stray(tree):
    root = tree(
        planner__telemetry="import pynvml",
        planner__printing="print(1)",
        solvers__kernels__jit="from numba import njit",
        planner__model="console.print(1)\nsubprocess.run(line, shell=False)",
    )
    assert strays(root) == []
