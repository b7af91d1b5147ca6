package setup

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/link"
)

// clusterInfoOf returns the ConfigMap cluster-info as kubeadm makes it.
func clusterInfoOf(t *testing.T, cas ...string) string {
	t.Helper()
	text := "apiVersion: v1\nkind: Config\nclusters:\n"
	for _, ca := range cas {
		text += "- name: ''\n  cluster: {server: 'https://x', certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(ca)) + "}\n"
	}
	data, err := json.Marshal(map[string]any{"kind": "ConfigMap", "data": map[string]string{"kubeconfig": text}})
	must(t, err)
	return string(data)
}

// serve runs a server with a certificate of the CA.
func serve(t *testing.T, ca clusterCA, answer func(w http.ResponseWriter, r *http.Request)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.pair(t, "kube-apiserver")}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestDiscovery checks that only a CA with the hash is used, and that the token is not sent.
func TestDiscovery(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	server := serve(t, ca, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != clusterInfo {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		fmt.Fprint(w, clusterInfoOf(t, other.pem, "x", other.pem+ca.pem))
	})
	b := newBoard(t)
	b.write(head + "cluster:\n  server: " + server.URL + "\n  caHash: " + ca.hash + "\n  token: " + token + "\n")
	b.inUse()
	if b.made("bootstrap.kubeconfig") != "" || b.made("ca.crt") != "" || !strings.Contains(b.made("flags"), "--bootstrap-kubeconfig=") {
		t.Error(contents(t, b.Dir))
	}
	w := watchBoard(t, b)
	w.set(link.Up, "")
	<-w.ended
	if b.made("ca.crt") != ca.pem || !strings.Contains(b.made("bootstrap.kubeconfig"), token) {
		t.Error(contents(t, b.Dir))
	}
	if r, err := load(b.State); err != nil || r.Discovery != nil || !r.Removed {
		t.Errorf("%+v, %v", r, err)
	}
	d := discovery{Server: server.URL, Hash: newCA(t).hash}
	if _, err := d.fetch(t.Context(), time.Now); err == nil || !strings.Contains(err.Error(), "no CA with the hash") {
		t.Errorf("got %v", err)
	}
}

// TestForgedAuthority checks that a stranger cannot give the node a CA which has the public key of the right one, but other names or dates.
// Also a board without a clock obtains the CA.
func TestForgedAuthority(t *testing.T) {
	ca, thief := newCA(t), newCA(t)
	form := &x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: "forged"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, form, form, &ca.key.PublicKey, ca.key)
	must(t, err)
	forged := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	for name, tt := range map[string]struct {
		server clusterCA
		first  string
		now    time.Time
		want   string
	}{
		"another server":             {thief, ca.pem, time.Now(), ""},
		"a forged CA":                {ca, forged, time.Now(), ""},
		"a forged CA with the right": {ca, forged + ca.pem, time.Now(), ca.pem},
		"no clock":                   {ca, ca.pem, time.Unix(0, 0), ca.pem},
	} {
		asked := 0
		server := serve(t, tt.server, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 1 {
				fmt.Fprint(w, clusterInfoOf(t, tt.first))
			} else {
				fmt.Fprint(w, clusterInfoOf(t, ca.pem))
			}
		})
		got, err := (&discovery{Server: server.URL, Hash: ca.hash}).fetch(t.Context(), func() time.Time { return tt.now })
		if string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// TestReplacedToken checks that a discovery which ends after the file was applied with another token changes nothing.
func TestReplacedToken(t *testing.T) {
	ca := newCA(t)
	text := func(server, token string) string {
		return head + "cluster:\n  server: " + server + "\n  caHash: " + ca.hash + "\n  token: " + token + "\n"
	}
	b := newBoard(t)
	asked := 0
	var server *httptest.Server
	server = serve(t, ca, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 2 {
			b.write(text(server.URL, newToken))
			b.inUse()
		}
		fmt.Fprint(w, clusterInfoOf(t, ca.pem))
	})
	b.write(text(server.URL, token))
	b.inUse()
	w := watchBoard(t, b)
	w.set(link.Up, "")
	<-w.ended
	if r, err := load(b.State); err != nil || r.Discovery == nil || r.Discovery.Token != newToken || b.made("bootstrap.kubeconfig") != "" {
		t.Errorf("%+v, %v, %s", r, err, b.made("bootstrap.kubeconfig"))
	}
	w = watchBoard(t, b)
	w.set(link.Up, "")
	<-w.ended
	if !strings.Contains(b.made("bootstrap.kubeconfig"), newToken) {
		t.Error(contents(t, b.Dir))
	}
}

// TestHostileServers checks that invalid answers of a server, and bombs, are errors and take little memory.
func TestHostileServers(t *testing.T) {
	ca := newCA(t)
	info := func(text string) string {
		data, err := json.Marshal(map[string]any{"data": map[string]string{"kubeconfig": text}})
		must(t, err)
		return string(data)
	}
	for name, answer := range map[string]string{
		"nothing": "", "a page": "<html>", "another object": "{}", "null": "null", "endless": strings.Repeat(" ", maxAnswer+1),
		"wide":            `{"data":{"kubeconfig":"","x":[` + strings.Repeat("{},", 200_000) + `{}]}}`,
		"deep":            strings.Repeat(`{"data":`, 100_000),
		"wide kubeconfig": info("clusters: [" + strings.Repeat("{},", 200_000) + "]"),
		"aliases":         info("a: &a [x,x]\nb: [*a,*a]\n"),
		"PEM headers":     info("clusters: [{cluster: {certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN A-----\n"+strings.Repeat("a:b\n", 20_000))) + "}}]"),
	} {
		server := serve(t, ca, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
		d := discovery{Server: server.URL, Hash: ca.hash}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := d.fetch(t.Context(), time.Now)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 32<<20 {
			t.Errorf("%s: %v, %d MiB", name, err, took>>20)
		}
	}
	away := serve(t, ca, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
	})
	if _, err := (&discovery{Server: away.URL, Hash: ca.hash}).fetch(t.Context(), time.Now); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("got %v", err)
	}
}
