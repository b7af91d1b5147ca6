package streams_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// restConfig returns the configuration of a Kubernetes client of port 10250.
func restConfig(t testing.TB, a *servertest.API) *rest.Config {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(a.Cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: "https://" + a.Addr, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA.PEM,
		CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Certificate[0]}),
		KeyData:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}}
}

// TestExecOverTLS checks exec with the Kubernetes clients and a client certificate.
func TestExecOverTLS(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Server)
	for _, protocol := range []string{"spdy", "websocket"} {
		config := restConfig(t, a)
		u, _ := url.Parse(config.Host + "/exec/default/web/nginx?command=cat&input=1&output=1&error=1")
		var x remotecommand.Executor
		var err error
		if protocol == "spdy" {
			x, err = remotecommand.NewSPDYExecutor(config, "POST", u)
		} else {
			x, err = remotecommand.NewWebSocketExecutor(config, "GET", u.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		big := strings.Repeat("0123456789abcdef", 64<<10)
		var out, errw bytes.Buffer
		err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(big), Stdout: &out, Stderr: &errw})
		if exit := (exec.CodeExitError{}); err != nil && !errors.As(err, &exit) || out.String() != big {
			t.Errorf("%s: %d bytes, %v", protocol, out.Len(), err)
		}
	}
	n.Runtime.Streams.Wait()
}

// TestIdleStream checks that a stream without data ends with an error after streamingConnectionIdleTimeout.
func TestIdleStream(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) { c.StreamIdleTimeout = 200 * time.Millisecond }))
	for _, protocol := range []string{"spdy", "websocket"} {
		config := restConfig(t, a)
		u, _ := url.Parse(config.Host + "/exec/default/web/nginx?command=hang&output=1&error=1")
		var x remotecommand.Executor
		if protocol == "spdy" {
			x, _ = remotecommand.NewSPDYExecutor(config, "POST", u)
		} else {
			x, _ = remotecommand.NewWebSocketExecutor(config, "GET", u.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "streamingConnectionIdleTimeout") {
			t.Errorf("%s: %v", protocol, err)
		}
		cancel()
	}
	n.Runtime.Streams.Wait()
}
