package streamtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// runSession runs an exec or attach session of client-go. It returns stdout and the exit code.
func runSession(ctx context.Context, x remotecommand.Executor) ([]byte, int, error) {
	var out bytes.Buffer
	err := x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
	var exit exec.CodeExitError
	switch {
	case errors.As(err, &exit):
		return out.Bytes(), exit.Code, nil
	case err != nil && strings.Contains(err.Error(), "exit code 7"): // protocol versions before v4
		return out.Bytes(), 7, nil
	}
	return out.Bytes(), 0, err
}

func (c *Client) webSocket(ctx context.Context, path, protocol string) ([]byte, int, error) {
	x, err := remotecommand.NewWebSocketExecutorForProtocols(c.Config, "GET", c.Config.Host+path, protocol)
	if err != nil {
		return nil, 0, err
	}
	return runSession(ctx, x)
}

func (c *Client) runSPDY(ctx context.Context, path, protocol string) ([]byte, int, error) {
	u, err := url.Parse(c.Config.Host + path)
	if err != nil {
		return nil, 0, err
	}
	rt, up, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, 0, err
	}
	x, err := remotecommand.NewSPDYExecutorForProtocols(rt, up, "POST", u, protocol)
	if err != nil {
		return nil, 0, err
	}
	return runSession(ctx, x)
}

// readChannels reads a WebSocket until it is closed and returns the data of each channel.
func (c *Client) readChannels(path, protocol string) (data map[byte][]byte, err error) {
	d := websocket.Dialer{TLSClientConfig: c.TLS.Clone()}
	if protocol != "" {
		d.Subprotocols = []string{protocol}
	}
	conn, _, err := d.Dial("ws"+strings.TrimPrefix(c.Config.Host, "http")+path, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	data = map[byte][]byte{}
	for {
		_, m, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return data, nil
		}
		if err != nil || len(m) == 0 {
			return data, fmt.Errorf("the session ended with %w", err)
		}
		number, payload := m[0], m[1:]
		if strings.Contains(protocol, "base64") {
			number -= '0'
			if payload, err = base64.StdEncoding.DecodeString(string(payload)); err != nil {
				return data, err
			}
		}
		data[number] = append(data[number], payload...)
	}
}

func (c *Client) commandChannels(path, protocol string) ([]byte, int, error) {
	data, err := c.readChannels(path, protocol)
	end := string(data[3])
	versioned := strings.HasPrefix(protocol, "v")
	switch {
	case err != nil:
		return data[1], 0, err
	case versioned && strings.Contains(end, `"reason":"ExitCode","message":"7"`),
		!versioned && strings.Contains(end, "exit code 7"):
		return data[1], 7, nil
	case versioned && strings.Contains(end, `"status":"Success"`), !versioned && end == "":
		return data[1], 0, nil
	}
	return data[1], 0, errors.New(end)
}

func (c *Client) portChannels(path, protocol string, port int) ([]byte, int, error) {
	data, err := c.readChannels(path, protocol)
	begin := []byte{byte(port), 0} // each channel begins with the port number
	if err == nil && !bytes.Equal(data[1], begin) {
		err = fmt.Errorf("the error channel contains %q", data[1])
	}
	return bytes.TrimPrefix(data[0], begin), 0, err
}

// A portDialer creates a port-forward client.
type portDialer func(u *url.URL, c *rest.Config) (httpstream.Dialer, error)

func spdyDialer(u *url.URL, c *rest.Config) (httpstream.Dialer, error) {
	rt, up, err := spdy.RoundTripperFor(c)
	return spdy.NewDialer(up, &http.Client{Transport: rt}, "POST", u), err
}

func tunnelDialer(u *url.URL, c *rest.Config) (httpstream.Dialer, error) {
	return portforward.NewSPDYOverWebsocketDialer(u, c)
}

// readFromPort connects to a port with client-go's port-forward and reads until the end.
func (c *Client) readFromPort(path, port string, dialer portDialer) ([]byte, error) {
	u, err := url.Parse(c.Config.Host + path)
	if err != nil {
		return nil, err
	}
	u.RawQuery = "" // each stream has the port in its headers
	d, err := dialer(u, c.Config)
	if err != nil {
		return nil, err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:" + port}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		return nil, err
	}
	defer func() { close(stop); <-done }()
	ports, err := f.GetPorts()
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return io.ReadAll(conn)
}
