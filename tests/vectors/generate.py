#!/usr/bin/env python3
"""Writes keys.json: key values in the order of a real PostgreSQL, each with its canonical encoding.

PostgreSQL decides the order (ORDER BY, text under COLLATE "C") and which values are equal (DISTINCT); the encoding is
computed here, by an implementation that shares nothing with the one it tests. The script refuses to write vectors
whose bytes do not sort as PostgreSQL sorted the values. Same seed, same file.

    PGHOST=127.0.0.1 PGPORT=5432 PGUSER=postgres python3 generate.py

Needs Python 3.9 or later, psql, and PostgreSQL 14 or later with a UTF-8 database; creates temporary tables only.
"""

import decimal
import json
import pathlib
import random
import subprocess
import sys

RANDOM = random.Random(20240607)
PER_TYPE = 300
PER_COMPOSITE = 220

decimal.getcontext().prec = 200_000
decimal.getcontext().Emax = decimal.MAX_EMAX
decimal.getcontext().Emin = decimal.MIN_EMIN


# Encoding: one function a type, from the value as it stands in the file.


def encode_bool(value):
    return b"\x01" if value else b"\x00"


def encode_int(value):
    return (int(value) + 2**63).to_bytes(8, "big")


def encode_uint(value):
    return int(value).to_bytes(8, "big")


def encode_date(value):
    return (int(value) + 2**31).to_bytes(4, "big")


def encode_text(value):
    return value.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def encode_bytes(value):
    return bytes.fromhex(value).replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def encode_uuid(value):
    return bytes.fromhex(value.replace("-", ""))


