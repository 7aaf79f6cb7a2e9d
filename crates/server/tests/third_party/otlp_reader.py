"""Reads export requests of traces with OpenTelemetry's own definitions of the protocol. `python3 otlp_reader.py` reads a JSON list of
requests from the standard input and prints a JSON list of the spans that it understood. A field that the protocol does not have is
an error."""
import base64
import json
import sys

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# The JSON of OTLP writes ids as hexadecimal digits, and that of protobuf as base64.
LENGTHS = {"traceId": 32, "spanId": 16, "parentSpanId": 16}


def with_base64(value):
    if isinstance(value, list):
        return [with_base64(element) for element in value]
    if not isinstance(value, dict):
        return value
    for name, length in LENGTHS.items():
        if name in value:
            assert len(value[name]) == length and value[name] == value[name].lower(), value[name]
    ids = {name: base64.b64encode(bytes.fromhex(value[name])).decode() for name in LENGTHS if name in value}
    return {name: with_base64(member) for name, member in value.items()} | ids


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def read(request, spans):
    for resource in ParseDict(with_base64(request), ExportTraceServiceRequest()).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                spans.append(
                    {
                        "service": attributes(resource.resource.attributes)["service.name"],
                        "trace": span.trace_id.hex(),
                        "span": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "name": span.name,
                        "kind": span.kind,
                        "nanos": span.end_time_unix_nano - span.start_time_unix_nano,
                        "attributes": attributes(span.attributes),
                        "links": [link.span_id.hex() for link in span.links],
                        "status": span.status.code,
                    }
                )


spans = []
for request in json.load(sys.stdin):
    read(request, spans)
print(json.dumps(spans))
