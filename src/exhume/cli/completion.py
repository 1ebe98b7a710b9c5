"""exhume completion: a script that teaches the shell our commands and options, made from the very parsers."""

import argparse

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\
examples:
  eval "$(exhume completion bash)"                                      for this shell
  exhume completion bash > /etc/bash_completion.d/exhume                for every new one
  exhume completion zsh > "${fpath[1]}/_exhume"
  exhume completion fish > ~/.config/fish/completions/exhume.fish"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace) -> int:
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](), end="")
    return 0


def _options() -> dict[str, list[argparse.Action]]:
    from exhume.cli.main import COMMANDS, command_parser

    parsers = {name: command_parser(name) for name in COMMANDS}
    return {name: [one for one in parser._actions if one.help != argparse.SUPPRESS] for name, parser in parsers.items()}


def _words(actions: list[argparse.Action]) -> list[str]:
    words = [option for action in actions for option in action.option_strings]
    return words + [str(choice) for action in actions if not action.option_strings for choice in action.choices or ()]


def _takes(action: argparse.Action) -> bool:
    """Whether the word after it is its value for sure, or one of a few."""
    return bool(action.option_strings) and (action.nargs not in (0, "?") or bool(action.choices))


def _values(options: dict[str, list[argparse.Action]], given: str, file: str) -> str:
    """The branches of a `case` for the word after an option that takes one: its choices if it has some, else a file."""
    lines = []
    for name, actions in options.items():
        others = []
        for action in filter(_takes, actions):
            patterns = [f'"{name} {option}"' for option in action.option_strings]
            if action.choices:
                choices = " ".join(str(choice) for choice in action.choices)
                lines.append(f"    {'|'.join(patterns)}) {given.format(choices)}; return ;;")
            else:
                others += patterns
        if others:
            lines.append(f"    {'|'.join(others)}) {file}return ;;")
    return "\n".join(lines)


def _bash() -> str:
    options = _options()
    values = _values(options, 'COMPREPLY=($(compgen -W "{}" -- "$word"))', "")
    cases = "\n".join(f'    {name}) words="{" ".join(_words(actions))}" ;;' for name, actions in options.items())
    return f"""\
_exhume() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  COMPREPLY=()
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{values}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{" ".join(options)} help --help --version"
  else
    case "${{COMP_WORDS[1]}}" in
    help) words="{" ".join(options)}" ;;
{cases}
    *) words="--help" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _exhume exhume
"""


def _zsh() -> str:
    from exhume.cli.main import COMMANDS

    lines = {name: _quoted(line).replace(":", "\\:") for name, line in COMMANDS.items()}
    commands = "\n".join(f"    '{name}:{line}'" for name, line in lines.items())
    options = _options()
    values = _values(options, "compadd -- {}", "_files; ")
    cases = "\n".join(f"    {name}) compadd -- {' '.join(_words(actions))} ;;" for name, actions in options.items())
    return f"""\
#compdef exhume
_exhume() {{
  local -a commands=(
{commands}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    compadd -- help --help --version
    return
  fi
  case "$words[2] $words[CURRENT-1]" in
{values}
  esac
  case "$words[2]" in
{cases}
  esac
  _files
}}
compdef _exhume exhume
"""


def _fish() -> str:
    from exhume.cli.main import COMMANDS

    lines = [
        f"complete -c exhume -n __fish_use_subcommand -f -a {name} -d '{_quoted(line)}'" for name, line in COMMANDS.items()
    ]
    for name, actions in _options().items():
        for action in actions:
            for option in action.option_strings:
                flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                choices = " ".join(str(choice) for choice in action.choices or ())
                takes = (f" -x -a '{choices}'" if choices else " -r") if _takes(action) else ""
                about = _quoted(action.help or "")
                lines.append(f"complete -c exhume -n '__fish_seen_subcommand_from {name}' {flag}{takes} -d '{about}'")
            if not action.option_strings and action.choices:
                choices = " ".join(str(choice) for choice in action.choices)
                lines.append(f"complete -c exhume -n '__fish_seen_subcommand_from {name}' -f -a '{choices}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("'", "’")
