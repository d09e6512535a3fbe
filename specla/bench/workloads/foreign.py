"""What a file is in spite of its name, told from its first bytes: none of them starts a text."""

EXCEL = (".xlsx", ".xls", ".xlsm", ".xlsb")
"""Endings of spreadsheets."""
_POINTER = b"version https://git-lfs.github.com/spec/"
_STARTS = {
    b"\x1f\x8b\x08": ("gzip", ".gz"),
    b"\xfd7zXZ\x00": ("xz", ".xz"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst"),
}
_ZIP, _SHEET, _OLD_OFFICE = b"PK\x03\x04", b"xl/workbook", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
EXCEL_TOLD = "is an Excel file: export it as CSV"


def foreign(data: bytes, ending: str) -> str:
    """What bytes are that are not what their ending says, and what to do; empty where nothing is known of them.

    Args:
        data: of the file.
        ending: as in `.jsonl` or `.jsonl.gz`.
    """
    if data.startswith(_POINTER):
        return "is a git-lfs pointer, not the file that it stands for; fetch that, as in git lfs pull"
    for start, (name, packing) in _STARTS.items():
        if data.startswith(start) and not ending.endswith(packing):
            return f"is {name}: name it .{ending.split('.')[1]}{packing}"
    if data.startswith(_ZIP):
        return EXCEL_TOLD if _SHEET in data else "is a zip archive: take the file out of it"
    return EXCEL_TOLD if data.startswith(_OLD_OFFICE) else ""
