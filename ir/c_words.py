"""Words that no name may be in the text of a kernel, or in what is made for its callers."""

from __future__ import annotations

_C = (
    "alignas alignof asm auto bool break case char const constexpr continue default do double else "
    "enum extern false float for goto if inline int linux long nullptr register restrict return "
    "short signed sizeof static static_assert struct switch thread_local true typedef typeof union "
    "unix unsigned void volatile while"
)
_OTHER = (
    "and and_eq assert bitand bitor catch char8_t char16_t char32_t class co_await co_return "
    "co_yield compl complex concept consteval constinit const_cast decltype delete dynamic_cast "
    "errno explicit export friend imaginary mutable namespace new noexcept noreturn not not_eq "
    "operator or or_eq private protected public reinterpret_cast requires static_cast stderr stdin "
    "stdout template this throw try typeid typename using virtual wchar_t xor xor_eq"
)
C_WORDS = frozenset(_C.split())
"""Of C."""
OTHER_WORDS = frozenset(_OTHER.split())
"""Of C++ beside C's, and macros in small letters that a program may have before a header."""
