package ports

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

// certificate returns a self-signed certificate.
func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestReach(t *testing.T) {
	knows := false
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || !knows {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	defer srv.Close()
	_, text, _ := net.SplitHostPort(srv.Listener.Addr().String())
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	o := &Ports{all: []port{{number: int32(number), field: "port"}}}
	cert, ctx := certificate(t), context.Background()
	if err := o.CheckReachable(ctx, nil, cert); err == nil {
		t.Error("a server with another authority is accepted")
	}
	if err := o.CheckReachable(ctx, nil, nil); err != nil {
		t.Errorf("without a certificate: %v", err)
	}
	knows = true
	if err := o.CheckReachable(ctx, nil, cert); err != nil {
		t.Error(err)
	}
	if err := o.CheckReachable(ctx, []netip.Addr{netip.MustParseAddr("127.0.0.2")}, cert); err == nil {
		t.Error("a server is reached at an address without a listener")
	}
	if err := (&Ports{}).CheckReachable(ctx, nil, cert); err == nil {
		t.Error("no error for a missing port")
	}
	srv.Close()
	if err := o.CheckReachable(ctx, nil, cert); err == nil {
		t.Error("no error for a port without a listener")
	}
}
