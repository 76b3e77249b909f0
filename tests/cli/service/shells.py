"""What real shells offer for a line that was typed so far, with the completions that are installed below a folder."""

import os
import pty
import shlex
import subprocess
import tempfile

from waiting import wait_until

# What readline does with a word list, but for what is drawn.
BASH = """
source {file}
complete -p fenceguard >/dev/null
compopt() {{ :; }}
COMP_WORDS=({words}) COMP_CWORD={last}
_fenceguard
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

# Whatever is added as a match is written to a file too; -O, -A and -D only ask which would be.
ZSH = """
PS1='ready>' LISTMAX=1000; unsetopt beep; fpath=({folder} $fpath)
autoload -Uz compinit; compinit -u -D
compadd() {{
  local -a offered
  if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
  builtin compadd -A offered "$@"
  print -rl -- $offered >>{found}
  builtin compadd "$@"
}}
"""


def bash(share, words):
    script = BASH.format(file=shlex.quote(os.path.join(share, "bash-completion/completions/fenceguard")),
                         words=shlex.join(words), last=len(words) - 1)
    done = subprocess.run(["bash", "--norc", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if line}


def fish(share, words):
    folder = os.path.join(share, "fish/vendor_completions.d")
    line = shlex.quote(shlex.join(words[:-1]) + " " + words[-1])
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(["fish", "--no-config", "-c", f"source {folder}/fenceguard.fish; complete -C {line}"],
                              capture_output=True, text=True, check=True, env={**os.environ, "HOME": home})
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


def zsh(share, words):
    """Typed at a terminal, because zsh completes nowhere else."""
    with tempfile.TemporaryDirectory() as home:
        found, done = os.path.join(home, "found"), os.path.join(home, "done")
        with open(os.path.join(home, ".zshrc"), "w", encoding="utf-8") as file:
            file.write(ZSH.format(folder=os.path.join(share, "zsh/site-functions"), found=found))
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        process = subprocess.Popen(["zsh", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                   env={**os.environ, "ZDOTDIR": home, "HOME": home, "TERM": "dumb"})
        os.close(theirs)
        try:
            # What is typed before its prompt is the terminal's, not zsh's.
            shown = []
            wait_until(lambda: b"ready>" in read_more(ours, shown), what="zsh's prompt")
            # One line to complete, then taken back; and one that says that this was done.
            os.write(ours, f"{' '.join(words)}\t\x15print >{done}\n".encode())
            wait_until(lambda: os.path.exists(done) or not read_more(ours, shown), what="zsh's answer")
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        if not os.path.exists(found):
            return set()
        with open(found, encoding="utf-8") as file:
            return {line.strip() for line in file if line.strip()}


def read_more(terminal, shown):
    """All that the terminal has shown so far; read at once, so that it does not fill up."""
    try:
        shown.append(os.read(terminal, 65536))
    except BlockingIOError:
        pass
    return b"".join(shown)
