package connlimit

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/pulse/pulsetest"
)

// serveWriter hijacks connections and writes to each of them until a write fails. It sends the error to the channel ended.
func serveWriter(t *testing.T, overTLS bool) (addr string, ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
		c.Close()
		ended <- err
	}))
	l := Listen(srv.Listener, Config{PortName: "a test", MaxConnections: 4, Sessions: 4, Silence: 2 * time.Second, Log: quiet})
	srv.Listener = l
	Watch(srv.Config)
	if overTLS {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return l.Addr().String(), ended
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := pulsetest.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sendRequest sends a request and reads the first bytes of the response.
func sendRequest(t *testing.T, raw net.Conn, overTLS bool) net.Conn {
	t.Helper()
	c := raw
	if overTLS {
		c = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestVanished checks that a write to a lost client fails shortly after Config.Silence. A write to a client that has only stopped reading
// continues to wait.
func TestVanished(t *testing.T) {
	for name, overTLS := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, ended := serveWriter(t, overTLS)
			c := dial(t, addr)
			sendRequest(t, c, overTLS)
			if err := pulsetest.CutLink(c); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, errLost) {
				t.Errorf("a client that vanishes: %v", err)
			}
			c = dial(t, addr)
			session := sendRequest(t, c, overTLS)
			select {
			case err := <-ended:
				t.Errorf("a client that stops: %v", err)
			case <-time.After(10 * time.Second): // Config.Silence is two seconds
			}
			if _, err := io.CopyN(io.Discard, session, 32<<20); err != nil {
				t.Errorf("a client that goes on: %v", err)
			}
			c.Close()
			if err := <-ended; err == nil || errors.Is(err, errLost) {
				t.Errorf("a client that hangs up: %v", err)
			}
		})
	}
}
