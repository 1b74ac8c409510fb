// A server with net/http that speaks HTTP/2 over TLS.
//
// Arguments: files of the certificate and its key. Prints the port once the server listens.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Returns content that holds its own offset every ten bytes.
func offset(size int) []byte {
	var text bytes.Buffer
	for position := 0; position < size; position += 10 {
		fmt.Fprintf(&text, "%09d\n", position)
	}
	return text.Bytes()[:size]
}

func answer(response http.ResponseWriter, request *http.Request) {
	if request.ProtoMajor != 2 {
		http.Error(response, "not HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	switch {
	case request.URL.Path == "/x":
		response.Header().Set("Cache-Control", "max-age=3600")
		response.Header().Set("Etag", `"1"`)
		http.ServeContent(response, request, "x.bin", time.Time{}, bytes.NewReader(large))
	case strings.HasSuffix(request.URL.Path, "/echo"):
		// A client may send all of its content before it reads.
		content, err := io.ReadAll(request.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		response.Write(content)
	default:
		response.Write(small)
	}
}

var large, small = offset(3_000_000), offset(5000)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("listening on", listener.Addr())
	panic(http.ServeTLS(listener, http.HandlerFunc(answer), os.Args[1], os.Args[2]))
}
