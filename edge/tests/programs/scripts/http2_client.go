// A client with net/http that checks downloads, ranges, uploads, trailers and many requests at a time over HTTP/2.
//
// Arguments: URL of the edge and the file of the authority's certificate.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

const size = 3 << 20

// The file holds its own offset every ten bytes.
func file() []byte {
	var text bytes.Buffer
	for position := 0; position < size; position += 10 {
		fmt.Fprintf(&text, "%09d\n", position%1_000_000_000)
	}
	return text.Bytes()[:size]
}

type edge struct {
	client *http.Client
	url    string
	file   []byte
}

func (e edge) send(request *http.Request) (*http.Response, []byte) {
	response, err := e.client.Do(request)
	check(err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	check(err)
	expect(response.Proto, "HTTP/2.0")
	return response, content
}

func (e edge) request(method, path string, body io.Reader) *http.Request {
	request, err := http.NewRequest(method, e.url+path, body)
	check(err)
	return request
}

func (e edge) downloads() {
	response, content := e.send(e.request("GET", "/file", nil))
	expect(response.StatusCode, 200)
	expectBytes(content, e.file)
	again := e.request("GET", "/file", nil)
	again.Header.Set("If-None-Match", response.Header.Get("Etag"))
	response, _ = e.send(again)
	expect(response.StatusCode, 304)
	response, _ = e.send(e.request("HEAD", "/file", nil))
	expect(response.ContentLength, int64(size))
}

func (e edge) many() {
	var group sync.WaitGroup
	// If a connection has no room for a request, Go opens another one.
	for worker := 0; worker < 50; worker++ {
		first := worker * 6
		group.Add(1)
		go func() {
			defer group.Done()
			for number := first; number < first+6; number++ {
				begin := number * 10_000
				request := e.request("GET", "/file", nil)
				request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", begin, begin+9999))
				response, content := e.send(request)
				expect(response.StatusCode, 206)
				expectBytes(content, e.file[begin:begin+10_000])
			}
		}()
	}
	group.Wait()
}

func (e edge) uploads() {
	_, content := e.send(e.request("POST", "/pass/echo", bytes.NewReader(e.file)))
	expectBytes(content, e.file)
	// The length of the content is not announced, and trailers follow.
	request := e.request("POST", "/pass/echo", io.MultiReader(bytes.NewReader(e.file)))
	request.Trailer = http.Header{"X-Sum": {"1234"}}
	_, content = e.send(request)
	expectBytes(content, e.file)
	request = e.request("POST", "/pass/echo", bytes.NewReader(e.file))
	request.Header.Set("Expect", "100-continue")
	_, content = e.send(request)
	expectBytes(content, e.file)
}

func (e edge) trailers() {
	request := e.request("GET", "/pass/trailers", nil)
	request.Header.Set("TE", "trailers")
	response, content := e.send(request)
	expectBytes(content, []byte("text"))
	expect(response.Trailer.Get("X-Checksum"), "1234")
}

func (e edge) abandoned() {
	for times := 0; times < 20; times++ {
		ctx, cancel := context.WithCancel(context.Background())
		response, err := e.client.Do(e.request("GET", "/file", nil).WithContext(ctx))
		check(err)
		part := make([]byte, 1000)
		_, err = io.ReadFull(response.Body, part)
		check(err)
		expectBytes(part, e.file[:1000])
		cancel()
		response.Body.Close()
	}
	// A body that fails resets its stream.
	broken := io.MultiReader(bytes.NewReader(e.file[:100_000]), failing{})
	response, err := e.client.Do(e.request("POST", "/pass/echo", broken))
	// The response may have begun before.
	if err == nil {
		_, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	if err == nil {
		panic("a response to a broken body is complete")
	}
	// The connection goes on.
	e.downloads()
}

var errBroken = errors.New("a broken body")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect[T comparable](found, expected T) {
	if found != expected {
		panic(fmt.Sprintf("%v, not %v", found, expected))
	}
}

func expectBytes(found, expected []byte) {
	if !bytes.Equal(found, expected) {
		panic(fmt.Sprintf("%d bytes differ from the expected %d", len(found), len(expected)))
	}
}

func main() {
	authority, err := os.ReadFile(os.Args[2])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	e := edge{&http.Client{Transport: transport}, os.Args[1], file()}
	e.downloads()
	e.many()
	e.uploads()
	e.trailers()
	e.abandoned()
}
