package node

import (
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// serveInside listens on an address in the machine's network namespace and serves until the test ends.
func serveInside(t *testing.T, m *machine.Machine, address string, serve func(net.Listener) error) {
	t.Helper()
	var ln net.Listener
	if err := machine.InNetwork(m.Pid(), func() (err error) { ln, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = serve(ln) })
	t.Cleanup(func() { ln.Close(); served.Wait() })
}

// serveTrusted serves TLS on the loopback interface of a machine until the test ends. Agents and commands that start afterwards trust the
// certificate.
func serveTrusted(t testing.TB, m *machine.Machine, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	if err := machine.InNetwork(m.Pid(), func() (err error) {
		s.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	m.Write("server.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	m.Env = append(m.Env, "SSL_CERT_FILE="+m.Disk+"/server.crt")
	return s
}
