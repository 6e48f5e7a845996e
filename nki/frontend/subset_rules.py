"""What `subset` has to say: one row for each Python construct that NKI does not have.

An `error` cannot be staged at all. A `note` runs here, but the real compiler refuses it or does not document it (its
values are None, bool, int, float, str, tensors, tuples, lists, dicts with string keys, enums and classes derived from
NKIObject). The rows come from the language guide and the migration guides of NKI 0.2 to 0.6; ordinary features that
published kernels use (closures, classes, f-strings, assertions, conditional expressions, `while` over host values)
have none.
"""

from __future__ import annotations

from dataclasses import dataclass

REFUSED = "the real compiler refuses it since NKI 0.3"
UNDOCUMENTED = "it is not part of the documented NKI language, so the real compiler may refuse it"


@dataclass(frozen=True)
class Rule:
    """What is said about one construct."""

    severity: str
    what: str
    why: str
    remedy: str


RULES: dict[str, Rule] = {
    "subset-async": Rule(
        "error",
        "asynchronous code",
        "a kernel is one sequential program and has no event loop",
        "make it an ordinary function",
    ),
    "subset-generator-kernel": Rule(
        "error",
        "a kernel that yields",
        "calling it would only make a generator and stage nothing",
        "collect the results in a list and return them",
    ),
    "subset-is-operator": Rule(
        "note", "`is`", f"objects have no identity on the device side; {REFUSED}", "compare by value"
    ),
    "subset-keyword-only": Rule(
        "note", "keyword-only parameters (`*`)", REFUSED, "drop the `*` and put parameters with defaults last"
    ),
    "subset-positional-only": Rule("note", "positional-only parameters (`/`)", UNDOCUMENTED, "drop the `/`"),
    "subset-star-parameters": Rule(
        "note", "`*args` or `**kwargs` in a signature", UNDOCUMENTED, "name every parameter"
    ),
    "subset-star-argument": Rule(
        "note", "`*` or `**` in a call", UNDOCUMENTED, "write the arguments out, one by one"
    ),
    "subset-list-argument": Rule(
        "note",
        "a list as the default of a kernel argument",
        f"kernel arguments are tuples; {REFUSED}",
        "use a tuple",
    ),
    "subset-mutable-default": Rule(
        "note",
        "a dict or set as a default",
        "kernels are cached by their arguments, and this one can change",
        "use None or a tuple",
    ),
    "subset-lambda": Rule("note", "a lambda", UNDOCUMENTED, "define a function with `def`"),
    "subset-comprehension": Rule("note", "a comprehension", UNDOCUMENTED, "append to a list in a `for` loop"),
    "subset-generator": Rule("note", "a generator", UNDOCUMENTED, "build a list and return it"),
    "subset-set": Rule("note", "a set", UNDOCUMENTED, "use a tuple, a list or a dict with string keys"),
    "subset-dict-key": Rule("note", "a dict key that is not a string", REFUSED, "use string keys"),
    "subset-complex": Rule("note", "a complex number", UNDOCUMENTED, "keep real and imaginary part apart"),
    "subset-bytes": Rule("note", "a bytes literal", UNDOCUMENTED, "use a string or integers"),
    "subset-wide-integer": Rule(
        "note", "an integer of more than 32 bits", "NKI integers have 32 bits", "split it, or use a float"
    ),
    "subset-decorator": Rule(
        "note", "a decorator on a function inside a kernel", UNDOCUMENTED, "call the wrapper explicitly"
    ),
    "subset-class-base": Rule(
        "note",
        "a class that does not derive from NKIObject alone",
        "the compiler takes only such classes, and enums",
        "derive it from `nl.NKIObject` and nothing else",
    ),
    "subset-with": Rule(
        "note",
        "`with` over anything but a scheduling scope such as `nl.no_reorder()`",
        UNDOCUMENTED,
        "call what it does before and after",
    ),
    "subset-try": Rule("note", "`try`", UNDOCUMENTED, "test for the condition beforehand"),
    "subset-del": Rule("note", "`del`", UNDOCUMENTED, "leave it out: a tile is freed after its last use"),
    "subset-import": Rule(
        "note", "an import inside a kernel", UNDOCUMENTED, "import at the top of the module"
    ),
    "subset-global": Rule(
        "note",
        "`global`",
        "a kernel must be a pure function of its arguments, or a cached program is stale",
        "pass the value in and return it",
    ),
    "subset-nonlocal": Rule(
        "note", "`nonlocal`", UNDOCUMENTED, "keep the state in a list, a dict or an object"
    ),
    "subset-walrus": Rule("note", "`:=`", UNDOCUMENTED, "assign in a statement of its own"),
    "subset-match": Rule("note", "`match`", UNDOCUMENTED, "use `if` and `elif`"),
}
