#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Man pages and shell completions, made of what the programs' --help prints.

  help_pages.py --ingero PATH --kprobe PATH --costs FILE --out FOLDER

Writes FOLDER/man/man1/ingero.1, ingero-COMMAND.1, man8/ingero-kprobe.8 and
FOLDER/bash-completion/completions/ingero, zsh/site-functions/_ingero,
fish/vendor_completions.d/ingero.fish, each also for ingero-kprobe. COSTS is the
text of the OVERHEAD sections.
"""
import argparse
import os
import pathlib
import re
import subprocess
import textwrap

OPTION = re.compile(r"^  (-[-\w, ]*?)(?: ([A-Z]\S*(?: \.\.\.)?))?(?:\s\s+(.*))?$")
TAKES_A_PATH = ("PATH", "DIR", "DB", "FILE", "FOLDER")


class Help:
    """--help in parts: about, usage, [(heading, lines)]."""

    def __init__(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True,
                              text=True, env={**os.environ, "COLUMNS": "80"})
        self.about, self.usage, self.sections = [], "", []
        # What a word of its own may be: {word: about}; {}: a file, or nothing.
        self.words = {}
        lines = self.about
        for line in done.stdout.splitlines():
            if line.startswith("Usage: "):
                self.usage = line[len("Usage: "):]
                lines = []
                self.sections.append(("", lines))
            elif re.match(r"^[A-Z]\w*( \w+)?:$", line):
                lines = []
                self.sections.append((line[:-1], lines))
            else:
                lines.append(line)


    def entries(self, heading):
        """[(names, value, text)] of Options or Commands."""
        out = []
        for line in dict(self.sections).get(heading, []):
            line = re.sub(r" Excludes:( --?[-\w]+,?)+", "", line)
            option = OPTION.match(line)
            plain = re.match(r"^  ([\w-]+)(?: ([A-Z]\S*))?\s\s+(.*)$", line)
            if option:
                names = [n.strip() for n in option[1].split(",") if n.strip()]
                out.append([names, option[2] or "", option[3] or ""])
            elif plain and heading != "Options":
                out.append([[plain[1]], plain[2] or "", plain[3]])
            elif out and line.startswith("   "):
                out[-1][2] = (out[-1][2] + " " + line.strip()).strip()
        return out


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + x if x[:1] in ".'" else x
                     for x in text.split("\n"))


def page(name, section, version, about, help_, more):
    summary = " ".join(about.split())
    out = [f'.TH {name.upper()} {section} "" "ingero {version}" "ingero"',
           ".SH NAME", f"{roff(name)} \\- {roff(summary)}"]
    out += [".SH SYNOPSIS", f".B {roff(help_.usage)}"]
    if any(help_.about):
        out += [".SH DESCRIPTION"]
        for part in "\n".join(help_.about).strip().split("\n\n"):
            if any(x.startswith("  ") for x in part.split("\n")):
                out += [".nf", roff(part), ".fi"]
            else:
                out += [".PP", roff(part)]
    for heading, lines in help_.sections:
        text = textwrap.dedent("\n".join(lines)).strip("\n")
        if not text:
            continue
        entries = (help_.entries(heading)
                   if heading in ("Options", "Commands", "Positionals") else [])
        if entries:
            out.append(f".SH {heading.upper()}")
            for names, value, about in entries:
                head = ", ".join(f"\\fB{roff(n)}\\fR" for n in names)
                if value:
                    head += f" \\fI{roff(value)}\\fR"
                out += [".TP", head, roff(about)]
            continue
        if heading:
            out.append(f".SH {heading.upper()}")
        elif "NOTES" not in str(out):
            out.append(".SH NOTES")
        if heading in ("Examples", "Commands") or "  " in text:
            out += [".nf", roff(text), ".fi"]
        else:
            out += [".PP", roff(text)]
    for heading, text in more:
        out.append(f".SH {heading}")
        out += [x for part in text.strip().split("\n\n")
                for x in (".PP", roff(part))]
    return "\n".join(out) + "\n"


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def flags(help_):
    return [(n, v, t) for names, v, t in help_.entries("Options")
            for n in names]


def bash(programs):
    out = ["# bash completion of ingero; made of its --help"]
    for program, (own, commands) in programs.items():
        function = "_" + program.replace("-", "_")
        out += [f"{function}() {{",
                '  local word=${COMP_WORDS[COMP_CWORD]}',
                '  local before=${COMP_WORDS[COMP_CWORD-1]} words=',
                "  COMPREPLY=()"]
        paths = sorted({n for h in [own, *commands.values()]
                        for n, v, _ in flags(h)
                        if v.split(" ")[0] in TAKES_A_PATH})
        if paths:
            out += [f"  case $before in {'|'.join(paths)})",
                    '    mapfile -t COMPREPLY < <(compgen -f -- "$word")',
                    "    return;; esac"]
        if commands:
            out += ["  if [ $COMP_CWORD -eq 1 ]; then",
                    f"    words={quote(' '.join(commands))}",
                    "  else case ${COMP_WORDS[1]} in"]
            for name, help_ in commands.items():
                names = " ".join([*help_.words,
                                  *(n for n, _, _ in flags(help_))])
                out.append(f"    {name}) words={quote(names)};;")
            out += ["  esac; fi"]
        else:
            names = " ".join(n for n, _, _ in flags(own))
            out.append(f"  words={quote(names)}")
        out += ['  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")',
                '  [[ $word == -* || ${#COMPREPLY[@]} -gt 0 ]] ||',
                '    mapfile -t COMPREPLY < <(compgen -f -- "$word")',
                "}", f"complete -o filenames -F {function} {program}"]
    return "\n".join(out) + "\n"


def zsh(program, own, commands):
    def specs(help_):
        out = []
        for name, value, text in flags(help_):
            about = re.sub(r"[\[\]:]", " ", text)
            kind = ("_files" if value.split(" ")[0] in TAKES_A_PATH else " ")
            out.append(quote(f"{name}[{about}]" +
                             (f":{value}:{kind}" if value else "")))
        if help_.words:
            # Each as word\:text, where a blank ends one.
            choices = " ".join(
                word + "\\:" +
                re.sub(r"[^\w,./-]+", lambda _: "\\ ", text)
                for word, text in help_.words.items())
            return " ".join([*out, quote(f"1:word:(({choices}))")])
        return " ".join([*out, "'*:file:_files'"])

    out = [f"#compdef {program}", "# made of its --help"]
    if not commands:
        return "\n".join([*out, f"_arguments {specs(own)}"]) + "\n"
    about = {n[0]: t for n, _, t in own.entries("Commands")}
    out += ["local -a commands=("]
    out += [f"  {quote(c + ':' + about.get(c, ''))}" for c in commands]
    out += [")", "if (( CURRENT == 2 )); then",
            "  _describe command commands", "  return", "fi",
            "local command=$words[2]", "shift words", "(( CURRENT-- ))",
            "case $command in"]
    for name, help_ in commands.items():
        out.append(f"  {name}) _arguments {specs(help_)};;")
    return "\n".join([*out, "esac"]) + "\n"


def fish(program, own, commands):
    def option(help_, condition):
        for names, value, text in help_.entries("Options"):
            line = f"complete -c {program}"
            if condition:
                line += f" -n {quote(condition)}"
            for n in names:
                line += f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}"
            if value:
                line += " -r" if value.split(" ")[0] in TAKES_A_PATH else " -x"
            yield line + f" -d {quote(text)}"

    out = ["# made of its --help"]
    if not commands:
        return "\n".join([*out, *option(own, "")]) + "\n"
    about = {n[0]: t for n, _, t in own.entries("Commands")}
    for name, help_ in commands.items():
        out.append(f"complete -c {program} -f -n __fish_use_subcommand "
                   f"-a {name} -d {quote(about.get(name, ''))}")
        out += option(help_, f"__fish_seen_subcommand_from {name}")
        out += [f"complete -c {program} -f -n "
                f"{quote('__fish_seen_subcommand_from ' + name)} "
                f"-a {quote(word)} -d {quote(text)}"
                for word, text in help_.words.items()]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ingero", required=True)
    parser.add_argument("--kprobe")
    parser.add_argument("--costs", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()

    version = subprocess.run([options.ingero, "version"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.split()[-1]
    costs = options.costs.read_text()
    own = Help([options.ingero, "--help"])
    commands = {n[0]: Help([options.ingero, n[0], "--help"])
                for n, _, _ in own.entries("Commands")}
    about = {n[0]: t for n, _, t in own.entries("Commands")}
    commands["help"].words = {c: t for c, t in about.items() if c != "help"}
    commands["demo"].words = dict(
        line.split(maxsplit=1) for line in subprocess.run(
            [options.ingero, "demo", "--list"], check=True, text=True,
            stdout=subprocess.PIPE).stdout.splitlines())
    programs = {"ingero": (own, commands)}

    def put(path, text):
        path = options.out / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    names = [f"ingero-{c}(1)" for c in commands if c not in ("help", "version")]
    see = ", ".join([*names, "ingero-kprobe(8)"])
    put("man/man1/ingero.1",
        page("ingero", 1, version, "why a GPU is starved of work", own,
             [("OVERHEAD", costs), ("SEE ALSO", see)]))
    for name, help_ in commands.items():
        if name not in ("help", "version"):
            put(f"man/man1/ingero-{name}.1",
                page(f"ingero-{name}", 1, version, about[name], help_,
                     [("SEE ALSO", "ingero(1), ingero-kprobe(8)")]))
    if options.kprobe:
        kprobe = Help([options.kprobe, "--help"])
        programs["ingero-kprobe"] = (kprobe, {})
        put("man/man8/ingero-kprobe.8",
            page("ingero-kprobe", 8, version,
                 "record the scheduler for ingero", kprobe,
                 [("OVERHEAD", costs), ("SEE ALSO", "ingero(1)")]))
    for program, (help_, subs) in programs.items():
        put(f"bash-completion/completions/{program}",
            bash({program: (help_, subs)}))
        put(f"zsh/site-functions/_{program}", zsh(program, help_, subs))
        put(f"fish/vendor_completions.d/{program}.fish",
            fish(program, help_, subs))


if __name__ == "__main__":
    main()
