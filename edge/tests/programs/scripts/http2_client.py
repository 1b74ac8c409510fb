"""A client with httpx that checks downloads, ranges, uploads and many requests at a time over HTTP/2.

Arguments: URL of the edge and the file of the authority's certificate.
"""

import asyncio
import sys

import httpx

SIZE = 3 << 20
# The file holds its own offset every ten bytes.
FILE = b"".join(b"%09d\n" % (position % 10**9) for position in range(0, SIZE, 10))[:SIZE]


async def check_downloads(client):
    response = await client.get("/file")
    assert response.http_version == "HTTP/2", response.http_version
    assert response.status_code == 200 and response.content == FILE
    response = await client.get("/file", headers={"Range": "bytes=1000000-1999999"})
    assert response.status_code == 206 and response.content == FILE[1_000_000:2_000_000]
    etag = response.headers["etag"]
    response = await client.get("/file", headers={"If-None-Match": etag})
    assert response.status_code == 304 and response.content == b""
    response = await client.head("/file")
    assert response.status_code == 200 and response.headers["content-length"] == str(SIZE)


async def check_uploads(client):
    response = await client.post("/pass/echo", content=FILE)
    assert response.status_code == 200 and response.content == FILE

    async def parts():
        for begin in range(0, SIZE, 10_000):
            yield FILE[begin : begin + 10_000]

    # The length of the content is not announced.
    response = await client.post("/pass/echo", content=parts())
    assert response.status_code == 200 and response.content == FILE


async def check_many(client):
    async def get(number):
        begin = number * 10_000
        response = await client.get("/file", headers={"Range": f"bytes={begin}-{begin + 9999}"})
        assert response.status_code == 206 and response.content == FILE[begin : begin + 10_000]

    await asyncio.gather(*map(get, range(300)))


async def main(url, authority):
    # Without HTTP/1.1, HTTP/2 is used in clear text, too.
    async with httpx.AsyncClient(base_url=url, http1=False, http2=True, verify=authority, timeout=60) as client:
        for check in [check_downloads, check_uploads, check_many]:
            await check(client)
            print(check.__name__, flush=True)


asyncio.run(main(*sys.argv[1:]))
