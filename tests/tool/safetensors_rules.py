#!/usr/bin/env python3
"""Writes tests/tool/safetensors_rules.txt: header texts, sizes of data, and whether the reference implementation accepts such a
file. The tests need only the table. Making it anew needs the reference:
    python3 -m venv build/venv && build/venv/bin/pip install safetensors==0.8.0
    build/venv/bin/python tests/tool/safetensors_rules.py >tests/tool/safetensors_rules.txt
A line has "accept" or "refuse", the size of the data, and the text. In the text, \\x and two digits replace bytes other than
printable ASCII, and \\."""
import struct
import safetensors

cases = []


def add(text, data=1):
    case = (text.encode() if isinstance(text, str) else text, data)
    if case not in cases:
        cases.append(case)


def tensor(dtype="U8", shape="[1]", begin=0, end=1):
    return '{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}' % (dtype, shape, begin, end)


def member(shape="[1]", offsets="[0,1]", dtype='"U8"'):
    return '{"a":{"dtype":%s,"shape":%s,"data_offsets":%s}}' % (dtype, shape, offsets)


A = '"a":' + tensor()
H = "{" + A + "}"

# text before, after and inside the header
for c in ["", " ", "   ", "\t", "\n", "\r\n", " \t\r\n ", "\0", "\0\0\0", "\f", "\v", "\u0085", "\u00a0", "\ufeff", "\u2028",
          "x", "}", "{}", ",", "//", "/**/", "#"]:
    add(H + c)
    add(c + H)
for text in ["", " ", "{}", "\n{}\n", "{ \t\r\n}", "{\f}", "[]", "null", "1", '"a"', "true", "[{}]", "{", "}", "{,}", '{"a"}',
             '{"a":}', '{"a":1}', '{"a":null}', '{"a":[]}', '{"a":{}}', '{"a":""}', '{"a":true}',
             '{},"__metadata__":{"key":"value"}}']:
    add(text, 0)
for text in ['{\n  "a" : ' + tensor() + "\t\r\n}", "{" + A + ",}", "{," + A + "}", "{" + A + ' "b":1}', "{a:" + tensor() + "}",
             "{'a':" + tensor() + "}"]:
    add(text)

# metadata
for value in ["null", "{}", '{"k":"v"}', '{"k":7}', '{"k":null}', '{"k":true}', '{"k":{"x":"y"}}', '{"k":["x"]}',
              '{"k":"1","k":"2"}', '{"k":"1","k":2}', "[]", '""', '"x"', "0", "true", '{"k":"v",}', '{"k"}', '{1:"v"}', " null ",
              "nul", "nulll", "Null", '[["k","v"]]', '{"":""}', '{"k":"\\u0000"}', '{"k":"\\ud800"}', '{"\\ud800":"v"}',
              '{"k":"a\nb"}', '{"k":"a\tb"}', '{"k":"\x7f\u0085\u2028"}', '{"k":1.5}', '{"k":[[[[]]]]}', '{"dtype":"I32"}',
              '{"dtype":"I32","shape":[2],"data_offsets":[0,8]}']:
    add('{"__metadata__":' + value + "," + A + "}")
add("{" + A + ',"__metadata__":null}')
add('{"__metadata__":null}', 0)
add('{"__metadata__":{"k":"v"}}', 0)
for first, second in [('{"k":"1"}', '{"k":"2"}'), ("null", "null"), ("null", "{}"), ("{}", "{}")]:
    add('{"__metadata__":' + first + ',"__metadata__":' + second + "," + A + "}")
for name in ["\\u005f_metadata__", "__Metadata__", "__metadata__ "]:
    add('{"' + name + '":{"k":"1"},' + A + "}")
    add('{"' + name + '":' + tensor() + "}")
add('{"__metadata__":' + tensor() + "}")

