"""What `pip install .` gives: the wheel's contents in a fresh virtual environment, with Dash and without."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.messages import says
from tests.test_structure import ROOT, imports, modules, repository_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: Entries of site-packages that only the app needs, by how their names begin.
APP_ONLY = ("_brotli", "brotli", "dash", "flask", "waitress")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in repository_files():
        target = folder / "source" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source"))
    (built,) = folder.glob("aotlens-*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of a fresh environment with the wheel and the packages that this one has, but without Dash's.

    Dash's are in a folder beside it, `for_the_app`, which `run` puts on the path where it is asked to.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=120)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    packages, for_the_app = folder / "packages", scripts.parent / "for_the_app"
    packages.mkdir()
    for_the_app.mkdir()
    for home in {*site.getsitepackages(), sysconfig.get_path("purelib")}:
        for path in Path(home).iterdir() if Path(home).is_dir() else ():
            ours = path.name.startswith(("aotlens", "__editable__")) or path.suffix == ".pth"
            target = (for_the_app if path.name.startswith(APP_ONLY) else packages) / path.name
            if not ours and not target.exists():
                target.symlink_to(path)
    pip("--python", str(scripts / "python"), "install", "--no-deps", "--no-index", str(wheel))
    query = [scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    purelib = subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    (Path(purelib) / "others.pth").write_text(f"{packages}\n")
    return scripts


def run(scripts: Path, name: str, *arguments: str, with_dash: bool = False) -> subprocess.CompletedProcess[str]:
    """A command of the environment, away from the sources."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if with_dash:
        environment["PYTHONPATH"] = str(scripts.parent / "for_the_app")
    return subprocess.run(
        [scripts / name, *arguments],
        cwd=scripts,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_the_library_and_its_data_are_installed(scripts: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import aotlens, aotlens.plots; from aotlens.checkpoints import bundled_folder\n"
        "home = Path(aotlens.__file__).parent\n"
        "print('site-packages' in str(home), len(list(bundled_folder().glob('*/model.safetensors'))),\n"
        "      len(list((home / 'distill' / 'bundled').glob('*.safetensors'))),\n"
        "      len(list((home / 'denoise' / 'bundled').glob('*.safetensors'))),\n"
        "      len(list((home / 'heads' / 'bundled').glob('*.safetensors'))),\n"
        "      len(list((home / 'train' / 'recipes').glob('*.toml'))))"
    )
    found = run(scripts, "python", "-c", code)
    counts = [
        len(list((ROOT / "aotlens" / folder).glob(pattern)))
        for folder, pattern in (
            ("checkpoints/bundled", "*/model.safetensors"),
            ("distill/bundled", "*.safetensors"),
            ("denoise/bundled", "*.safetensors"),
            ("heads/bundled", "*.safetensors"),
            ("train/recipes", "*.toml"),
        )
    ]
    assert found.stdout.split() == ["True", *map(str, counts)], found.stderr
    assert min(counts) > 0
    out = tmp_path / "report.html"
    made = run(scripts, "aotlens", "report", "novels-1l-mhsa", "-o", str(out), "--sections", "maps,card")
    assert made.returncode == 0 and "aotlens-heads" in out.read_text(encoding="utf-8"), made.stderr


def test_without_dash_the_app_says_what_to_install(scripts: Path) -> None:
    done = run(scripts, "aotlens-app", "--help")
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    says(done.stderr, "pip install 'aotlens[app]'")


@pytest.mark.slow
def test_with_dash_the_app_starts(scripts: Path) -> None:
    """All of it is imported, and `aotlens-app --help` is run in the same process."""
    code = "import sys, app.factory, app.start; sys.argv[1:] = ['--help']; sys.exit(app.start.main())"
    done = run(scripts, "python", "-c", code, with_dash=True)
    assert done.returncode == 0 and "--checkpoints" in done.stdout, done.stderr


def test_the_wheel_has_every_file_of_the_app_and_no_other_package(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path, "zip")
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".dist-info"} == {"aotlens", "app"}
    packaged = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    ours = {str(path.relative_to(ROOT)) for path in repository_files()}
    expected = {name for name in ours if name.startswith(("app/", "aotlens/")) and not name.endswith(".gitkeep")}
    assert expected - packaged == set()


def test_the_library_needs_nothing_of_the_app() -> None:
    names = {Requirement(line).name.replace("-", "_") for line in PROJECT["optional-dependencies"]["app"]}
    assert {"dash", "flask", "waitress"} <= names
    wrong = [
        str(each) for path in modules("aotlens") for each in imports(path) if each.module.partition(".")[0] in names
    ]
    assert not wrong, "\n".join(wrong)
