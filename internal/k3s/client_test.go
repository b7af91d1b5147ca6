package k3s_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

// client returns a client with the token of the cluster.
func client(t *testing.T, s *k3stest.Server) *k3s.Client {
	t.Helper()
	token, err := k3s.ParseToken(s.Token())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := k3s.FetchCA(t.Context(), s.URL, token, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k3s.New(k3s.Config{Server: s.URL, CA: ca, Token: token, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var node = k3s.Node{Name: "pi", Password: "p", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fe80::1%eth0")}}

// TestFetchCA checks that only the CA of the token is accepted, and that a short token needs consent.
func TestFetchCA(t *testing.T) {
	s := k3stest.Start(t)
	other := k3s.Token{CAHash: strings.Repeat("00", 32), Password: k3stest.Secret}
	if _, err := k3s.FetchCA(t.Context(), s.URL, other, true); err == nil || !strings.Contains(err.Error(), s.Hash()) {
		t.Errorf("a CA with another hash: %v", err)
	}
	s.Requests()
	if _, err := k3s.FetchCA(t.Context(), s.URL, k3s.Token{Password: k3stest.Secret}, false); err == nil || len(s.Requests()) > 0 {
		t.Errorf("a short token: %v", err)
	}
	if ca, err := k3s.FetchCA(t.Context(), s.URL, k3s.Token{Password: k3stest.Secret}, true); err != nil || !bytes.Equal(ca, s.Serving.PEM) {
		t.Errorf("a short token with consent: %v", err)
	}
	for _, address := range []string{"http://127.0.0.1:1", "https://", "https://u:p@h", "https://h/path", "h:6443", "https://h?x", "\x00"} {
		if _, err := k3s.ParseServer(address); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
	if u, err := k3s.ParseServer("https://h/"); err != nil || u.String() != "https://h:6443" {
		t.Errorf("%v, %v", u, err)
	}
}

// TestMiddle checks that a stranger between the node and its server gets neither the token nor the password. It sends the real CA, with
// a CA of its own or with a certificate of a node whose key it has.
func TestMiddle(t *testing.T) {
	real, stranger := k3stest.NewCA(t, "real"), k3stest.Start(t)
	intermediate := real.Issue(t, "intermediate")
	sum := sha256.Sum256(derOf(real.PEM))
	token := k3s.Token{CAHash: hex.EncodeToString(sum[:]), Password: k3stest.Secret}
	leaf, err := real.Sign(&x509.Certificate{Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, publicKey(t), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, bundle := range map[string][][]byte{
		"a CA at the end":      {intermediate, real.PEM, stranger.Serving.PEM},
		"a CA in between":      {intermediate, stranger.Serving.PEM, real.PEM},
		"a CA at the begin":    {stranger.Serving.PEM, intermediate, real.PEM},
		"a leaf at the begin":  {leaf, real.PEM},
		"a leaf and a CA":      {leaf, stranger.Serving.PEM},
		"the real CA and leaf": {intermediate, leaf, real.PEM},
	} {
		text := bytes.Join(bundle, nil)
		stranger.Answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/cacerts" {
				w.Write(text)
			} else {
				t.Errorf("%s: %s was requested", name, r.URL)
			}
			return true
		}
		ca, err := k3s.FetchCA(t.Context(), stranger.URL, token, false)
		if err != nil {
			continue
		}
		if want := append(slices.Clone(intermediate), real.PEM...); !bytes.Equal(ca, want) {
			t.Errorf("%s: the CA is\n%s\nwant\n%s", name, ca, want)
		}
		c, err := k3s.New(k3s.Config{Server: stranger.URL, CA: ca, Token: token, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Settings(t.Context()); err == nil {
			t.Errorf("%s: the stranger is the server", name)
		}
	}
	// The server of the real CA is accepted.
	server := k3stest.Start(t)
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/cacerts" {
			w.Write(server.Serving.Issue(t, "another"))
			w.Write(server.Serving.PEM)
		}
		return r.URL.Path == "/cacerts"
	}
	sum = sha256.Sum256(derOf(server.Serving.PEM))
	token.CAHash = hex.EncodeToString(sum[:])
	ca, err := k3s.FetchCA(t.Context(), server.URL, token, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k3s.New(k3s.Config{Server: server.URL, CA: ca, Token: token, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Settings(t.Context()); err != nil {
		t.Error(err)
	}
}

// derOf returns the content of a PEM block.
func derOf(text []byte) []byte {
	block, _ := pem.Decode(text)
	return block.Bytes
}

// publicKey returns a public key.
func publicKey(t *testing.T) any {
	t.Helper()
	key, err := x509.ParsePKIXPublicKey(mustKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestIssue checks both certificates, with a key of the node and with a key of the server, and with each kind of credentials.
func TestIssue(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s := k3stest.Start(t)
		s.SharedKey = shared
		c := client(t, s)
		clients, servers, err := c.CAs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		serving, err := c.Issue(t.Context(), k3s.ForServing, node, servers)
		if err != nil {
			t.Fatal(err)
		}
		if !serving.Covers([]netip.Addr{netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("fe80::1")}) ||
			serving.Covers([]netip.Addr{netip.MustParseAddr("192.0.2.8")}) || serving.SharedKey != shared {
			t.Errorf("shared %t: the certificate has the addresses %v", shared, serving.Leaf.IPAddresses)
		}
		pair, err := c.Issue(t.Context(), k3s.ForClient, node, clients)
		if err != nil {
			t.Fatal(err)
		}
		again, err := k3s.ParsePair(pair.PEM)
		if err != nil {
			t.Fatal(err)
		}
		own, err := k3s.New(k3s.Config{Server: s.URL, CA: servers, Certificate: again.TLS(), Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Prove(t.Context(), s.URL, "pi"); err != nil {
			t.Error(err)
		}
		if err := own.Prove(t.Context(), s.URL, "other"); !k3s.IsRefused(err) {
			t.Errorf("another node: %v", err)
		}
		if _, err := own.Issue(t.Context(), k3s.ForClient, node, clients); err != nil {
			t.Errorf("by the certificate: %v", err)
		}
		bearer, err := k3s.New(k3s.Config{Server: s.URL, CA: servers, Token: k3s.Token{Bearer: k3stest.BootstrapToken}, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bearer.Settings(t.Context()); err != nil {
			t.Error(err)
		}
		wrong := node
		wrong.Password = "another"
		var status *k3s.StatusError
		if _, err := c.Issue(t.Context(), k3s.ForClient, wrong, clients); !errors.As(err, &status) || status.Code != http.StatusForbidden ||
			!strings.Contains(err.Error(), "password") {
			t.Errorf("another password: %v", err)
		}
	}
}

// TestLies checks that a node accepts only its own certificate, for the right purpose, of the right CA, with its own key.
func TestLies(t *testing.T) {
	s := k3stest.Start(t)
	c := client(t, s)
	stranger := k3stest.NewCA(t, "stranger")
	key := publicKey(t)
	right := func() *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "system:node:pi", Organization: []string{"system:nodes"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	}
	lies := map[string]func() ([]byte, error){
		"another node": func() ([]byte, error) {
			template := right()
			template.Subject.CommonName = "system:node:other"
			return s.Client.Sign(template, csrKey(s), time.Hour)
		},
		"another group": func() ([]byte, error) {
			template := right()
			template.Subject.Organization = []string{"system:masters"}
			return s.Client.Sign(template, csrKey(s), time.Hour)
		},
		"another purpose": func() ([]byte, error) {
			template := right()
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			return s.Client.Sign(template, csrKey(s), time.Hour)
		},
		"another CA":  func() ([]byte, error) { return stranger.Sign(right(), csrKey(s), time.Hour) },
		"another key": func() ([]byte, error) { return s.Client.Sign(right(), key, time.Hour) },
		"expired":     func() ([]byte, error) { return s.Client.Sign(right(), csrKey(s), -time.Hour) },
		"nothing":     func() ([]byte, error) { return nil, nil },
		"text": func() ([]byte, error) {
			return []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), nil
		},
	}
	for name, lie := range lies {
		s.Answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1-k3s/client-kubelet.crt" {
				return false
			}
			s.Read(r)
			text, err := lie()
			if err != nil {
				t.Error(err)
			}
			w.Write(text)
			return true
		}
		if p, err := c.Issue(t.Context(), k3s.ForClient, node, s.Client.PEM); err == nil {
			t.Errorf("%s: %v", name, p.Leaf.Subject)
		}
	}
	s.Answer = nil
	if _, err := c.Issue(t.Context(), k3s.ForClient, node, s.Client.PEM); err != nil {
		t.Error(err)
	}
}

// TestSettings checks the settings, and that a server cannot send ones that the agent would not accept.
func TestSettings(t *testing.T) {
	s := k3stest.Start(t)
	c := client(t, s)
	got, err := c.Settings(t.Context())
	if err != nil || got.ClusterDomain != "cluster.local" || fmt.Sprint(got.ClusterDNS) != "[10.43.0.10]" || got.APIServer != s.URL {
		t.Errorf("%+v, %v", got, err)
	}
	s.Config = map[string]any{"ClusterDNSs": []string{"10.43.0.10", "fd00::a"}, "HTTPSPort": 6444}
	got, err = c.Settings(t.Context())
	if err != nil || fmt.Sprint(got.ClusterDNS) != "[10.43.0.10 fd00::a]" || got.APIServer != "https://127.0.0.1:6444" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []map[string]any{
		{"ClusterDNS": ""}, {"ClusterDNS": "x"}, {"ClusterDNSs": []string{"0.0.0.0"}}, {"ClusterDNSs": []string{"1.1.1.1", "1.1.1.1", "1.1.1.1", "1.1.1.1"}},
		{"ClusterDomain": ""}, {"ClusterDomain": "a\nb"}, {"ClusterDomain": "../x"}, {"HTTPSPort": 70000}, {"HTTPSPort": -1},
	} {
		s.Config = bad
		if got, err := c.Settings(t.Context()); err == nil {
			t.Errorf("%v: %+v", bad, got)
		}
	}
}

// TestAPIServers checks that only addresses of other machines are used, and at most MaxServers.
func TestAPIServers(t *testing.T) {
	s := k3stest.Start(t)
	c := client(t, s)
	s.SetServers("192.0.2.1:6443", "127.0.0.1:6443", "0.0.0.0:1", "[fd00::1]:6443", "x", "224.0.0.1:1", "169.254.1.1:1", "192.0.2.2:0",
		"[::1]:5")
	got, err := c.APIServers(t.Context())
	if fmt.Sprint(got) != "[192.0.2.1:6443 [fd00::1]:6443]" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("192.0.2.%d:6443", i+1))
	}
	s.SetServers(many...)
	if got, err := c.APIServers(t.Context()); len(got) != k3s.MaxServers || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestBombs checks that no answer takes much memory, and that no redirect is followed.
func TestBombs(t *testing.T) {
	s := k3stest.Start(t)
	c := client(t, s)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for range 64 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	long := bytes.Repeat([]byte("a"), 1<<20)
	bombs := map[string]func(w http.ResponseWriter){
		"a long answer": func(w http.ResponseWriter) {
			for range 64 {
				w.Write(long)
			}
		},
		"a long error": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			for range 64 {
				w.Write(long)
			}
		},
		"many blocks": func(w http.ResponseWriter) {
			w.Write(bytes.Repeat([]byte("-----BEGIN A-----\nAAAA\n-----END A-----\n"), 20000))
		},
		"many headers of a block": func(w http.ResponseWriter) {
			w.Write([]byte("-----BEGIN CERTIFICATE-----\n"))
			for i := range 60000 {
				fmt.Fprintf(w, "%d: a\n", i)
			}
			w.Write([]byte("\n-----END CERTIFICATE-----\n"))
		},
		"many values": func(w http.ResponseWriter) { w.Write([]byte("[" + strings.Repeat(`"",`, 300000) + `""]`)) },
		"deep":        func(w http.ResponseWriter) { w.Write([]byte(strings.Repeat("[", 500000))) },
		"zipped": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped.Bytes())
		},
		"headers": func(w http.ResponseWriter) {
			for i := range 10000 {
				w.Header().Add(fmt.Sprintf("X-%d", i), "a")
			}
		},
		"a redirect": func(w http.ResponseWriter) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	}
	for name, bomb := range bombs {
		s.Answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/elsewhere" {
				t.Errorf("%s was followed", name)
			}
			s.Read(r)
			bomb(w)
			return true
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		token, err := k3s.ParseToken(s.Token())
		if err != nil {
			t.Fatal(err)
		}
		_, caErr := k3s.FetchCA(t.Context(), s.URL, token, false)
		_, settingsErr := c.Settings(t.Context())
		_, serversErr := c.APIServers(t.Context())
		_, _, casErr := c.CAs(t.Context())
		_, issueErr := c.Issue(t.Context(), k3s.ForClient, node, s.Client.PEM)
		runtime.ReadMemStats(&after)
		for i, err := range []error{caErr, settingsErr, serversErr, casErr, issueErr} {
			if err == nil && i != 2 { // a list of empty addresses is an empty list
				t.Errorf("%s: call %d has no error", name, i)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
			}
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 200<<20 { // the server's buffers count too
			t.Errorf("%s takes %d bytes", name, grown)
		}
	}
}

// TestRenewAt checks that a certificate is renewed in the last third of its life, and a long one in its last 120 days. The age of its CA
// does not count.
func TestRenewAt(t *testing.T) {
	s := k3stest.Start(t)
	now := time.Now()
	for _, life := range []time.Duration{time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour, 3650 * 24 * time.Hour} {
		s.Life = life
		p, err := client(t, s).Issue(t.Context(), k3s.ForClient, node, s.Client.PEM)
		if err != nil {
			t.Fatal(err)
		}
		at := k3s.RenewAt(p.Leaf, now)
		left := p.Leaf.NotAfter.Sub(at)
		if left > life/100*30+time.Minute || left < min(life, 365*24*time.Hour)/100*15 || left > 120*24*time.Hour {
			t.Errorf("%v: %v before its end", life, left)
		}
		if again := k3s.RenewAt(p.Leaf, now); !again.Equal(at) {
			t.Errorf("%v and %v", at, again)
		}
		for _, issued := range []time.Time{{}, now.AddDate(-60, 0, 0), now.AddDate(60, 0, 0)} { // the clock was wrong
			if left := p.Leaf.NotAfter.Sub(k3s.RenewAt(p.Leaf, issued)); left <= 0 || left > 120*24*time.Hour {
				t.Errorf("%v, issued %v: %v before its end", life, issued, left)
			}
		}
	}
}
