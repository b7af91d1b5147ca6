package node

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// An answer is a hostile server's response.
type answer struct {
	name, kind string
	body       []byte // compressed with gzip
}

// answersOf compresses texts and returns them as responses, sorted by name.
func answersOf(t *testing.T, kind string, texts map[string]string) (all []answer) {
	t.Helper()
	for name, text := range texts {
		all = append(all, answer{name, kind, packed(t, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })})
	}
	slices.SortFunc(all, func(a, b answer) int { return strings.Compare(a.name, b.name) })
	return all
}

// listBombs returns responses of a manifest server, or of an API server to any request except a watch.
func listBombs(t *testing.T) []answer {
	const pods = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`
	all := answersOf(t, "application/json", map[string]string{
		"spaces":   strings.Repeat(" ", 64<<20),
		"empty":    pods + strings.Repeat("{},", 2_000_000) + "{}]}",
		"null":     pods + strings.Repeat("null,", 1_500_000) + "null]}",
		"nested":   pods + strings.Repeat("[", 4<<20),
		"name":     `{"` + strings.Repeat("x", 7<<20) + `":0}`,
		"fields":   `{"kind":"Node","apiVersion":"v1","metadata":{"annotations":{` + strings.Repeat(`"":"",`, 1_200_000) + `"":""}}}`,
		"managed":  `{"kind":"Node","apiVersion":"v1","metadata":{"managedFields":[` + strings.Repeat("{},", 2_000_000) + `{}]}}`,
		"no kind":  `{"items":[` + strings.Repeat("null,", 1_500_000) + "null]}",
		"a status": `{"kind":"Status","apiVersion":"v1","details":{"causes":[` + strings.Repeat("{},", 2_000_000) + `{}]}}`,
	})
	envelope := "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x80\x80\x80\x02" // the header of a list of 4 MiB
	return append(all, answersOf(t, "application/vnd.kubernetes.protobuf", map[string]string{"protobuf": envelope + strings.Repeat("\x12\x00", 2<<20)})...)
}

// watchBombs returns responses of an API server to a watch of pods.
func watchBombs(t *testing.T) []answer {
	const pod = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"d","uid":"u"},"spec":`
	return answersOf(t, "application/json", map[string]string{
		"event of null":    pod + `{"containers":[` + strings.Repeat("null,", 700_000) + `null]}}}`,
		"event of fields":  pod + `{"nodeSelector":{` + strings.Repeat(`"":"",`, 600_000) + `"":""}}}}`,
		"event of a name":  `{"type":"ADDED","` + strings.Repeat("x", 64<<20),
		"event of a depth": strings.Repeat(`{"object":`, 1<<20),
		"events":           strings.Repeat(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"2"}}}`, 50_000),
	})
}

// A hostileServer responds to requests with its bombs in turn.
type hostileServer struct {
	lists, watches []answer

	mu   sync.Mutex
	sent map[string]int // by name of the bomb
	next map[string]int // number of requests, by method, path and kind of bomb
	good map[string]string
}

// nextBomb selects the response to a request: the bomb that was sent least often. For a correct response, the returned bomb is nil.
func (s *hostileServer) nextBomb(r *http.Request) (bomb *answer, good string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.lists
	if r.URL.Query().Get("watch") != "" {
		from = s.watches
	}
	asked := fmt.Sprint(r.Method, r.URL.Path, len(from))
	n := s.next[asked]
	s.next[asked]++
	if good, known := s.good[r.Method+" "+r.URL.Path]; known && r.URL.Query().Get("watch") == "" && n%2 == 0 {
		return nil, good
	}
	bomb = &from[0]
	for i := range from {
		if s.sent[from[i].name] < s.sent[bomb.name] {
			bomb = &from[i]
		}
	}
	s.sent[bomb.name]++
	return bomb, ""
}

// unsentBombs returns the names of the bombs that were sent less often than the given number of times.
func (s *hostileServer) unsentBombs(times int) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range slices.Concat(s.lists, s.watches) {
		if s.sent[a.name] < times {
			names = append(names, a.name)
		}
	}
	return names
}

// ServeHTTP implements http.Handler.
func (s *hostileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		_, _ = io.WriteString(w, "ok")
		return
	}
	bomb, good := s.nextBomb(r)
	if bomb == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, good)
		return
	}
	w.Header().Set("Content-Type", bomb.kind)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.body)
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(bomb.body))
	if err == nil {
		_, _ = io.Copy(w, z)
	}
}

// signed returns a self-signed certificate for 127.0.0.1, and its PEM encoding.
func signed(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

const (
	emptyPods = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
	emptyNode = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"edge","uid":"n","resourceVersion":"1"}}`
)

// TestServerBombs checks that the agent survives an API server and a manifest server that send bombs. The API server responds with a bomb
// to every watch and to at least every second request. The manifest server responds with a bomb to each request. The agent's memory limit
// is 96 MiB above its own usage.
func TestServerBombs(t *testing.T) {
	t.Parallel()
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("waits for the agent to ask for each bomb, at its own pace: ISLET_TEST_LONG=1")
	}
	cert, ca := signed(t)
	api := &hostileServer{lists: listBombs(t), watches: watchBombs(t), sent: map[string]int{}, next: map[string]int{}, good: map[string]string{
		"GET /api/v1/pods": emptyPods, "GET /api/v1/nodes/edge": emptyNode, "POST /api/v1/nodes": emptyNode, "PATCH /api/v1/nodes/edge/status": emptyNode,
		"GET /api/v1/namespaces/default/services/kubernetes": `{"kind":"Service","apiVersion":"v1","metadata":{"name":"kubernetes","namespace":"default","uid":"s"}}`,
	}}
	url := &hostileServer{lists: append(listBombs(t), answersOf(t, "application/yaml", textBombs())...), sent: map[string]int{}, next: map[string]int{}}
	b := bombedMachine(t)
	serveInside(t, b.Machine, "127.0.0.1:6443", func(ln net.Listener) error {
		s := &http.Server{Handler: api, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0)}
		defer s.Close()
		return s.ServeTLS(ln, "", "")
	})
	serveInside(t, b.Machine, "127.0.0.1:8088", func(ln net.Listener) error { return http.Serve(ln, url) })
	b.Write("kubeconfig", fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: %s}}]}`,
		base64.StdEncoding.EncodeToString(ca)))
	b.start("httpCheckFrequency: 1s\nnodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 1s\nnodeLeaseDurationSeconds: 4\n",
		"--kubeconfig="+b.Disk+"/kubeconfig", "--manifest-url=http://127.0.0.1:8088/pods")
	for what, s := range map[string]*hostileServer{"the API server": api, "the server of manifests": url} {
		for n := len(s.unsentBombs(1)); n > 0; n = len(s.unsentBombs(1)) {
			b.Await(fmt.Sprintf("%s to be asked for one of %q", what, s.unsentBombs(1)), func() bool {
				b.checkAlive("bombs of " + what)
				return len(s.unsentBombs(1)) < n
			})
		}
	}
	b.checkAlive("all")
	requireSame(t, b.before, b.Pods()["good-edge"])
}

// TestPortBombs checks that the agent survives 400 clients at each of its ports. Each client sends headers of the maximum length, and then
// keeps its connection open. The agent must respond to health checks meanwhile. The agent's memory limit is 96 MiB above its own usage.
func TestPortBombs(t *testing.T) {
	t.Parallel()
	b := bombedMachine(t)
	_, ca := signed(t)
	b.Write("ca.crt", string(ca))
	b.start("readOnlyPort: 10255\nauthentication: {x509: {clientCAFile: " + b.Disk +
		"/ca.crt}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n")
	var text strings.Builder
	text.WriteString("GET /stats/summary HTTP/1.1\r\nHost: x\r\n")
	for i := 0; text.Len() < 64<<10; i++ {
		fmt.Fprintf(&text, "%x:\n", i)
	}
	for _, port := range []string{"10248", "10250", "10255"} {
		var conns []net.Conn
		for i := range 400 {
			c, err := b.Dial(t.Context(), "tcp", "127.0.0.1:"+port)
			if err != nil {
				t.Fatalf("connection %d to %s: %v", i, port, err)
			}
			if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		var all sync.WaitGroup
		for i, c := range conns {
			all.Go(func() {
				if port == "10250" {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: [][]string{{"http/1.1"}, nil}[i%2]})
				}
				_, _ = io.WriteString(c, text.String()) // the agent may close this connection in favour of others
			})
		}
		all.Wait()
		b.checkAlive("headers at " + port)
		if port == "10248" {
			b.Await("the health check to succeed", func() bool {
				b.checkAlive("headers at " + port)
				client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: b.Dial, DisableKeepAlives: true}}
				resp, err := client.Get("http://127.0.0.1:10248/healthz")
				if err == nil {
					_ = resp.Body.Close()
				}
				return err == nil && resp.StatusCode == http.StatusOK
			})
		}
		for _, c := range conns {
			_ = c.Close()
		}
		b.checkAlive("clients of " + port)
	}
	b.well()
}
