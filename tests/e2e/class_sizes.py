# SPDX-License-Identifier: Apache-2.0
"""Counts what the classes of a C++ header in this project's style hold: members end in an underscore."""

import re

COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
CLASS = re.compile(r"(?<!enum )\bclass\s+(?:ABSL_\w+\s+)?(?P<name>\w+)(?:\s+final)?\s*(?::[^{;()]*)?\{")
ANNOTATION = re.compile(r"\bABSL_\w+(\([^()]*\))?")
NO_MEMBER = re.compile(r"(using|friend|static_assert|enum|struct|class)\b")


def own_level(text, begin):
    """The text of the class whose brace ends at `begin`; whatever stands in braces in it is left out, and ends its statement."""
    depth, kept = 1, []
    for character in text[begin:]:
        depth += (character == "{") - (character == "}")
        if depth == 0:
            break
        if depth == 1:
            kept.append("};" if character == "}" else character)
        elif depth == 2 and character == "{":
            kept.append("{")
    return "".join(kept)


def without_templates(statement):
    before = None
    while before != statement:
        before, statement = statement, re.sub(r"<[^<>]*>", "", statement)
    return statement


def sizes(text):
    """Yields (name, members, methods) of each class. Constructors, and what a visitor does for each event, are not counted apart."""
    text = COMMENTS.sub("", text)
    for found in CLASS.finditer(text):
        members, methods, visits = 0, 0, 0
        for statement in own_level(text, found.end()).split(";"):
            statement = re.sub(r"\b(public|private|protected)\s*:", "", ANNOTATION.sub("", statement)).strip()
            if not statement or NO_MEMBER.match(statement) or statement.startswith("}"):
                continue
            head = without_templates(statement).split("{")[0].split("=")[0] if "operator" not in statement else statement
            called = re.search(r"~?(\w+)\s*\(", head)
            if "operator()" in statement:
                visits = 1
            elif called and called[1].strip("~") == found["name"]:
                continue
            elif called or "operator" in statement:
                methods += 1
            elif re.search(r"\w_$", head.strip()):
                members += 1
        yield found["name"], members, methods + visits
