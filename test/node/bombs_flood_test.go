package node

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// These are types of HTTP/2 frames, and the flag END_HEADERS.
const (
	dataFrame, headersFrame, priorityFrame, resetFrame, settingsFrame, pingFrame, windowFrame, continuationFrame = 0, 1, 2, 3, 4, 6, 8, 9

	endHeaders = 0x4
	preface    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// frame encodes an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, content string) string {
	head := []byte{byte(len(content) >> 16), byte(len(content) >> 8), byte(len(content)), kind, flags}
	return string(binary.BigEndian.AppendUint32(head, stream)) + content
}

// request returns the encoded headers of a gRPC call. They are not compressed.
func request(path string) string {
	text := func(s string) string { return string(rune(len(s))) + s }
	return "\x83\x86\x04" + text(path) + "\x01" + text("localhost") + "\x00" + text("content-type") + text("application/grpc") +
		"\x00" + text("te") + text("trailers")
}

// A flood returns the frames for the stream with the given ID. It is called repeatedly with the IDs 1, 3, 5 and so on, because streams
// that a client opens have odd IDs. Some floods send all frames on stream 1.
type flood func(id uint32) string

// floods returns floods by name. Their frames are cheap for the sender. The argument is a valid header block. Some floods send it only on
// stream 1.
func floods(begin string) map[string]flood {
	large := "\x40\x01a\x7f\xa1\x1e" + strings.Repeat("x", 4000) // it enters the dynamic table, so one byte repeats it
	return map[string]flood{
		"continuations": func(id uint32) string {
			if id == 1 {
				return frame(headersFrame, 0, 1, begin)
			}
			return frame(continuationFrame, 0, 1, strings.Repeat("\x00\x01a\x00", 4000))
		},
		"empty continuations": func(id uint32) string {
			if id == 1 {
				return frame(headersFrame, 0, 1, begin)
			}
			return strings.Repeat(frame(continuationFrame, 0, 1, ""), 1000)
		},
		"repeated headers": func(id uint32) string {
			return frame(headersFrame, endHeaders, id, begin+large+strings.Repeat("\xbe", 12_000))
		},
		"many headers": func(id uint32) string {
			return frame(headersFrame, endHeaders, id, begin+strings.Repeat("\x00\x01a\x00", 3900))
		},
		"streams": func(id uint32) string { return frame(headersFrame, endHeaders, id, begin) },
		"resets": func(id uint32) string {
			return frame(headersFrame, endHeaders, id, begin) + frame(resetFrame, 0, id, "\x00\x00\x00\x08")
		},
		"calls": func(id uint32) string {
			return frame(headersFrame, endHeaders, id, begin) + frame(dataFrame, 0, id, string(prefixed(0, 60<<10))+strings.Repeat("\x0a\x00", 8000))
		},
		"data":       func(uint32) string { return frame(dataFrame, 0, 1, strings.Repeat("x", 16<<10)) },
		"empty data": func(uint32) string { return strings.Repeat(frame(dataFrame, 0, 1, ""), 1000) },
		"settings":   func(uint32) string { return strings.Repeat(frame(settingsFrame, 0, 0, ""), 1000) },
		"many settings": func(uint32) string {
			return frame(settingsFrame, 0, 0, strings.Repeat("\x00\x04\x00\x00\xff\xff", 2700))
		},
		"tables": func(uint32) string {
			return strings.Repeat(frame(settingsFrame, 0, 0, "\x00\x01\xff\xff\xff\xff"), 500)
		},
		"pings":   func(uint32) string { return strings.Repeat(frame(pingFrame, 0, 0, "12345678"), 1000) },
		"windows": func(uint32) string { return strings.Repeat(frame(windowFrame, 0, 0, "\x00\x00\x00\x01"), 1000) },
		"priorities": func(id uint32) string {
			return strings.Repeat(frame(priorityFrame, 0, id, "\x00\x00\x00\x00\x10"), 1000)
		},
		"unknown": func(id uint32) string { return frame(0xee, 0xff, id, strings.Repeat("x", 16<<10)) },
		"long": func(id uint32) string {
			return "\xff\xff\xff" + frame(headersFrame, 0, id, strings.Repeat("x", 16<<10))[3:]
		},
	}
}

