"""A gRPC client that calls all methods of `grpc_server.py` and checks the results.

Arguments: `all` to call all methods, or `many` for many calls of one; address of the server; for TLS, the file of the
authority's certificate.
"""

import itertools
import queue
import sys

import grpc

# Time limit of calls that take far less, in seconds.
SOON = 60


def method(channel, kind, name):
    # Messages are bytes, which are sent as they are.
    return getattr(channel, kind)("/test.Echo/" + name)


def check(found, expected):
    assert found == expected, f"{found!r}, not {expected!r}"


def check_unary(channel):
    unary = method(channel, "unary_unary", "Unary")
    sent = [("x-word", "value"), ("x-raw-bin", b"\x00\xff\n")]
    reply, call = unary.with_call(b"\x00\x01text", metadata=sent, timeout=SOON)
    check(reply, b"\x00\x01text")
    check(call.code(), grpc.StatusCode.OK)
    check(dict(call.initial_metadata())["x-initial"], "value")
    trailing = dict(call.trailing_metadata())
    check(trailing["x-trailing"], "value")
    check(trailing["x-raw-bin"], b"\x00\xff\n")
    check(unary(b"", timeout=SOON), b"")
    large = bytes(range(256)) * 12_000
    check(unary(large, timeout=SOON), large)
    check(unary(large, timeout=SOON, compression=grpc.Compression.Gzip), large)
    calls = [unary.future(b"%d" % number * 1000, timeout=SOON) for number in range(300)]
    for number, call in enumerate(calls):
        check(call.result(), b"%d" % number * 1000)


def check_streams(channel):
    upload = method(channel, "stream_unary", "Upload")
    reply, call = upload.with_call((b"x" * 10_000 for _ in range(500)), timeout=SOON)
    check(reply, b"500 5000000")
    check(dict(call.trailing_metadata())["x-count"], "500")
    check(upload(iter(()), timeout=SOON), b"0 0")
    call = method(channel, "unary_stream", "Download")(b"500 10000", timeout=SOON)
    for number in range(500):
        check(next(call), bytes([number % 256]) * 10_000)
    check(list(call), [])
    check(dict(call.trailing_metadata())["x-count"], "500")


def check_early_replies(channel):
    # The reply arrives before the end of the request, whether the client waits or sends.
    take_one = method(channel, "stream_unary", "TakeOne")
    words = queue.Queue()
    words.put(b"first")
    call = take_one.future(iter(words.get, None), timeout=SOON)
    check(call.result(), b"first")
    words.put(None)
    check(take_one(itertools.repeat(b"x" * 100_000), timeout=SOON), b"x" * 100_000)


def check_talk(channel):
    # Each message but the first is sent after the reply to the one before, so the streams have to be open at the same
    # time.
    words = queue.Queue()
    call = method(channel, "stream_stream", "Talk")(iter(words.get, None), timeout=SOON)
    for number in range(100):
        words.put(b"%d" % number)
        check(next(call), b"back %d" % number)
    words.put(None)
    check(list(call), [])
    check(call.code(), grpc.StatusCode.OK)
    check(dict(call.trailing_metadata())["x-count"], "100")


def failure(call):
    """Returns the error of a call that has to fail."""
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("a call has not failed")


def check_failures(channel):
    refuse = method(channel, "unary_unary", "Refuse")
    error = failure(lambda: refuse(b"", timeout=SOON))
    check(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
    check(error.details(), "100 % of the quota: größer\n")
    check(dict(error.trailing_metadata())["x-why"], "quota")
    call = method(channel, "unary_stream", "BreakOff")(b"", timeout=SOON)
    check([next(call), next(call)], [b"one", b"two"])
    error = failure(lambda: next(call))
    check(error.code(), grpc.StatusCode.DATA_LOSS)
    check(error.details(), "no third message")
    missing = method(channel, "unary_unary", "Missing")
    check(failure(lambda: missing(b"", timeout=SOON)).code(), grpc.StatusCode.UNIMPLEMENTED)


def check_early_ends(channel):
    wait = method(channel, "unary_stream", "Wait")
    await_early_end = method(channel, "unary_unary", "AwaitEarlyEnd")
    call = wait(b"")
    # Without a deadline, the time is the largest one that the library knows.
    assert float(next(call)) > 1e9
    call.cancel()
    check(await_early_end(b"", timeout=SOON), b"ended")
    # On a very slow machine, the time may be over before the server gets the call.
    messages = []
    while not messages:
        call = wait(b"", timeout=1)
        error = failure(lambda: [messages.append(message) for message in call])
        check(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    # The client rounds the time up.
    assert 0 < float(messages[0]) < 1.5, messages
    check(await_early_end(b"", timeout=SOON), b"ended")


def check_many(channel):
    unary = method(channel, "unary_unary", "Unary")
    for begin in range(0, 1000, 10):
        calls = [unary.future(b"%d" % number, timeout=SOON) for number in range(begin, begin + 10)]
        for number, call in enumerate(calls, begin):
            check(call.result(), b"%d" % number)


ALL = [check_unary, check_streams, check_early_replies, check_talk, check_failures, check_early_ends]


def main(kind, address, authority=None):
    if authority:
        with open(authority, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        channel = grpc.secure_channel(address, credentials)
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        for check_calls in {"all": ALL, "many": [check_many]}[kind]:
            check_calls(channel)
            print(check_calls.__name__, flush=True)


main(*sys.argv[1:])
