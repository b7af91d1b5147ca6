package node

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// field encodes a protobuf field with a length: a string, bytes or a message.
func field(number int, value string) string {
	tag := binary.AppendUvarint(nil, uint64(number)<<3|2)
	return string(binary.AppendUvarint(tag, uint64(len(value)))) + value
}

// prefixed encodes the five bytes before a gRPC message.
func prefixed(compressed byte, length int) []byte {
	return binary.BigEndian.AppendUint32([]byte{compressed}, uint32(length))
}

// message encodes a gRPC message.
func message(text string) []byte { return append(prefixed(0, len(text)), text...) }

// grpcServer serves HTTP/2 without TLS on a Unix socket until the test ends.
func grpcServer(t *testing.T, socket string, h http.Handler) {
	t.Helper()
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-served })
}

// maxMessage is the default limit of a gRPC client for the size of a message.
const maxMessage = 4 << 20

// An answerBomb writes a plugin's response to a call. The response is small on the wire and large in memory, or very long, or endless.
type answerBomb func(w http.ResponseWriter, r *http.Request)

// wholeMessage returns a bomb that responds with one message.
func wholeMessage(text string) answerBomb {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(message(text))
		w.Header().Set("Grpc-Status", "0")
	}
}

// endless writes a block repeatedly until a write fails.
func endless(w io.Writer, block []byte) {
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// answerBombs returns bombs by name. Each bomb can be a response to any call of any kind of plugin. Each field number is a list, a string
// or a message in at least one kind of response.
func answerBombs() map[string]answerBomb {
	zeros := gzipped(64 << 20)
	all := map[string]answerBomb{
		"text":     wholeMessage(field(2, strings.Repeat("x", maxMessage-64))),
		"numbers":  wholeMessage(strings.Repeat("\x08\x01", maxMessage/2-64)),
		"unknown":  wholeMessage(strings.Repeat("\x7a\x00", maxMessage/2-64)),
		"map":      wholeMessage(field(3, strings.Repeat(field(1, ""), maxMessage/2-64))),
		"nested":   wholeMessage(field(1, field(1, strings.Repeat(field(1, ""), maxMessage/2-64)))),
		"topology": wholeMessage(strings.Repeat(field(1, field(1, "d")+field(3, strings.Repeat(field(1, "\x08\x01"), 500))), 2000)),
		"devices":  wholeMessage(devicesOf(60_000, 50)),
		"stalled": func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(append(prefixed(0, maxMessage), make([]byte, maxMessage-1)...))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"larger": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(prefixed(0, 1<<30))
			endless(w, make([]byte, 64<<10))
		},
		"many": func(w http.ResponseWriter, _ *http.Request) { endless(w, message(strings.Repeat("\x0a\x00", 50_000))) },
		"lists": func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; ; i++ {
				if _, err := w.Write(message(devicesOf(20_000, 8+i%2))); err != nil {
					return
				}
			}
		},
		"packed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Encoding", "gzip")
			_, _ = w.Write(append(prefixed(1, len(zeros)), zeros...))
		},
		"header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 8<<20)) },
		"trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Message", strings.Repeat("x", 8<<20))
			w.Header().Set("Grpc-Status", "2")
		},
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 100_000 {
				w.Header().Set(fmt.Sprint("X-", i), "")
			}
		},
		"html": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			endless(w, make([]byte, 64<<10))
		},
	}
	for number := range 5 {
		all[fmt.Sprint("field ", number+1)] = wholeMessage(strings.Repeat(field(number+1, ""), maxMessage/2-64))
	}
	return all
}

// devicesOf encodes a list of n devices whose names have the given length.
func devicesOf(n, length int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(field(1, field(1, fmt.Sprintf("%0*d", length, i))+field(2, "Healthy")))
	}
	return b.String()
}

func gzipped(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	_ = z.Close()
	return b.Bytes()
}

// A fakePlugin answers one gRPC method with a bomb, and all others correctly.
type fakePlugin struct {
	kind, name, endpoint, version string // version lists the supported versions, separated by spaces
	call                          string // the method that is answered with the bomb
	bomb                          answerBomb
	asked                         atomic.Int32 // number of bombs sent
	listed                        atomic.Bool  // the agent has received a correct list of devices
}

// ServeHTTP implements http.Handler.
func (p *fakePlugin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20))
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	if call := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; call != p.call {
		_, _ = w.Write(message(p.good(call)))
		if call == "ListAndWatch" {
			_ = http.NewResponseController(w).Flush()
			p.listed.Store(true)
			<-r.Context().Done()
		}
		w.Header().Set("Grpc-Status", "0")
		return
	}
	p.asked.Add(1)
	p.bomb(w, r)
}

// good returns a correct response to a call.
func (p *fakePlugin) good(call string) string {
	switch call {
	case "GetInfo":
		info := field(1, p.kind) + field(2, p.name) + field(3, p.endpoint)
		for _, version := range strings.Fields(p.version) {
			info += field(4, version)
		}
		return info
	case "GetDevicePluginOptions":
		return "\x08\x01\x10\x01" // both booleans are true: pre_start_required and get_preferred_allocation_available
	case "ListAndWatch":
		return devicesOf(3, 1)
	case "Allocate":
		return field(1, "") // one container
	case "NodeGetInfo":
		return field(1, "node")
	case "NodeGetCapabilities":
		return field(1, field(1, "\x08\x02")) // GET_VOLUME_STATS
	}
	return ""
}

