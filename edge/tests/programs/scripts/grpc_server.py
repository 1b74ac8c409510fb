"""A gRPC server with methods of all four kinds, whose messages are plain bytes.

Arguments: milliseconds after which a connection ends, or 0; for TLS, the files of a certificate and its key. Prints the
port once the server listens, and ends at the end of standard input.
"""

import sys
import threading
from concurrent import futures

import grpc

# Tells that the server has seen the end of a call that was not complete.
ended_early = threading.Semaphore(0)


def unary(request, context):
    """Returns the request, with the metadata of the request in both kinds of metadata."""
    sent = dict(context.invocation_metadata())
    context.send_initial_metadata([("x-initial", sent.get("x-word", ""))])
    context.set_trailing_metadata([("x-trailing", sent.get("x-word", "")), ("x-raw-bin", sent.get("x-raw-bin", b""))])
    return request


def upload(requests, context):
    """Returns the number of messages and their bytes."""
    lengths = [len(request) for request in requests]
    context.set_trailing_metadata([("x-count", str(len(lengths)))])
    return b"%d %d" % (len(lengths), sum(lengths))


def take_one(requests, context):
    """Returns the first message, and reads no others."""
    return next(requests)


def download(request, context):
    """Returns as many messages of as many bytes as the request says."""
    count, size = map(int, request.split())
    for number in range(count):
        yield bytes([number % 256]) * size
    context.set_trailing_metadata([("x-count", str(count))])


def talk(requests, context):
    """Returns each message as soon as it arrives."""
    count = 0
    for request in requests:
        count += 1
        yield b"back " + request
    context.set_trailing_metadata([("x-count", str(count))])


def refuse(request, context):
    """Fails without a message."""
    context.set_trailing_metadata([("x-why", "quota")])
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "100 % of the quota: größer\n")


def break_off(request, context):
    """Fails after two messages."""
    yield b"one"
    yield b"two"
    context.abort(grpc.StatusCode.DATA_LOSS, "no third message")


def wait(request, context):
    """Returns the time that the call has left, then waits for the end of the call."""
    over = threading.Event()

    def end():
        ended_early.release()
        over.set()

    if not context.add_callback(end):
        end()
    yield b"%f" % context.time_remaining()
    over.wait()


def await_early_end(request, context):
    """Returns once a call of `wait` has ended."""
    ended_early.acquire()
    return b"ended"


def main(age, *files):
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Upload": grpc.stream_unary_rpc_method_handler(upload),
        "TakeOne": grpc.stream_unary_rpc_method_handler(take_one),
        "Download": grpc.unary_stream_rpc_method_handler(download),
        "Talk": grpc.stream_stream_rpc_method_handler(talk),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
        "BreakOff": grpc.unary_stream_rpc_method_handler(break_off),
        "Wait": grpc.unary_stream_rpc_method_handler(wait),
        "AwaitEarlyEnd": grpc.unary_unary_rpc_method_handler(await_early_end),
    }
    options = [("grpc.max_connection_age_ms", int(age))] if int(age) else []
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=options)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", handlers)])
    if files:
        certificate, key = (open(file, "rb").read() for file in files)
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on {port}", flush=True)
    sys.stdin.read()
    server.stop(None).wait()


main(*sys.argv[1:])