# members that a tensor need not have
for value in ["1", "null", "true", "false", '"s"', "[]", "[1]", "{}", "[{}]", "[ ]", "{ }", '{"k":[1,{"x":null}]}', "-0", "-1",
              "1.5", "1e5", "1E+5", "1e-5", "01", "-01", "1.", ".5", "+1", "1e", "1e+", "-", "0x1", "NaN", "Infinity",
              "-Infinity", "nul", "tru", "tru e", "truefalse", "[1,]", "[,]", "[1 2]", '{"a":1,}', '{"a":1,"a":2}', "{1:2}",
              '{"a"}', '{"a":}', "1e400", "-1e400", "1e-400", "18446744073709551616", "9" * 40, "1" * 320, "0." + "0" * 320 + "1",
              "0.1e1", "-0.0", "1e99999999999999999999", "0e99999999999999999999", "1e-99999999999999999999", "0e400",
              "0.0e999", "-0e0", "1e308", "1e309", "123e306", "0.001e311", "0.002e311", "1.7976931348623157e308",
              "1.7976931348623159e308", "-1.7976931348623157e+308", "-1.8e308", '"\\u0000"', '"\\ud800"', '"\\udc00"',
              '"\\ud83d\\ude00"', '"\\x"', '"\\u12"', '"a\nb"', '"\x7f"', "'s'", "//", "/*c*/1", " 1 ", "", "[}", "{]", "[1}",
              '{"a":1]', '[[],{},"",[0]]', "[[1],[2,3]]", '[{"a":[]},1]', "[" * 125 + "]" * 125, "[" * 126 + "]" * 126,
              '{"k":' * 125 + "1" + "}" * 125, '{"k":' * 126 + "1" + "}" * 126, '[{"k":' * 62 + "[1]" + "}]" * 62,
              '[{"k":' * 62 + "[{}]" + "}]" * 62]:
    add('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":' + value + "}}")
for text in ['"x":1,"dtype":"U8","x":2,"shape":[1],"data_offsets":[0,1]', '"dtype":"U8","shape":[1],"data_offsets":[0,1],"x"',
             '"dtype":"U8","shape":[1],"data_offsets":[0,1],', '"DTYPE":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]',
             '"dtype":"U8","shape":[1],"data_offsets":[0,1],"__metadata__":{}', '"dt\\u0079pe":"\\u00558","shape":[1],"data_offsets":[0,1]',
             '"dtype":"U8","data_offsets":[0,1]', '"dtype":"U8","shape":[1]', '"shape":[1],"data_offsets":[0,1]',
             '0:"U8","shape":[1],"data_offsets":[0,1]', '"0":"U8","1":[1],"2":[0,1]',
             '"data_offsets":[0,1],"shape":[1],"dtype":"U8"']:
    add('{"a":{' + text + "}}")

# twice
U, B = '"a":' + tensor(begin=1, end=2), '"b":' + tensor(begin=1, end=2)
for members, data in [([A, A], 1), ([A, U], 2), ([U, A], 2), ([U, A], 1), ([A, U], 1), ([U, A, B], 2), ([A, B, A], 2),
                      ([A, '"\\u0061":' + tensor()], 1), (['"a":null', A], 1), (['"a":{}', A], 1),
                      (['"a":' + tensor("U8", "[5]"), A], 1), (['"a":' + tensor("F32", "[3]", 7, 3), A], 1),
                      (['"a":' + tensor("U8", "[4294967296,4294967296]"), A], 1)]:
    add("{" + ",".join(members) + "}", data)
for name, value in (("dtype", '"U8"'), ("shape", "[1]"), ("data_offsets", "[0,1]")):
    for again in value, "null":
        add('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"' + name + '":' + again + "}}")

# other values
for text in ['["U8",[1],[0,1]]', '["U8",[1],[0,1],1]', '["U8",[1]]', '[ "U8" , [ 1 ] , [ 0 , 1 ] ]', "[]"]:
    add('{"a":' + text + "}")
for dtype in ['{"U8":null}', '{ "U8" : null }', '{"U8":{}}', '{"U8":[]}', '{"U8":1}', '{"U8":null,"I8":null}', "{}", '["U8"]',
              "1", "null"]:
    add(member(dtype=dtype))
for shape in ["1", "null", '"[1]"', "{}", '{"0":1}', "true"]:
    add(member(shape))
for number in ["1", "-0", "0", "-1", "1.0", "1e0", "1e2", "1E0", "10e-1", "01", "00", "+1", "0x1", "1_0", "1,", ",1", "1 1", "[1]",
               '"1"', "null", "true", "18446744073709551615", "18446744073709551616", "1,1", " 1 ", "1,1,1,1,1", "1\n,\t1",
               "-0.0", "0.0", "-", "1.", "1e", "-00", "-01", "1e400", "- 1", "1\u00a0"]:
    add(member("[" + number + "]"))
for offsets in ["[-0,1]", "[0,-1]", "[0.0,1]", "[0,1.0]", "[0,1e0]", "[00,1]", "[0,01]", "[0]", "[0,1,1]", "[]", "{}", "null",
                '["0","1"]', '{"0":0,"1":1}', "[0,1,]", "[[0,1]]", " [ 0 , 1 ] ", "[0,18446744073709551616]", "[1,0]", "[1,1]",
                "[0,2]", "[0,0]", "[true,1]", "[0 1]", "[1,2]"]:
    add(member(offsets=offsets))