// registerDevice registers a device plugin at the agent's registration socket. It repeats the registration every second until the plugin
// has sent its bomb.
func (p *fakePlugin) registerDevice(ctx context.Context, socket string) {
	t := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer t.CloseIdleConnections()
	t.Protocols.SetUnencryptedHTTP2(true)
	for p.asked.Load() == 0 && ctx.Err() == nil {
		body := message(field(1, "v1beta1") + field(2, filepath.Base(p.endpoint)) + field(3, p.name))
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1beta1.Registration/Register", bytes.NewReader(body))
		if err != nil {
			return
		}
		q.Header.Set("Content-Type", "application/grpc")
		q.Header.Set("Te", "trailers")
		if resp, err := t.RoundTrip(q); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// TestPluginBombs checks that the agent survives plugins of every kind that send bombs at the same time. The bombs are responses to
// GetInfo and NotifyRegistrationStatus, the health of DRA devices, and lists and options of device plugins. The agent's memory limit is 96
// MiB above its own usage.
func TestPluginBombs(t *testing.T) {
	t.Parallel()
	b := newBombed(t, "")
	root := b.Disk + "/kubelet"
	b.Run("mkdir", "-p", root+"/plugins")
	var all []*fakePlugin
	for name, bomb := range shortForm(answerBombs()) {
		for _, of := range []struct{ what, kind, version, call string }{
			{"info", "CSIPlugin", "1.0.0", "GetInfo"},
			{"told", "CSIPlugin", "none", "NotifyRegistrationStatus"}, // the agent rejects version "none"
			{"dra", "DRAPlugin", "v1.DRAPlugin v1.DRAResourceHealth", "NodeWatchResources"},
			{"device", "DevicePlugin", "v1beta1", "ListAndWatch"},
			{"option", "DevicePlugin", "v1beta1", "GetDevicePluginOptions"},
			{"legacy", "", "", "ListAndWatch"},
		} {
			p := &fakePlugin{kind: of.kind, version: of.version, call: of.call, bomb: bomb}
			file := fmt.Sprintf("%s%d.sock", of.what, len(all))
			all = append(all, p)
			switch of.kind {
			case "": // the plugin registers itself at the agent's socket
				p.name, p.endpoint = "example.com/"+file, root+"/device-plugins/"+file
				grpcServer(t, p.endpoint, p)
				go p.registerDevice(t.Context(), root+"/device-plugins/kubelet.sock")
				continue
			case "DevicePlugin":
				p.name = "example.com/" + file
			default:
				p.name = file
			}
			b.register(p, file)
		}
		b.checkAlive("the sockets of " + name)
	}
	b.allAsked(all)
	b.well()
}

// register serves a plugin at its own socket and at its socket in the registration directory.
func (b *bombedNode) register(p *fakePlugin, file string) {
	b.t.Helper()
	p.endpoint = b.Disk + "/kubelet/plugins/" + file
	grpcServer(b.t, p.endpoint, p)
	grpcServer(b.t, b.Disk+"/kubelet/plugins_registry/"+file, p)
}

// allAsked waits until each plugin has sent its bomb.
func (b *bombedNode) allAsked(all []*fakePlugin) {
	b.t.Helper()
	for n := len(unasked(all)); n > 0; n = len(unasked(all)) {
		b.Await(fmt.Sprintf("one of the plugins %q to be asked", unasked(all)), func() bool {
			b.checkAlive("bombs of plugins")
			return len(unasked(all)) < n
		})
	}
}

// shortForm keeps only four kinds of bombs, unless ISLET_TEST_LONG is set.
func shortForm(all map[string]answerBomb) map[string]answerBomb {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		maps.DeleteFunc(all, func(name string, _ answerBomb) bool {
			return !slices.Contains([]string{"map", "nested", "many", "packed"}, name)
		})
	}
	return all
}

// TestAllocationBombs checks that the agent survives device plugins that respond to Allocate, GetPreferredAllocation and PreStartContainer
// with bombs. The agent's memory limit is 96 MiB above its own usage.
func TestAllocationBombs(t *testing.T) {
	t.Parallel()
	b := newBombed(t, "")
	b.Run("mkdir", "-p", b.Disk+"/kubelet/plugins")
	var all []*fakePlugin
	for _, bomb := range shortForm(answerBombs()) {
		for _, call := range []string{"Allocate", "GetPreferredAllocation", "PreStartContainer"} {
			name := fmt.Sprintf("bomb%d", len(all))
			p := &fakePlugin{kind: "DevicePlugin", version: "v1beta1", name: "example.com/" + name, call: call, bomb: bomb}
			all = append(all, p)
			b.register(p, name+".sock")
		}
	}
	b.Await("the devices to be listed", func() bool {
		return !slices.ContainsFunc(all, func(p *fakePlugin) bool { return !p.listed.Load() })
	})
	for i, p := range all { // a pod that is admitted before its resource is registered gets no devices
		b.Write(fmt.Sprintf("manifests/bomb%d.yaml", i),
			manifest(fmt.Sprint("bomb", i), fmt.Sprintf("    resources: {limits: {%s: 1}}\n", p.name), "count", "1s"))
	}
	b.allAsked(all)
	for i := range all {
		b.Remove(fmt.Sprintf("manifests/bomb%d.yaml", i))
	}
	b.well()
}

// unasked returns the names and methods of the plugins that have not sent a bomb.
func unasked(all []*fakePlugin) (names []string) {
	for _, p := range all {
		if p.asked.Load() == 0 {
			names = append(names, p.name+" "+p.call)
		}
	}
	return names
}
