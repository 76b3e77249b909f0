"""postgres_tree.py FOLDER: makes a tree of PostgreSQL's own files in which the extension 'fenceguard' is installed as well.

The newest PostgreSQL that has its server headers; it finds its files by where its programs are, so nothing outside of the
folder changes and no right is needed. Its programs are in FOLDER/bin. The extension is built from sql/postgres/fast.
"""

import glob
import os
import shutil
import subprocess
import sys

EXTENSION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sql", "postgres", "fast")


def newest_pg_config():
    found = [path for path in glob.glob("/usr/lib/postgresql/*/bin/pg_config")
             if os.path.exists(os.path.join(os.path.dirname(path), "..", "lib", "pgxs", "src", "makefiles", "pgxs.mk"))
             and os.path.exists(os.path.join(os.path.dirname(path), "postgres"))]
    if not found:
        sys.exit("no PostgreSQL is installed with its server headers (Debian: postgresql-server-dev-15 or -17)")
    return max(found, key=lambda path: int(path.split("/")[4]))


def run(*command, folder=None):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout.strip()


def link_all(source, target):
    """A folder with a link for each entry of another one, and folders of its own for folders."""
    os.makedirs(target, exist_ok=True)
    for entry in os.scandir(source):
        place = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            link_all(entry.path, place)
        elif not os.path.lexists(place):
            os.symlink(entry.path, place)


def main(folder):
    pg_config = newest_pg_config()
    shutil.rmtree(folder, ignore_errors=True)
    build = os.path.join(folder, "build")
    os.makedirs(build)
    make = ["make", "-f", os.path.join(EXTENSION, "Makefile"), f"PG_CONFIG={pg_config}"]
    run(*make, "-j2", folder=build)
    tree = os.path.join(folder, "tree")
    run(*make, "install", f"DESTDIR={tree}", folder=build)
    for name in ("--pkglibdir", "--sharedir"):
        place = run(pg_config, name)
        link_all(place, tree + place)
    # A program is found where it is, not where a link leads.
    programs = run(pg_config, "--bindir")
    shutil.copytree(programs, tree + programs, symlinks=True)
    os.symlink(tree + programs, os.path.join(folder, "bin"))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
