package server_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// runExec has a client of client-go run a command.
func runExec(t *testing.T, x remotecommand.Executor) ([]byte, int, error) {
	var out bytes.Buffer
	err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
	var exit exec.CodeExitError
	switch {
	case errors.As(err, &exit):
		return out.Bytes(), exit.Code, nil
	case err != nil && strings.Contains(err.Error(), "exit code 7"): // before the fourth version
		return out.Bytes(), 7, nil
	}
	return out.Bytes(), 0, err
}

func getWebSocket(t *testing.T, a *secured, path string) ([]byte, int, error) {
	x, err := remotecommand.NewWebSocketExecutor(a.rest(t), "GET", "https://"+a.addr+path)
	if err != nil {
		return nil, 0, err
	}
	return runExec(t, x)
}

func getSPDY(t *testing.T, a *secured, path, protocol string) ([]byte, int, error) {
	u, err := url.Parse("https://" + a.addr + path)
	if err != nil {
		return nil, 0, err
	}
	rt, up, err := spdy.RoundTripperFor(a.rest(t))
	if err != nil {
		return nil, 0, err
	}
	x, err := remotecommand.NewSPDYExecutorForProtocols(rt, up, "POST", u, protocol)
	if err != nil {
		return nil, 0, err
	}
	return runExec(t, x)
}

// channels reads a WebSocket to its end: what each channel said.
func (a *secured) channels(path, protocol string) (said map[byte][]byte, err error) {
	d := websocket.Dialer{TLSClientConfig: a.config()}
	if protocol != "" {
		d.Subprotocols = []string{protocol}
	}
	c, _, err := d.Dial("wss://"+a.addr+path, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	said = map[byte][]byte{}
	for {
		_, m, err := c.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return said, nil
		}
		if err != nil || len(m) == 0 {
			return said, fmt.Errorf("the session ended with %w", err)
		}
		number, data := m[0], m[1:]
		if strings.Contains(protocol, "base64") {
			number -= '0'
			if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil {
				return said, err
			}
		}
		said[number] = append(said[number], data...)
	}
}

func getChannels(_ *testing.T, a *secured, path, protocol string) ([]byte, int, error) {
	said, err := a.channels(path, protocol)
	end := string(said[3])
	versioned := strings.HasPrefix(protocol, "v")
	switch {
	case err != nil:
		return said[1], 0, err
	case versioned && strings.Contains(end, `"reason":"ExitCode","message":"7"`), !versioned && strings.Contains(end, "exit code 7"):
		return said[1], 7, nil
	case versioned && strings.Contains(end, `"status":"Success"`), !versioned && end == "":
		return said[1], 0, nil
	}
	return said[1], 0, errors.New(end)
}

func getPortChannels(_ *testing.T, a *secured, path, protocol string) ([]byte, int, error) {
	said, err := a.channels(path, protocol)
	_, number, _ := strings.Cut(path, "port=")
	var port byte
	fmt.Sscan(number, &port)
	begin := []byte{port, 0} // the number of the port begins each channel
	if err == nil && !bytes.Equal(said[1], begin) {
		err = fmt.Errorf("the channel of errors says %q", said[1])
	}
	return bytes.TrimPrefix(said[0], begin), 0, err
}

// A portDialer makes a client of port-forward.
type portDialer func(u *url.URL, c *rest.Config) (httpstream.Dialer, error)

func spdyDialer(u *url.URL, c *rest.Config) (httpstream.Dialer, error) {
	rt, up, err := spdy.RoundTripperFor(c)
	return spdy.NewDialer(up, &http.Client{Transport: rt}, "POST", u), err
}

func tunnelDialer(u *url.URL, c *rest.Config) (httpstream.Dialer, error) {
	return portforward.NewSPDYOverWebsocketDialer(u, c)
}

// getPort reads from a port by client-go, which listens for us.
func getPort(t *testing.T, a *secured, path string, dialer portDialer) ([]byte, int, error) {
	path, port, _ := strings.Cut(path, "?port=")
	d, err := dialer(&url.URL{Scheme: "https", Host: a.addr, Path: path}, a.rest(t))
	if err != nil {
		return nil, 0, err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:" + port}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, 0, err
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		return nil, 0, err
	}
	defer func() { close(stop); <-done }()
	ports, err := f.GetPorts()
	if err != nil {
		return nil, 0, err
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	out, err := io.ReadAll(c)
	return out, 0, err
}

func getLog(_ *testing.T, a *secured, path string, version int) ([]byte, int, error) {
	tr := &http.Transport{TLSClientConfig: a.config(), ForceAttemptHTTP2: version == 2, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + a.addr + path)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != version || resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("answered by %s: %s", resp.Proto, resp.Status)
	}
	out, err := io.ReadAll(resp.Body)
	return out, 0, err
}
