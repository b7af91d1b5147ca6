package streamtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
)

// synStreams returns SYN_STREAM frames that open the given number of streams with the headers h.
func synStreams(t *testing.T, times int, h http.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	f, err := spdy.NewFramer(&b, &b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range times {
		if err := f.WriteFrame(&spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: h}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// Bombs sends control frames that are too long, or too large after decompression, in SPDY sessions. It reports an error if the server
// decompresses a frame or does not end the session. The caller's function returns the path of a new session.
func Bombs(t *testing.T, network, address, protocol string, session func() (path string)) {
	t.Helper()
	wide, long := http.Header{"Streamtype": {"error"}}, http.Header{"Streamtype": {strings.Repeat("x", 1<<20)}}
	for i := range 900 {
		wide.Set(fmt.Sprint("x-", i), strings.Repeat("x", 2000))
	}
	for name, bomb := range map[string][]byte{
		"long values":  synStreams(t, 16, long),
		"many headers": synStreams(t, 16, wide),
		"a long frame": append([]byte{0x80, 3, 0, 4, 0, 0xff, 0xff, 0xff}, make([]byte, 1<<24-1)...), // SETTINGS
		"its count": {
			0x80, 3, 0, 1, 0, 0, 0, 22, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x78, 0xbb,
			0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		},
	} {
		path := session()
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"X-Stream-Protocol-Version: %s\r\n\r\n", path, protocol)
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = c.Write(bomb) // the server may close the connection during the write
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, in); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s on %s: the session did not end", name, path)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%s on %s took %d MiB", name, path, took>>20)
		}
		c.Close()
	}
}
