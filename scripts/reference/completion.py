"""Completions for three shells. They run nothing: what they know is written into them."""

HEAD = "completion of fenceguard's commands and options, made from its --help by scripts/reference\n"


def first_words(program):
    """(word, summary) of each first word: a command, or a group of them with the names of its commands."""
    groups, found = program.groups(), {}
    for command in program.commands:
        word = command.name.split()[0]
        names = ", ".join(one.name.split()[1] for one in groups.get(word, []))
        found[word] = f"{word} {names}" if names else command.summary
    return list(found.items())


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


BASH = """
_fenceguard() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" command="${{COMP_WORDS[1]:-}}" first=2 i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W {words} -- "$word")
    return
  fi
  case "$command" in
{groups}
  esac
  for ((i = first; i < COMP_CWORD; ++i)); do
    [[ "${{COMP_WORDS[i]}}" == -- ]] || continue
    if ((i + 1 == COMP_CWORD)); then mapfile -t COMPREPLY < <(compgen -c -- "$word"); else compopt -o default; fi
    return
  done
  # '--config=FILE' is three words.
  if [[ "$before" == = ]]; then before="${{COMP_WORDS[COMP_CWORD - 2]}}"; fi
  if [[ "$word" == = ]]; then before="${{COMP_WORDS[COMP_CWORD - 1]}}" word=; fi
  case "$before" in
    {files})
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return ;;
{items}
    {values}) return ;;
  esac
  case "$command" in
{options}
  esac
}}
complete -F _fenceguard fenceguard
"""

BASH_REPLY = """    {name}) mapfile -t COMPREPLY < <(compgen -W {words} -- "$word") ;;"""

BASH_GROUP = """    {name})
      if ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W {words} -- "$word")
        return
      fi
      command+=" ${{COMP_WORDS[2]}}" first=3 ;;"""


def bash(program):
    placeholders = program.placeholders()
    groups = "\n".join(BASH_GROUP.format(name=group, words=quoted(" ".join([c.name.split()[1] for c in commands] + ["--help"])))
                       for group, commands in program.groups().items())
    options, items = [], []
    for command in program.commands:
        names = [name for name, _ in command.items]
        words = names + [flag for flag, _, _ in command.flags] + ["--help"]
        options.append(BASH_REPLY.format(name=quoted(command.name), words=quoted(" ".join(words))))
        if names:
            # 'Scenarios' are the values of --scenario, which may be left out in front of the first argument.
            items.append(BASH_REPLY.format(name=f"--{command.title.lower().removesuffix('s')}", words=quoted(" ".join(names)))
                         .replace(" ;;", "; return ;;"))
    return f"# {HEAD}" + BASH.format(
        words=quoted(" ".join([word for word, _ in first_words(program)] + ["--help", "--version"])), groups=groups,
        files=" | ".join(flag for flag, placeholder in placeholders.items() if placeholder == "FILE"),
        values=" | ".join(flag for flag, placeholder in placeholders.items() if placeholder not in ("", "FILE")),
        items="\n".join(items), options="\n".join(options))


def zsh_text(text):
    """In the brackets of _arguments, or behind the colon of _describe."""
    for letter in "\\[]:":
        text = text.replace(letter, "\\" + letter)
    return text


def zsh_option(flag, placeholder, text):
    several = "*" if "(may be given several times)" in text else ""
    if not placeholder:
        return quoted(f"{several}{flag}[{zsh_text(text)}]")
    return quoted(f"{several}{flag}=[{zsh_text(text)}]:{placeholder}:{'_files' if placeholder == 'FILE' else ' '}")


def zsh_words(pairs):
    return " ".join(quoted(f"{word}:{zsh_text(text)}") for word, text in pairs)


ZSH = """
_fenceguard() {{
  local -a words_here
  local name=${{words[2]}}
  if ((CURRENT == 2)); then
    words_here=({words})
    _describe command words_here
    return
  fi
  shift words; ((--CURRENT))
  case $name in
{groups}
  esac
  case $name in
{options}
  esac
}}
_fenceguard "$@"
"""

ZSH_GROUP = """    {name})
      if ((CURRENT == 2)); then
        words_here=({words})
        _describe command words_here
        return
      fi
      name+=" ${{words[2]}}"
      shift words; ((--CURRENT)) ;;"""


def zsh(program):
    groups = "\n".join(ZSH_GROUP.format(name=group, words=zsh_words((c.name.split()[1], c.summary) for c in commands))
                       for group, commands in program.groups().items())
    options = []
    for command in program.commands:
        specs = [zsh_option(*flag) for flag in command.flags] + [quoted("--help[tell the options]")]
        if command.items:
            specs.append(quoted(f"1:{command.title.lower()}:({' '.join(name for name, _ in command.items)})"))
        if "COMMAND…" in command.synopsis:
            specs.append(quoted("*:: :_normal"))
        options.append(f"    {quoted(command.name)}) _arguments -S {' '.join(specs)} ;;")
    return f"#compdef fenceguard\n# {HEAD}" + ZSH.format(words=zsh_words(first_words(program)), groups=groups,
                                                       options="\n".join(options))


def fish_line(condition, *words):
    return " ".join(["complete -c fenceguard", "-n", quoted(condition), *words]) + "\n"


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(program):
    text = f"# {HEAD}complete -c fenceguard -f\n"
    text += "".join(fish_line("__fish_use_subcommand", "-a", word, "-d", fish_quoted(summary))
                    for word, summary in first_words(program))
    text += fish_line("__fish_use_subcommand", "-l help") + fish_line("__fish_use_subcommand", "-l version")
    for group, commands in program.groups().items():
        names = " ".join(command.name.split()[1] for command in commands)
        for command in commands:
            text += fish_line(f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from {names}", "-a",
                              command.name.split()[1], "-d", fish_quoted(command.summary))
    for command in program.commands:
        here = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.name.split())
        for flag, placeholder, explanation in command.flags:
            kind = {"": [], "FILE": ["-r", "-F"]}.get(placeholder, ["-x"])
            text += fish_line(here, "-l", flag[2:], *kind, "-d", fish_quoted(explanation))
        text += fish_line(here, "-l help", "-d", fish_quoted("tell the options"))
        for name, summary in command.items:
            text += fish_line(here, "-a", name, "-d", fish_quoted(summary))
    return text
