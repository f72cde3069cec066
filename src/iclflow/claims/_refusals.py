"""Which errors are refusals in words, and which are bugs."""

import dis

# These refuse what they cannot say of a run by a ValueError whose text is a sentence.
_SPEAKING = ("analysis", "claims", "theory")
_PACKAGE = __name__.partition(".")[0]
_RAISE = dis.opmap["RAISE_VARARGS"]


def is_refusal(error: ValueError) -> bool:
    """Whether theory, analysis or a claim said this by a `raise` of its own.

    NumPy's complaints about shapes and failed unpackings are ValueErrors too, and have their last
    line in the same files; but no `raise` stands there.
    """
    place = error.__traceback__
    if place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    package, _, inside = place.tb_frame.f_globals.get("__name__", "").partition(".")
    if package != _PACKAGE or inside.partition(".")[0] not in _SPEAKING:
        return False
    return place.tb_frame.f_code.co_code[place.tb_lasti] == _RAISE
