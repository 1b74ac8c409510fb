//! The list of all fuzz targets with their seeds.

use crate::*;

/// A fuzz target.
pub struct Target {
    /// Name of its file in `fuzz_targets/`.
    pub name: &'static str,
    /// The function to run on each input.
    pub run: fn(&[u8]),
    /// Number of mutations that the smoke test runs.
    pub runs: u32,
    /// Valid or nearly valid inputs. The smoke test mutates them.
    pub seeds: &'static [&'static [u8]],
}

/// Number of mutations of a quick target.
const RUNS: u32 = 30_000;

/// All fuzz targets. The smoke test runs each of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "proxy_protocol",
        run: proxy_preamble,
        runs: RUNS,
        seeds: &[
            b"PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\nGET / HTTP/1.1\r\n",
            b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n",
            b"PROXY UNKNOWN ffff::1 x 0 \r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\x9c\x40\x01\xbbGET",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x01\xc6\x33\x64\x02\x9c\x40\x01\xbb\x03\0\x04\0\0\0\0",
            b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
        ],
    },
    Target {
        name: "file_path",
        run: file_path,
        runs: RUNS,
        seeds: &[
            b"/a/b.c/",
            b"/%2e%2e/%2E./..%2f.%5c..",
            b"//.well-known/acme%20x/.git",
            b"/a%00b%7f%c3%a4%",
        ],
    },
    Target {
        name: "range",
        run: range,
        runs: RUNS,
        seeds: &[
            b"bytes=0-499,1000-, -500",
            b"bytes=0-0,-1,5-9,18446744073709551615-",
            b"bytes=10-19,0-9,15-30,,7-",
            b"bytes 0-499/1234",
            b"bytes 5-9/*",
            b"bytes */1234",
        ],
    },
    Target {
        name: "trace_context",
        run: trace_context,
        runs: RUNS,
        seeds: &[
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\na=1,b@c=2\nd=3",
            b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-more\n0_-*/=x y",
            b"00-00000000000000000000000000000000-0000000000000000-00",
        ],
    },
    Target {
        name: "date",
        run: date,
        runs: RUNS,
        seeds: &[
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"SUN, 6 nov 1994 08:49:60 +0000",
            b"Sunday, 06-Nov-94 08:49:37 UTC",
            b"Sun Nov  6 08:49:37 1994",
            b"Fri, 31 Dec 9999 23:59:60 GMT",
        ],
    },
    Target {
        name: "cache_control",
        run: cache_control,
        runs: RUNS,
        seeds: &[
            b"public, max-age=60, s-maxage=\"10\", stale-while-revalidate=5, immutable",
            b"no-cache=\"set-cookie, x-a\", private, no-store, must-understand",
            b"max-stale, min-fresh=99999999999999, only-if-cached, x=\"a\\\"b, c\"",
            b"3600",
        ],
    },
    Target {
        name: "vary",
        run: vary,
        runs: RUNS,
        seeds: &[
            b"Accept-Encoding, origin,User-Agent",
            b"gzip;q=1.0, br;q=0.5, *;q=0, identity",
            b"*",
            b"a, \"b, c\" ,d",
            b"en-US, De;q=0.80, *;q=0",
        ],
    },
    Target {
        name: "conditional",
        run: conditional,
        runs: RUNS,
        seeds: &[
            b"\"a\", W/\"b\", *",
            b"W/\"a,b\"",
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"Sunday, 06-Nov-94 08:49:37 GMT",
            b"Sun Nov  6 08:49:37 1994",
        ],
    },
    Target {
        name: "target",
        run: target,
        runs: RUNS,
        seeds: &[
            b"/a/b/../c/%2e%2E/./d?x=/../y#z",
            b"http://Example.com:8080/a?b",
            b"https://[2001:db8::1]:443",
            b"*",
            b"user@host:80",
        ],
    },
    Target {
        name: "judge",
        run: judged,
        runs: RUNS,
        seeds: &[
            b"cache-control: max-age=60, private=\"set-cookie\"\r\nset-cookie: a=b\r\nage: 7, 8\r\n",
            b"sluice-cache-control: max-age=60, no-cache=\"a, b\";x=?0\r\ncache-control: no-store\r\n",
            b"surrogate-control: max-age=600+60;sluice, no-store;other, content=\"ESI/1.0\"\r\n",
            b"x-accel-expires: @784111800\r\ncache-control: private, stale-if-error=5\r\n",
            b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\nlast-modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n",
            b"expires: Sun, 06 Nov 1994 08:59:37 GMT\r\netag: W/\"x\"\r\nvary: a, b\r\n",
        ],
    },
    Target {
        name: "key_rules",
        run: key_rules,
        runs: RUNS,
        seeds: &[
            b"{scheme}{host}{path}{query}\nb=2&a=1&utm_x=3&a\na=1; lang=de",
            b"v2 {path}{header:X-Tenant}{cookie:lang}\n\nlang=\"a;b\"",
            b"{host}{path}{header:accept-language}\n&&=&%3D\nen, de;q=0.5",
        ],
    },
    Target {
        name: "location",
        run: location,
        runs: RUNS,
        seeds: &[
            b"http://a.example:80/x/../y?z#f",
            b"//A.example/%7e/./x",
            b"../../g;x=1/./../h?y/../z",
            b"?y",
        ],
    },
    Target {
        name: "signed_url",
        run: signed_url,
        runs: RUNS,
        seeds: &[
            b"/v/1/a?expires=1767225600&signature=FC7s-6bb369s8FwuYcbkJFC-1OocVyfCtm-BXdojFUcz&x=1",
            b"/v/1/a?signature=142eecfbea6dbfaecf05c22e6ef42450bed4ea1c5727c2b66f815dda23154733&prefix=%2Fv/1/&expires=1",
            b"/?&&expires&signature=&prefix=%",
        ],
    },
    Target {
        name: "authorization",
        run: authorization,
        runs: RUNS,
        seeds: &[
            b"Bearer mF_9.B5f-4.1JqM",
            b"bearer   a~b+c/0123456789==",
            b"Basic YTpi",
            b"Bearer a, Bearer b",
        ],
    },
    Target {
        name: "request_head",
        run: request_head,
        runs: RUNS,
        seeds: &[
            b"GET /a?b HTTP/1.1\r\nHost: a.example\r\nX: y \r\nTE: trailers\r\n\r\n",
            b"\r\nPOST http://a/ HTTP/1.1\r\nhost:a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
            b"PUT * HTTP/1.0\r\nContent-Length: 5\r\nConnection: close, upgrade\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\r\nX : y\r\n z\r\n\r\n",
        ],
    },
    Target {
        name: "chunked",
        run: chunked_body,
        runs: RUNS,
        seeds: &[
            b"5\r\nhello\r\n0\r\n\r\n",
            b"00a;x=\"q\\\"\";y\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
            b"ffffffffffffffff\r\n",
            b"1\r\na\n0\r\nX: y\n\r\n",
        ],
    },
    Target {
        name: "http2_header_blocks",
        run: http2_header_blocks,
        runs: RUNS,
        seeds: &[
            // The requests of RFC 7541 C.4, and its responses of C.5 with a small table.
            b"\x11\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x0c\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf\x18\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
            b"\x1b\x3f\x41H\x03302X\x07privatea\x09Mon, 2013\x07\x48\x03307\xc1\xc0\x04\x88\xc1\xbf\xbe",
            b"\x0d\x40\x01a\x01b\x10\x01c\x01d\xbe\x0f\x2f\x04\x20\x3f\xe1\x1f\x03\x00\x82\x07",
        ],
    },
    Target {
        name: "http2_frames",
        run: http2_frames,
        runs: RUNS,
        seeds: &[
            // SETTINGS, a request with padding and priority, its continuation, content, PING, WINDOW_UPDATE.
            b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\x10\0\0\0\0\x0b\x01\x28\0\0\0\x01\x02\0\0\0\0\x10\x82\x86\x84xx\0\0\x05\x09\x04\0\0\0\x01\x01\x03a.b\0\0\x02\0\x01\0\0\0\x01hi\0\0\x08\x06\0\0\0\0\012345678\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
            // A POST with several kinds of fields, and trailers.
            b"\0\0\x55\x01\x04\0\0\0\x03\x83\x87\x84\x41\x09a.example\x40\x06cookie\x03a=b\x60\x03c=d\x5c\x015\0\x02te\x08trailers\0\x08priority\x06u=1, i\0\x06expect\x0c100-continue\0\0\x09\x01\x05\0\0\0\x03\0\x05x-sum\x011",
            // Other control frames: PRIORITY, RST_STREAM, GOAWAY, PRIORITY_UPDATE, an unknown type.
            b"\0\0\x05\x02\0\0\0\0\x05\0\0\0\x03\x10\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08\0\0\x09\x07\0\0\0\0\0\0\0\0\x05\0\0\0\0x\0\0\x07\x10\0\0\0\0\0\0\0\0\x05u=1\0\0\x01\x42\xff\0\0\0\x07x",
        ],
    },
    Target {
        name: "http2_server",
        run: http2_server,
        runs: RUNS / 3,
        seeds: &[
            // SETTINGS, a request with padding and priority, its continuation, content, PING, WINDOW_UPDATE.
            b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\x10\0\0\0\0\x0b\x01\x28\0\0\0\x01\x02\0\0\0\0\x10\x82\x86\x84xx\0\0\x05\x09\x04\0\0\0\x01\x01\x03a.b\0\0\x02\0\x01\0\0\0\x01hi\0\0\x08\x06\0\0\0\0\012345678\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
            // A POST with several kinds of fields, and trailers.
            b"\0\0\x55\x01\x04\0\0\0\x03\x83\x87\x84\x41\x09a.example\x40\x06cookie\x03a=b\x60\x03c=d\x5c\x015\0\x02te\x08trailers\0\x08priority\x06u=1, i\0\x06expect\x0c100-continue\0\0\x09\x01\x05\0\0\0\x03\0\x05x-sum\x011",
            // Other control frames: PRIORITY, RST_STREAM, GOAWAY, PRIORITY_UPDATE, an unknown type.
            b"\0\0\x05\x02\0\0\0\0\x05\0\0\0\x03\x10\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08\0\0\x09\x07\0\0\0\0\0\0\0\0\x05\0\0\0\0x\0\0\x07\x10\0\0\0\0\0\0\0\0\x05u=1\0\0\x01\x42\xff\0\0\0\x07x",
            // Two requests, the second one with content; windows, a reset, and the answer to a shutdown.
            b"\0\0\x06\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01a\0\0\x06\x01\x04\0\0\0\x03\x83\x87\x84\x41\x01a\0\0\x03\0\x01\0\0\0\x03abc\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff\0\0\x04\x08\0\0\0\0\x01\0\0\xff\xff\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08\0\0\x06\x01\x05\0\0\0\x05\x82\x87\x84\x41\x01a\0\0\0\x04\x01\0\0\0\0",
        ],
    },
    Target {
        name: "http2_client",
        run: http2_client,
        runs: RUNS / 3,
        seeds: &[
            // Responses to GET and HEAD, an interim one, content and trailers, windows for an upload.
            b"\0\0\x05\x01\x04\0\0\0\x01\x88\x0f\x0d\x015\0\0\x05\0\x01\0\0\0\x01hello\0\0\x01\x01\x05\0\0\0\x03\x88\0\0\x05\x01\x04\0\0\0\x05\x08\x03103\0\0\x01\x01\x04\0\0\0\x05\x88\0\0\x02\0\0\0\0\0\x05hi\0\0\x09\x01\x05\0\0\0\x05\0\x05x-sum\x011\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff\0\0\x04\x08\0\0\0\0\x07\0\0\xff\xff",
            // Settings with one stream and no window, a refused request, a reset, and an announced end.
            b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x01\0\x04\0\0\0\0\0\0\x04\x03\0\0\0\0\x01\0\0\0\x07\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08\0\0\x08\x07\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\x01\x05\0\0\0\x05\x88",
            // A head in two frames with padding, fields of the table, PING and its answer.
            b"\0\0\x06\x01\x08\0\0\0\x01\x03\x88\x40\0\0\0\0\0\x04\x09\x04\0\0\0\x01\x01a\x01b\0\0\x06\0\x09\0\0\0\x01\x02abc\0\0\0\0\x08\x06\0\0\0\0\012345678\0\0\x08\x06\x01\0\0\0\012345678\0\0\x02\x01\x05\0\0\0\x03\x88\xbe",
        ],
    },
    Target {
        name: "http2_server_differential",
        run: http2_server_differential,
        runs: RUNS / 20,
        seeds: &[
            // A GET and a POST with content, and their responses.
            &[
                7, 200, 200, 0, 0, 64, 64, 0, 0, 0, 1, 0, 5, 1, 0, 1, 2, 2, 7, 2, 9, 0, 0, 2, 1, 99, 99, 0, 8, 255,
                255, 10, 255, 255, 8, 255, 255, 12, 0, 0, 1, 4, 3, 0, 0, 14, 0, 201, 201, 0, 10, 90, 90, 6, 0, 99, 99,
                16, 1, 80, 80, 1, 14, 0, 20, 21, 1, 4, 1, 1, 0, 3, 12, 1, 1, 0, 1, 10, 255, 255,
            ],
            // One stream at a time, small windows and a small table, resets of both sides, and other settings.
            &[
                0, 10, 10, 0, 0, 4, 4, 1, 9, 9, 0, 1, 3, 6, 255, 7, 9, 6, 200, 0, 1, 250, 250, 0, 2, 1, 0, 0, 1, 0, 3,
                0, 0, 0, 8, 255, 255, 10, 9, 9, 7, 20, 20, 1, 7, 200, 200, 0, 12, 0, 0, 3, 6, 250, 0, 4, 6, 250, 0, 1,
                90, 90, 5, 1, 7, 15, 2, 3, 17, 40, 10, 255, 255, 8, 200, 200,
            ],
            // A shutdown while requests are on their way.
            &[
                3, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 1, 8, 255, 255, 0, 1, 0, 0, 0, 17, 255, 8, 10, 10, 0, 3,
                0, 1, 10, 255, 255, 8, 255, 255, 12, 1, 3, 0, 1, 10, 255, 255, 17, 99,
            ],
        ],
    },
    Target {
        name: "http2_client_differential",
        run: http2_client_differential,
        runs: RUNS / 20,
        seeds: &[
            // A GET and a POST with content, and their responses.
            &[
                7, 200, 200, 200, 200, 0, 0, 64, 64, 7, 0, 10, 255, 255, 0, 0, 1, 0, 5, 1, 0, 1, 2, 2, 7, 2, 9, 0, 2,
                1, 99, 99, 0, 10, 255, 255, 8, 255, 255, 12, 0, 0, 1, 4, 3, 0, 0, 14, 0, 200, 200, 0, 0, 8, 90, 90, 6,
                0, 99, 99, 16, 1, 80, 80, 4, 1, 1, 0, 3, 12, 1, 1, 0, 1, 8, 255, 255, 17, 201,
            ],
            // Fewer streams than are used, small windows and a small table, resets of both sides, and other settings.
            &[
                7, 10, 10, 10, 10, 0, 0, 4, 4, 0, 1, 9, 9, 0, 1, 3, 6, 255, 7, 9, 6, 200, 0, 0, 1, 0, 0, 0, 2, 1, 1, 0,
                1, 0, 0, 2, 0, 60, 60, 1, 10, 255, 255, 8, 9, 9, 7, 20, 20, 1, 7, 200, 200, 0, 12, 0, 0, 3, 6, 250, 0,
                4, 6, 250, 0, 1, 90, 90, 5, 1, 7, 15, 2, 3, 17, 40, 10, 255, 255, 8, 200, 200,
            ],
            // A shutdown while requests are on their way.
            &[
                3, 255, 255, 255, 255, 255, 255, 0, 0, 7, 0, 10, 255, 255, 0, 0, 0, 1, 10, 255, 255, 0, 1, 0, 0, 17,
                255, 8, 255, 255, 0, 3, 0, 1, 10, 255, 255, 8, 255, 255, 12, 1, 3, 0, 1, 10, 255, 255, 17, 99,
            ],
        ],
    },
    Target {
        name: "volume",
        run: volume,
        runs: RUNS,
        seeds: &[
            b"\x89SLUICE\n\x01\0\0\0",
            b"\x44\0\x05\x48\0\xff\x4b\0\x01\x3c\0\x02\x28\0\x10\x38\0\x08",
            b"key of 16 bytes.space...version.born_seqpart\x40\0\0\x01\x01\0\0\0",
        ],
    },
    Target {
        name: "tls_connection",
        run: tls_connection,
        runs: 600,
        seeds: &[
            // A request over TLS 1.3, new keys, and another one.
            b"\0\0$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\x07\0\0=POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello\x08\x02\0\0",
            // A client of TLS 1.2 with little room that stops reading.
            b"\x03\0$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\x09\x02\0\x01\0$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\x09\x02\0\0\x08\x02\0\x01",
            // Parts of a handshake, a damaged byte, and a reset.
            b"\0\x06\x01\x05\x06\x01\x80\x80$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\x03\x03\0@\x01\x09\x02\0\x03",
            // A repeated record, and a missing end.
            b"\x01\0\0\x80$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\x05\x01\x10\x04\x01\x03",
            // Bytes without TLS of their own: a ClientHello, an alert, empty records, a request.
            b"\x04\x02>\x16\x03\x01\09\x01\0\05\x03\x03\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\0\0\x04\xc0+\0/\x01\0\0\x08\0\r\0\x04\0\x02\x04\x03\x02\x07\x15\x03\x03\0\x02\x01\0\x02\x0f\x17\x03\x03\0\0\x17\x03\x03\0\0\x17\x03\x03\0\0\x02$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            // Renegotiation is a ClientHello within the session.
            b"\x01\0$GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n\x02>\x16\x03\x01\09\x01\0\05\x03\x03\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\0\0\x04\xc0+\0/\x01\0\0\x08\0\r\0\x04\0\x02\x04\x03\x02\x06\x14\x03\x03\0\x01\x01",
        ],
    },
];
