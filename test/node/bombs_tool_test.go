package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// newTools starts the agent of a machine with a CRI socket, and returns the path of the socket.
func newTools(t *testing.T) (b *bombedNode, socket string) {
	t.Helper()
	b = bombedMachine(t)
	b.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\ncriSocket: /run/islet/cri.sock\n", b.Disk))
	b.start("")
	return b, fmt.Sprintf("/proc/%d/root/run/islet/cri.sock", b.Pid())
}

// tool returns a client for gRPC calls over one connection to a socket.
func tool(t *testing.T, socket string) *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// callTool calls a method of the CRI runtime service. The body is a gRPC message.
func callTool(ctx context.Context, tr *http.Transport, call string, body io.Reader) (answer string, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1.RuntimeService/"+call, body)
	if err != nil {
		return "", err
	}
	q.Header.Set("Content-Type", "application/grpc")
	q.Header.Set("Te", "trailers")
	resp, err := tr.RoundTrip(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if status := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); err == nil && status != "0" {
		err = fmt.Errorf("status %s: %s", status, resp.Header.Get("Grpc-Message")+resp.Trailer.Get("Grpc-Message"))
	}
	if err == nil && len(text) < 5 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	return string(text[5:]), nil
}

// TestUnfinishedCalls checks that the agent survives clients of the CRI socket that send 256 large messages and never finish their calls.
// The agent must decode each message and wait for the end of the call. The agent's memory limit is 96 MiB above its own usage.
func TestUnfinishedCalls(t *testing.T) {
	t.Parallel()
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("waits for 30 s until the first calls are refused: ISLET_TEST_LONG=1")
	}
	b, socket := newTools(t)
	ctx, stop := context.WithCancel(t.Context())
	large := message(field(1, field(1, field(1, strings.Repeat("x", maxMessage-64)))))
	var all sync.WaitGroup
	refused := make(chan error, 256)
	for range 4 {
		tr := tool(t, socket)
		for range 64 {
			all.Go(func() {
				body, more := io.Pipe()
				defer more.Close()
				go func() { _, _ = more.Write(large) }()
				_, err := callTool(ctx, tr, "RunPodSandbox", body)
				refused <- err
			})
		}
	}
	b.Await("the first calls to be refused", func() bool {
		b.checkAlive("calls that do not end")
		return len(refused) > 0
	})
	if err := <-refused; err == nil {
		t.Error("an unfinished call succeeded")
	}
	stop()
	all.Wait()
	if _, err := callTool(t.Context(), tool(t, socket), "Version", bytes.NewReader(message(""))); err != nil {
		t.Errorf("a call afterwards: %v", err)
	}
	b.well()
}

// wsFrame encodes the frame of a WebSocket client with a mask of zeros. The length in the header may exceed the length of the content.
func wsFrame(head byte, length uint64, content string) string {
	return string(binary.BigEndian.AppendUint64([]byte{head, 0x80 | 127}, length)) + "\x00\x00\x00\x00" + content
}

// TestMessageBombs checks that the agent survives WebSocket clients of exec at the CRI streaming port. Their messages are long, endless,
// numerous or compressed, and the container's process reads no input. The agent's memory limit is 96 MiB above its own usage.
func TestMessageBombs(t *testing.T) {
	t.Parallel()
	b, socket := newTools(t)
	_, id, _ := strings.Cut(b.before.Status.ContainerStatuses[0].ContainerID, "://")
	const fin, text, binaryFrame, ping, compressed = 0x80, 0x1, 0x2, 0x9, 0x40
	block := strings.Repeat("\x00", 64<<10)
	var all sync.WaitGroup
	for name, next := range map[string]flood{
		"long": func(n uint32) string {
			if n == 1 {
				return wsFrame(fin|binaryFrame, 1<<40, block)
			}
			return block
		},
		"fragments": func(n uint32) string {
			if n == 1 {
				return wsFrame(binaryFrame, uint64(len(block)), block)
			}
			return wsFrame(0, uint64(len(block)), block)
		},
		"input": func(uint32) string { return wsFrame(fin|binaryFrame, uint64(len(block)), block) },
		"size":  func(uint32) string { return wsFrame(fin|binaryFrame, 1<<20, "\x04"+strings.Repeat("[", 1<<20-1)) },
		"empty": func(uint32) string { return strings.Repeat(wsFrame(fin|binaryFrame, 0, ""), 1000) },
		"pings": func(uint32) string { return strings.Repeat(wsFrame(fin|ping, 125, block[:125]), 500) },
		"deflated": func(uint32) string {
			z := string(gzipped(16 << 20)[10:])
			return wsFrame(fin|compressed|text, uint64(len(z)), z)
		},
	} {
		for range 2 {
			answer, err := callTool(t.Context(), tool(t, socket), "Exec",
				bytes.NewReader(message(field(1, id)+field(2, "/podtool")+field(2, "count")+field(2, "1s")+"\x20\x01\x28\x01")))
			if err != nil {
				t.Fatalf("Exec for %s: %v", name, err)
			}
			at, err := url.Parse(answer[strings.Index(answer, "http"):])
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				c, err := b.Dial(t.Context(), "tcp", at.Host)
				if err == nil {
					defer c.Close()
					err = upgrade(c, at)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				next.send(c)
			})
		}
	}
	all.Wait()
	b.checkAlive("messages at the streaming port")
	b.well()
}

// upgrade performs the WebSocket handshake and offers compression.
func upgrade(c net.Conn, at *url.URL) error {
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c,
		"GET %[1]s HTTP/1.1\r\nHost: %[2]s\r\nOrigin: http://%[2]s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: %[3]s\r\n\r\n",
		at.RequestURI(), at.Host, base64.StdEncoding.EncodeToString(key)); err != nil {
		return err
	}
	status := make([]byte, len("HTTP/1.1 101"))
	if _, err := io.ReadFull(c, status); err != nil {
		return err
	}
	if string(status) != "HTTP/1.1 101" {
		return errors.New(string(status))
	}
	return nil
}
