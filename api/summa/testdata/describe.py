"""Prints what the installed summa-client-python says on the wire: one line for each field, enum value and call, sorted."""

from google.protobuf.descriptor import FieldDescriptor as F

from summa_client_python import summa_pb2

TYPES = {getattr(F, n): n[5:].lower() for n in dir(F) if n.startswith("TYPE_")}


def field(f):
    t = TYPES[f.type]
    if f.message_type:
        t += " " + f.message_type.full_name
    if f.enum_type:
        t += " " + f.enum_type.full_name
    shape = "repeated" if f.is_repeated else "single"
    if f.containing_oneof is not None:
        shape = "optional" if f.containing_oneof.name == "_" + f.name else "oneof=" + f.containing_oneof.name
    return f"{f.containing_type.full_name} {f.number} {f.name} {shape} {t}"


def messages(all):
    for m in all:
        yield f"{m.full_name} message"
        yield from map(field, m.fields)
        yield from messages(m.nested_types)


def listing(file):
    yield from messages(file.message_types_by_name.values())
    for e in file.enum_types_by_name.values():
        for v in e.values:
            yield f"{e.full_name} {v.number} {v.name} value"
    for s in file.services_by_name.values():
        for m in s.methods:
            stream = "stream" if m.client_streaming else "call"
            yield f"{s.full_name} {m.name} {stream} {m.input_type.full_name} {m.output_type.full_name}"


print("\n".join(sorted(listing(summa_pb2.DESCRIPTOR))))