def encode_decimal(value):
    special = {"-Infinity": b"\x00", "Infinity": b"\x04", "NaN": b"\x05"}
    if value in special:
        return special[value]
    number = decimal.Decimal(value)
    if number == 0:
        return b"\x02"
    # The smallest e with |number| < 100^e, then digit by digit of the fraction in base 100.
    exponent = -((-(number.adjusted() + 1)) // 2)
    fraction = abs(number).scaleb(-2 * exponent)
    numerator, denominator = fraction.as_integer_ratio()
    pairs = bytearray()
    while numerator:
        pair, numerator = divmod(numerator * 100, denominator)
        pairs.append(pair + 1)
    body = (exponent + 2**31).to_bytes(4, "big") + bytes(pairs) + b"\x00"
    if number < 0:
        return b"\x01" + bytes(255 - byte for byte in body)
    return b"\x03" + body


# Values: nasty ones by hand, then random ones around them.


def integers(low, high):
    values = {0, low, high, low + 1, high - 1}
    for bits in range(1, 64):
        for value in (2**bits - 1, 2**bits, 2**bits + 1):
            values.update(value * sign for sign in (1, -1))
    values.update(RANDOM.randint(-1000, 1000) for _ in range(40))
    values.update(RANDOM.randint(low, high) for _ in range(60))
    return sorted(value for value in values if low <= value <= high)


def bools():
    return [False, True]


def ints():
    return [str(value) for value in integers(-(2**63), 2**63 - 1)]


def uints():
    return [str(value) for value in integers(0, 2**64 - 1)]


def uuids():
    values = [bytes(16), b"\xff" * 16, b"\x7f" + b"\xff" * 15, b"\x80" + bytes(15), bytes(15) + b"\x01"]
    values += [RANDOM.randbytes(16) for _ in range(60)]
    values += [values[0][:n] + RANDOM.randbytes(16 - n) for n in range(16)]
    return [f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in (value.hex() for value in values)]


# U+FFFD and U+1F600 sort the other way round in UTF-16; the last two letters are one to a reader, not in bytes.
LETTERS = [" ", "!", "-", "0", "9", "A", "B", "_", "a", "b", "z", "\t", "\n", "\x01", "\x02", "\x7f", "\u0080", "é", "ß",
           "\u07ff", "\u0800", "中", "\ufffd", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff", "\u00c5", "\u212b"]


def texts():
    values = ["", "a", "aa", "a b", "ab", "a-b", "A", "B", "b", "Straße", "STRASSE", "e\u0301", "é", "\x01", "\x01\x01",
              "a\x01", "'", '"', "\\", "\\x00", "%", "null", "NULL", "1", "10", "2", "01", "a" * 60]
    values += LETTERS
    values += ["".join(RANDOM.choice(LETTERS) for _ in range(RANDOM.randint(1, 5))) for _ in range(PER_TYPE)]
    return values


def byte_strings():
    nasty = [0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF]
    values = [b"", bytes(8), b"\xff" * 8, bytes(range(40))]
    values += [bytes([a]) for a in nasty] + [bytes([a, b]) for a in nasty for b in nasty]
    values += [bytes(RANDOM.choice(nasty) for _ in range(RANDOM.randint(3, 7))) for _ in range(PER_TYPE - 60)]
    return [value.hex() for value in values]


def decimals():
    values = ["NaN", "Infinity", "-Infinity", "0", "-0", "0.00", "1", "1.0", "1.00", "-1", "-1.0", "10", "1E+1", "1E1",
              "10.0", "0.1", "0.10", "0.01", "0.001", "-0.01", "9.99", "10.01", "99", "100", "101", "99.99", "100.01",
              "9999.5", "10000", "1E+131071", "9.5E+131071", "-1E+131071", "1E-16383", "-1E-16383", "5E-16383",
              "1E+65535", "1E+65536", "1E-8191", "1E-8192", "9" * 200, "-" + "9" * 200, "0." + "0" * 100 + "1",
              "9" * 60 + "." + "9" * 60, "1" + "0" * 60 + ".0" + "5" * 30]
    for exponent in range(-6, 7):
        values += [f"{sign}{mantissa}E{exponent:+d}" for sign in ("", "-") for mantissa in ("1", "1.5", "12.34")]
    for _ in range(PER_TYPE // 2):
        digits = "".join(RANDOM.choice("0123456789") for _ in range(RANDOM.randint(1, 24)))
        point = RANDOM.randint(0, len(digits))
        value = RANDOM.choice(("", "-")) + (digits[:point] or "0") + ("." + digits[point:] if digits[point:] else "")
        values.append(value)
        # The same number spelled otherwise.
        if RANDOM.random() < 0.3:
            values.append(value + ("00" if "." in value else ".00"))
    return values


DAY = 86_400_000_000


def civil(days):
    """The proleptic Gregorian date of a day, as PostgreSQL reads it: text and era."""
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}", "" if year > 0 else " BC"


def clock(micros):
    seconds, micros = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"


def infinite(value, bits):
    return {str(2 ** (bits - 1) - 1): "infinity", str(-(2 ** (bits - 1))): "-infinity"}.get(value)


def date_text(value):
    return infinite(value, 32) or "".join(civil(int(value)))


def timestamp_text(value):
    if infinite(value, 64):
        return infinite(value, 64)
    days, micros = divmod(int(value), DAY)
    date, era = civil(days)
    return f"{date} {clock(micros)}{era}"


def timestamptz_text(value):
    """The instant in some zone or other: PostgreSQL must not care."""
    if infinite(value, 64):
        return infinite(value, 64)
    minutes = RANDOM.choice((0, 0, 60, -300, 345, -570))
    days, micros = divmod(int(value) + minutes * 60_000_000, DAY)
    date, era = civil(days)
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return f"{date} {clock(micros)}{zone}{era}"


# What PostgreSQL's types hold: 4713-11-24 BC to 5874897-12-31, and to 294276-12-31T23:59:59.999999.
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_031_948
FIRST_MICRO, LAST_MICRO = FIRST_DAY * DAY, 9_223_371_331_200_000_000 - 1


def dates():
    values = {2**31 - 1, -(2**31), FIRST_DAY, FIRST_DAY + 1, LAST_DAY, LAST_DAY - 1, 0, 1, -1, -719_162, -719_163, 10_957}
    values.update(RANDOM.randint(FIRST_DAY, LAST_DAY) for _ in range(40))
    values.update(RANDOM.randint(-800_000, 100_000) for _ in range(80))
    return [str(value) for value in sorted(values)]


def times():
    values = {0, 1, 999_999, 1_000_000, DAY // 2, DAY - 1, DAY}
    values.update(RANDOM.randint(0, DAY) for _ in range(100))
    return [str(value) for value in sorted(values)]


def timestamps(margin=0):
    low, high = FIRST_MICRO + margin, LAST_MICRO - margin
    values = {2**63 - 1, -(2**63), low, low + 1, high, high - 1, 0, 1, -1, 946_684_800_000_000, -62_135_596_800_000_000}
    values.update(RANDOM.randint(low, high) for _ in range(50))
    values.update(RANDOM.randint(-(10**15), 2 * 10**15) for _ in range(60))
    return [str(value) for value in sorted(values)]


def instants():
    return timestamps(margin=DAY)


# For each key type: values, encoding, the text that PostgreSQL reads, the SQL that makes a value of the text, and the
# SQL that gives the value back in the file's unit, to prove that PostgreSQL understood it as it was meant.
MICROS = "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::numeric(20, 0)::text ELSE {0}::text END"
TYPES = {
    "bool": (bools, encode_bool, str, "({0})::bool", "({0})::text"),
    "int": (ints, encode_int, str, "({0})::bigint", "({0})::text"),
    "uint": (uints, encode_uint, str, "({0})::xid8", "({0})::text"),
    "decimal": (decimals, encode_decimal, str, "({0})::numeric", None),
    "text": (texts, encode_text, lambda value: value.encode().hex(),
             "convert_from(decode({0}, 'hex'), 'UTF8') COLLATE \"C\"", "encode(convert_to({0}, 'UTF8'), 'hex')"),
    "bytes": (byte_strings, encode_bytes, str, "decode({0}, 'hex')", "encode({0}, 'hex')"),
    "uuid": (uuids, encode_uuid, str, "({0})::uuid", "({0})::text"),
    "date": (dates, encode_date, date_text, "({0})::date",
             "CASE WHEN isfinite({0}) THEN ({0} - DATE '1970-01-01')::text ELSE ({0})::text END"),
    "time": (times, encode_int, lambda value: clock(int(value)), "({0})::time",
             "(extract(epoch FROM {0}) * 1000000)::numeric(20, 0)::text"),
    "timestamp": (timestamps, encode_int, timestamp_text, "({0})::timestamp", MICROS),
    "timestamptz": (instants, encode_int, timestamptz_text, "({0})::timestamptz", MICROS),
}

COMPOSITES = [
    ["text", "int"], ["int", "text"], ["bytes", "uint"], ["bytes", "date"], ["text", "text"], ["bytes", "bytes", "bool"],
    ["decimal", "text"], ["text", "decimal"], ["decimal", "int"], ["uuid", "bool", "timestamptz"],
]


def rows_of(types):
    if len(types) == 1:
        return [[value] for value in TYPES[types[0]][0]()]
    # Few values a column, so that many rows share their first columns.
    columns = []
    for key_type in types:
        values = TYPES[key_type][0]()
        short = [value for value in values if len(str(value)) < 40]
        columns.append(RANDOM.sample(short, min(14, len(short))))
    # An end of text or bytes meets every first byte that an integer, a date or other bytes can begin with.
    prefixes = {"text": ["", "a", "a\x01", "a\x01a", "aa"], "bytes": ["", "61", "6100", "6100ff", "6101", "61ff"]}
    columns = [prefixes.get(key_type, []) + column for key_type, column in zip(types, columns)]
    extremes = {"int": [str(-(2**63)), "-1", "0", str(2**63 - 1)], "uint": ["0", "1", str(2**64 - 1)],
                "date": [str(-(2**31)), "0", str(2**31 - 1)], "decimal": ["NaN", "-Infinity", "1", "1.0", "1.01", "-1"]}
    columns = [extremes.get(key_type, []) + column for key_type, column in zip(types, columns)]
    return [[RANDOM.choice(column) for column in columns] for _ in range(PER_COMPOSITE)]


def psql(script):
    command = ["psql", "-X", "-q", "-At", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"psql: {done.stderr}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def quote(text):
    return "'" + text.replace("'", "''") + "'"


def in_order(types, rows):
    """PostgreSQL's order: a list of lists of rows that it holds to be equal."""
    columns = [f"c{n}" for n in range(len(types))]
    sql_values = []
    for row in rows:
        texts = [TYPES[key_type][2](value) for key_type, value in zip(types, row)]
        sql_values.append(texts)
    lines = ",\n".join(f"({n}, {', '.join(map(quote, texts))})" for n, texts in enumerate(sql_values))
    made = ", ".join(f"{TYPES[t][3].format('t' + c)} AS {c}" for t, c in zip(types, columns))
    order = ", ".join(columns)
    back = ", ".join(TYPES[t][4].format(c) if TYPES[t][4] else "''" for t, c in zip(types, columns))
    answer = psql(f"""
        SET timezone = 'UTC'; SET datestyle = 'ISO';
        CREATE TEMP TABLE v AS SELECT n, {made} FROM (VALUES {lines}) AS t (n, {', '.join('t' + c for c in columns)});
        SELECT 'distinct', count(*) FROM (SELECT DISTINCT {order} FROM v) AS d;
        SELECT n, dense_rank() OVER (ORDER BY {order}), {back} FROM v ORDER BY {order}, n;
    """)
    (_, distinct), ranked = answer[0], answer[1:]
    groups = {}
    for n, rank, *returned in ranked:
        row = rows[int(n)]
        for key_type, value, got in zip(types, row, returned):
            bits = 32 if key_type == "date" else 64
            meant = infinite(value, bits) if key_type in ("date", "timestamp", "timestamptz") else None
            meant = meant or (value.encode().hex() if key_type == "text" else str(value).lower())
            if TYPES[key_type][4] and got != meant:
                sys.exit(f"PostgreSQL read another {key_type}: {value!r} came back as {got!r}")
        groups.setdefault(int(rank), []).append(row)
    if len(groups) != int(distinct):
        sys.exit(f"{types}: ORDER BY knows {len(groups)} keys, DISTINCT {distinct}")
    return [groups[rank] for rank in sorted(groups)]


def main():
    version = psql("SHOW server_version_num")[0][0]
    groups = []
    for types in [[key_type] for key_type in TYPES] + COMPOSITES:
        keys = []
        for equal in in_order(types, rows_of(types)):
            encodings = {b"".join(TYPES[t][1](value) for t, value in zip(types, row)) for row in equal}
            if len(encodings) != 1:
                sys.exit(f"{types}: equal keys {equal} have several encodings")
            values = [row for n, row in enumerate(equal) if row not in equal[:n]]
            keys.append({"bytes": encodings.pop().hex(), "values": values})
        encoded = [bytes.fromhex(key["bytes"]) for key in keys]
        if any(low >= high for low, high in zip(encoded, encoded[1:])):
            sys.exit(f"{types}: the encoding does not sort as PostgreSQL")
        groups.append({"types": types, "keys": keys})
        print(f"{','.join(types)}: {len(keys)} keys", file=sys.stderr)

    lines = [f' {{"types": {json.dumps(group["types"])}, "keys": [\n  '
             + ",\n  ".join(json.dumps(key, separators=(",", ":")) for key in group["keys"]) + "\n ]}" for group in groups]
    text = f'{{"format": 1, "ordered_by": "PostgreSQL {int(version) // 10000}", "groups": [\n' + ",\n".join(lines) + "\n]}\n"
    json.loads(text)
    pathlib.Path(__file__).with_name("keys.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