# sizes and places
M = "18446744073709551615"
for shape in ["0", "-0", "0,5", "5,0", "0," + M, M + ",0", M + "," + M, M + "," + M + ",0", M + ",0," + M, "0," + M + "," + M,
              "4294967296,4294967296", "4294967296,4294967296,0", "0,18446744073709551616"]:
    for dtype in "U8", "F32", "F4":
        add('{"a":' + tensor(dtype, "[" + shape + "]", 0, 0) + "}", 0)
for dtype, shape, size in [("F32", "[2]", 4), ("F32", "[2]", 9), ("F32", "[]", 4), ("F32", "[]", 0), ("F4", "[3]", 2), ("F4", "[3]", 1),
                           ("F4", "[2]", 1), ("F6_E2M3", "[4]", 3), ("F6_E2M3", "[2]", 2), ("F6_E2M3", "[2]", 1),
                           ("F4", "[9223372036854775808]", 0), ("F64", "[2305843009213693952]", 0)]:
    add('{"a":' + tensor(dtype, shape, 0, size) + "}", size)
for data in 0, 2, 9:
    add(H, data)
two, none = '"a":' + tensor("U8", "[2]", 0, 2), "[0]"
for members, data in [(['"a":' + tensor(begin=1, end=2)], 2), ([A, '"b":' + tensor(begin=2, end=3)], 3), ([A, '"b":' + tensor()], 1),
                      ([two, '"e":' + tensor("U8", none, 1, 1)], 2), ([two, '"e":' + tensor("U8", none, 2, 2)], 2),
                      ([two, '"e":' + tensor("U8", none, 0, 0)], 2), (['"e":' + tensor("U8", none, 1, 1)], 1),
                      (['"e":' + tensor("U8", none, 0, 0), '"f":' + tensor("F32", none, 0, 0)], 0), ([B, A], 2)]:
    add("{" + ",".join(members) + "}", data)

# dtypes: those that the reference has
for dtype, shape, size in [("BOOL", 1, 1), ("F4", 2, 1), ("F6_E2M3", 4, 3), ("F6_E3M2", 4, 3), ("U8", 1, 1), ("I8", 1, 1),
                           ("F8_E5M2", 1, 1), ("F8_E4M3", 1, 1), ("F8_E8M0", 1, 1), ("F8_E4M3FNUZ", 1, 1), ("F8_E5M2FNUZ", 1, 1),
                           ("I16", 1, 2), ("U16", 1, 2), ("F16", 1, 2), ("BF16", 1, 2), ("I32", 1, 4), ("U32", 1, 4), ("F32", 1, 4),
                           ("C64", 1, 8), ("F64", 1, 8), ("I64", 1, 8), ("U64", 1, 8)]:
    for more in 0, 1:
        add('{"a":' + tensor(dtype, "[%d]" % shape, 0, size + more) + "}", size + more)

# strings
for name in ["", "a\\u0000b", "\\ud800", "\\udc00", "\\ud83d\\ude00", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\ud83d", "\\uD83D\\uDE00",
             "\\u00E4", "\\/", "\\x41", "\\u12", "\\u00g0", "\\", "\\u", "\\U0041", "\\'", "a\nb", "a\tb", "a\x1fb", "a\x7fb",
             "\u0080", "\ufffe", "\U0010ffff", "\\ufffe", "\\b\\f\\n\\r\\t\\\"\\\\", "\\B", "a\0b", "\u202e", "\\ude00\\ud83d"]:
    add('{"' + name + '":' + tensor() + "}")
for wrong in [b"\x80", b"\xc0\x80", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xff"]:
    add(b'{"' + wrong + b'":' + tensor().encode() + b"}")
    add(b'{"__metadata__":{"k":"' + wrong + b'"},' + A.encode() + b"}")
    add(H.encode() + wrong)


def accepts(text, data):
    try:
        safetensors.deserialize(struct.pack("<Q", len(text)) + text + bytes(data))
        return True
    except safetensors.SafetensorError:
        return False


for text, data in cases:
    shown = "".join(chr(c) if 32 <= c < 127 and c != 92 else "\\x%02x" % c for c in text)
    print("accept" if accepts(text, data) else "refuse", data, shown)
