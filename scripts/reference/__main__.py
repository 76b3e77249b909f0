"""Writes into a folder what an installation says of the commands, as it follows from the binary's own --help: man
pages, completions for bash, zsh and fish, and the example configuration.

    python3 scripts/reference build/release/fenceguard FOLDER

CMake does it for an installation (cmake/FenceguardReference.cmake).
"""

import gzip
import pathlib
import sys

import completion
import man_pages
from program import Program


def main(binary, folder):
    program = Program(binary)
    files = {"bash/fenceguard": completion.bash(program), "zsh/_fenceguard": completion.zsh(program),
             "fish/fenceguard.fish": completion.fish(program), "fenceguard.ini": program.example}
    files = {name: text.encode() for name, text in files.items()}
    files |= {f"man1/{name}.1.gz": gzip.compress(text.encode(), mtime=0) for name, text in man_pages.pages(program).items()}
    for name, content in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