const (
	floodTime  = 3 * time.Second
	floodBytes = 16 << 20
)

// send writes the flood and reads nothing. It stops when the peer closes the connection, or when floodTime or floodBytes is reached.
func (f flood) send(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(floodTime))
	for id, sent := uint32(1), 0; sent < floodBytes; id += 2 {
		n, err := io.WriteString(c, f(id))
		sent += n
		if err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c, 64<<10))
}

// TestFloodBombs checks that the agent survives many clients that flood it with cheap HTTP/2 frames. The targets are the sockets of
// plugins, tools and monitors, and port 10250. The agent must respond to other clients afterwards. The agent's memory limit is 96 MiB
// above its own usage.
func TestFloodBombs(t *testing.T) {
	t.Parallel()
	b := bombedMachine(t)
	_, ca := signed(t)
	b.Write("ca.crt", string(ca))
	b.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\ncriSocket: /run/islet/cri.sock\n", b.Disk))
	b.start("authentication: {x509: {clientCAFile: " + b.Disk + "/ca.crt}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n")
	socket := func(path string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return new(net.Dialer).DialContext(t.Context(), "unix", path) }
	}
	for _, at := range []struct {
		name, call string
		dial       func() (net.Conn, error)
		clients    int // number of connections for each flood
	}{
		{"the socket of device plugins", "/v1beta1.Registration/Register", socket(b.Disk + "/kubelet/device-plugins/kubelet.sock"), 2},
		{"the socket of pod resources", "/v1.PodResourcesLister/List", socket(b.Disk + "/kubelet/pod-resources/kubelet.sock"), 2},
		{"the socket of the pods API", "/v1alpha1.Pods/ListPods", socket(b.Disk + "/kubelet/pods-api/pods-api.sock"), 2},
		{"the CRI socket", "/runtime.v1.RuntimeService/Version", socket(fmt.Sprintf("/proc/%d/root/run/islet/cri.sock", b.Pid())), 4},
		{"port 10250", "/pods", func() (net.Conn, error) {
			c, err := b.Dial(t.Context(), "tcp", "127.0.0.1:10250")
			if err != nil {
				return nil, err
			}
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}), nil
		}, 4},
	} {
		var all sync.WaitGroup
		for name, f := range floods(request(at.call)) {
			for range at.clients {
				all.Go(func() {
					c, err := at.dial()
					if err != nil {
						t.Errorf("connect to %s for the flood %s: %v", at.name, name, err)
						return
					}
					defer c.Close()
					if _, err := io.WriteString(c, preface+frame(settingsFrame, 0, 0, "")); err == nil {
						f.send(c)
					}
				})
			}
		}
		all.Wait()
		b.checkAlive("floods at " + at.name)
	}
	b.well()
}

// TestAnsweringFloods checks that the agent survives plugins that flood it. Each socket in the registration directory sends a flood as
// soon as the agent makes a call.
func TestAnsweringFloods(t *testing.T) {
	t.Parallel()
	b := newBombed(t, "")
	var answered [64]atomic.Bool
	var names []string
	for name, f := range floods("\x88\x00\x0ccontent-type\x10application/grpc") {
		for range 3 {
			i := len(names)
			names = append(names, name)
			ln, err := net.Listen("unix", fmt.Sprintf("%s/kubelet/plugins_registry/%d.sock", b.Disk, i))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						if err := called(c); err == nil {
							f.send(c)
							answered[i].Store(true)
						}
					}()
				}
			}()
		}
	}
	for i, name := range names {
		b.Await("the flood "+name+" to be sent", func() bool {
			b.checkAlive("answering floods")
			return answered[i].Load()
		})
	}
	b.well()
}

// called sends the settings of an HTTP/2 server and returns when the client has sent the headers of a request.
func called(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, frame(settingsFrame, 0, 0, "")+frame(settingsFrame, 1, 0, "")); err != nil {
		return err
	}
	in := bufio.NewReader(c)
	if _, err := in.Discard(len(preface)); err != nil {
		return err
	}
	for {
		head, err := in.Peek(9)
		if err != nil {
			return err
		}
		if head[3] == headersFrame {
			return nil
		}
		if _, err := in.Discard(9 + int(head[0])<<16 + int(head[1])<<8 + int(head[2])); err != nil {
			return err
		}
	}
}
